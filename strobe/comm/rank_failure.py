"""How a rank failed, told so that one message is enough: who, where, why."""

from __future__ import annotations

import signal
import time
import traceback
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from strobe.comm.base import CommError
from strobe.comm.board import Place, chain
from strobe.errors import StrobeError


class RankError(StrobeError):
    """A rank failed, and with it the job. The first line says which, where and why; its traceback follows."""

    def __init__(self, text: str, rank: int = -1, place: Place | None = None) -> None:
        super().__init__(text)
        self.rank, self.place = rank, place


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The end of one rank, or what looks like it.

    ``text`` stands for itself; else the message is made of ``cause`` (what the rank did: "was killed (signal 9)"), the
    place and ``said`` (what the error says). ``by_others``: a message of another rank did not come, which is where the
    reason is. ``timed_out``: it did not come in time, though the link stands.
    """

    rank: int
    cause: str
    said: str = ""
    text: str = ""
    place: Place | None = None
    by_others: bool = False
    timed_out: bool = False
    details: str = ""
    when: float = field(default_factory=time.monotonic)

    def error(self, place: Place, more: str = "") -> RankError:
        """The one error of the job; the place is for a failure that does not know its own."""
        place = self.place or place
        first = self.text or f"rank {self.rank} {self.cause} in {place}" + (f": {self.said}" if self.said else "")
        return RankError("\n".join(part.rstrip() for part in (first, more, self.details) if part), self.rank, place)


def raised(rank: int, error: BaseException, place: Place) -> Failure:
    """A rank's work ended with an error."""
    cause = [each for each in chain(error) if isinstance(each, CommError | dist.DistError)]
    if isinstance(error, StrobeError) and not cause:  # what the user chose: its text says what to do
        return Failure(rank=rank, cause="refused", text=str(error), place=place)
    details = "".join(traceback.format_exception(error))
    said = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1 if error.code else 0
        said = error.code if isinstance(error.code, str) else ""
        return Failure(rank=rank, cause=f"exited (status {status})", said=said, place=place, details=details)
    if _out_of_memory(error):
        return Failure(rank=rank, cause="ran out of memory", said=said, place=place, details=details)
    if not cause:
        return Failure(rank=rank, cause="failed", said=said, place=place, details=details)
    return _left_alone(rank, cause[-1], place, details)


def _out_of_memory(error: BaseException) -> bool:
    """Torch says so with errors of its own, on a CPU with any RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _left_alone(rank: int, error: BaseException, place: Place, details: str) -> Failure:
    text = str(error)
    named = text.startswith(f"rank {rank} ")  # it says where by itself
    slow = any(word in text.lower() for word in ("timed out", "timeout", "no answer"))
    return Failure(
        rank=rank,
        cause="stopped",
        said=text.partition("\n")[0],
        text=text if named else "",
        place=place,
        by_others=True,
        timed_out=slow,
        details=details,
    )


def ended(rank: int, status: int, words: str) -> Failure:
    """A rank's process is gone without a word: the status it left, or minus the signal; and what Python last said."""
    if status >= 0:
        return Failure(rank=rank, cause=f"exited (status {status})", details=words)
    number = -status
    if number == signal.SIGKILL:
        words = (
            "If nobody sent this signal the system did, for want of memory: use fewer ranks, or smaller steps.\n"
            + words
        )
    return Failure(rank=rank, cause=f"was killed (signal {number})", details=words)
