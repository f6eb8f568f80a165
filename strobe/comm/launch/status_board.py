"""The status board: the position of every rank in shared memory, readable after a rank was killed."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

_ENTRY = struct.Struct("<qqd?39s")  # epoch, step, time of writing, alone, phase
_RANK_BYTES = 192  # index of the valid entry and two entries, each in a cache line of its own
_ENTRY_BYTES = 64


@dataclass(frozen=True)
class RankPosition:
    """Epoch, step and phase of a rank, and since when (on a clock that all processes of a machine share).

    ``alone``: all other ranks wait for this rank, without a deadline.
    """

    epoch: int = 0
    step: int = 0
    phase: str = "starting"
    since: float = 0.0
    alone: bool = False

    def __str__(self) -> str:
        return f"epoch {self.epoch}, step {self.step}, {self.phase}"


class StatusBoard:
    """One entry per rank in anonymous shared memory, which leaves no file behind."""

    def __init__(self, fd: int, num_ranks: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, num_ranks * _RANK_BYTES)

    @classmethod
    @contextmanager
    def create(cls, num_ranks: int) -> Iterator[StatusBoard]:
        """Create an empty board. Processes that inherit its ``fd`` open the same one."""
        with os.fdopen(os.memfd_create("strobe-board"), "wb") as file:
            file.truncate(num_ranks * _RANK_BYTES)
            board = cls(file.fileno(), num_ranks)
            try:
                yield board
            finally:
                board._memory.close()

    def write(self, rank: int, epoch: int, step: int, phase: str, alone: bool = False) -> None:
        """Write a rank's entry atomically: a rank killed while writing leaves its previous entry."""
        start = rank * _RANK_BYTES
        turn = 1 - self._memory[start]
        _ENTRY.pack_into(
            self._memory, start + _entry_offset(turn), epoch, step, monotonic(), alone, phase.encode()[:39]
        )
        self._memory[start] = turn

    def read(self, rank: int) -> RankPosition:
        """Return the last position of a rank."""
        start = rank * _RANK_BYTES
        epoch, step, since, alone, phase = _ENTRY.unpack_from(self._memory, start + _entry_offset(self._memory[start]))
        return (
            RankPosition(epoch, step, phase.rstrip(b"\0").decode(errors="ignore"), since, alone)
            if phase[0]
            else RankPosition()
        )


def _entry_offset(turn: int) -> int:
    return _ENTRY_BYTES * (1 + turn)


class RankStatus:
    """This rank's entry on the board, and the position at which the last error was raised.

    An error leaves phases while it propagates, so the position when it is caught is too late.
    """

    def __init__(self, board: StatusBoard, rank: int) -> None:
        self._board, self._rank = board, rank
        self._last = RankPosition()
        self._position_at_error = (0, self._last)  # the error's id: a reference would keep its frames alive

    def write(self, epoch: int, step: int, phase: str, alone: bool = False) -> None:
        """Write a new position; the callback of ``Ledger.on_change``."""
        error = sys.exc_info()[1]
        if error is not None and not self._is_cause_of(error):
            self._position_at_error = (id(error), self._last)
        self._last = RankPosition(epoch, step, phase)
        self._board.write(self._rank, epoch, step, phase, alone)

    def set_phase(self, phase: str) -> None:
        """Write another phase of the same step."""
        self.write(self._last.epoch, self._last.step, phase)

    def position_at(self, error: BaseException) -> RankPosition:
        """Return the position at which an error, or one that led to it, was raised."""
        return self._position_at_error[1] if self._is_cause_of(error) else self._last

    def _is_cause_of(self, error: BaseException) -> bool:
        """Whether the last recorded error is this one or led to it."""
        return any(id(each) == self._position_at_error[0] for each in error_chain(error))


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors that led to it."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__context__, each.__cause__]
