"""Failures of ranks: how one is described, and which of several ended the job."""

from __future__ import annotations

import re
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from strobe.comm.base import CommError
from strobe.comm.launch.status_board import RankPosition, error_chain
from strobe.errors import StrobeError

GRACE_S = 2.0
"""Time for other ranks to report a cause of their own after the first message failed."""

START_S = 60.0
"""Time for all ranks to start after the first has: they import packages from disks that may be slow."""

IDLE_DEADLINES = 10
"""Deadlines that rank 0 may use no processor time while it works alone and all other ranks wait for it."""

_PEER_RANK = re.compile(r"\b(?:from|to) rank (\d+)")


class RankError(StrobeError):
    """A rank failed and ended the job. The first line names rank, position and cause; its traceback follows."""

    def __init__(self, text: str, rank: int = -1, position: RankPosition | None = None) -> None:
        super().__init__(text)
        self.rank, self.position = rank, position


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The end of one rank.

    Args:
        rank: the rank.
        cause: what happened to it, such as "was killed (signal 9)".
        message: the first line of its error.
        text: a complete message that replaces cause, position and message.
        position: where it happened, if the rank knows.
        caused_by_peer: a message from another rank failed, so the cause is that rank's.
        timed_out: that message timed out, although the connection is intact.
        details: traceback or crash log.
        failed_at: when it was noticed.
    """

    rank: int
    cause: str
    message: str = ""
    text: str = ""
    position: RankPosition | None = None
    caused_by_peer: bool = False
    timed_out: bool = False
    details: str = ""
    failed_at: float = field(default_factory=time.monotonic)

    def to_error(self, position: RankPosition, more: str = "") -> RankError:
        """Build the error of the job; ``position`` is used if the failure has none."""
        position = self.position or position
        message = f": {self.message}" if self.message else ""
        first = self.text or f"rank {self.rank} {self.cause} in {position}{message}"
        return RankError("\n".join(part.rstrip() for part in (first, more, self.details) if part), self.rank, position)


def failure_from_error(rank: int, error: BaseException, position: RankPosition) -> Failure:
    """Describe the exception that ended a rank's work."""
    comm_errors = [each for each in error_chain(error) if isinstance(each, CommError | dist.DistError)]
    if isinstance(error, StrobeError) and not comm_errors:  # a user's error: its text is complete
        return Failure(rank=rank, cause="refused", text=str(error), position=position)
    details = "".join(traceback.format_exception(error))
    if comm_errors:
        return _peer_failure(rank, comm_errors[-1], position, details)
    message = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    cause = "ran out of memory" if _is_out_of_memory(error) else "failed"
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1 if error.code else 0
        message = error.code if isinstance(error.code, str) else ""
        cause = f"exited (status {status})"
    return Failure(rank=rank, cause=cause, message=message, position=position, details=details)


def _is_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _peer_failure(rank: int, error: BaseException, position: RankPosition, details: str) -> Failure:
    text = str(error)
    return Failure(
        rank=rank,
        cause="stopped",
        message=text.partition("\n")[0],
        text=text if text.startswith(f"rank {rank} ") else "",  # it names the position already
        position=position,
        caused_by_peer=True,
        timed_out=any(word in text.lower() for word in ("timed out", "timeout", "no answer")),
        details=details,
    )


def failure_from_exit(rank: int, status: int, crash_log: str) -> Failure:
    """Describe a process that ended without a message, by its exit status (minus the signal) and crash log."""
    if status >= 0:
        return Failure(rank=rank, cause=f"exited (status {status})", details=crash_log)
    if -status == signal.SIGKILL:
        hint = "Linux kills processes when memory runs out: use fewer ranks, or smaller steps."
        crash_log = f"{hint}\n{crash_log}"
    return Failure(rank=rank, cause=f"was killed (signal {-status})", details=crash_log)


@dataclass
class ProcessState:
    """The launcher's view of a rank. ``idle_since``: since when its process has used no processor time."""

    rank: int
    ready_since: float | None = None
    done: bool = False
    failure: Failure | None = None
    stopped_since: float | None = None
    idle_since: float | None = None

    @property
    def is_running(self) -> bool:
        return self.failure is None and not self.done


def diagnose_failure(
    states: Sequence[ProcessState], position_of: Callable[[int], RankPosition], *, now: float, deadline_s: float
) -> Failure | None:
    """Find the failure that ends the job; None while no rank has failed, or its cause may still be reported.

    A rank with a cause of its own comes before ranks whose messages failed; then a stopped rank, an unresponsive one,
    one that hangs while it works alone, and one that never started.
    """
    failures = sorted((state.failure for state in states if state.failure), key=lambda failure: failure.failed_at)
    for failure in failures:
        if not failure.caused_by_peer:
            return failure
    stopped = [state for state in states if state.stopped_since is not None and state.is_running]
    if failures:
        all_known = all(state in stopped or not state.is_running for state in states)
        if not all_known and now - failures[0].failed_at < GRACE_S:
            return None
        return (
            _diagnose_stopped(stopped)
            or _diagnose_unresponsive(states, failures, position_of, deadline_s)
            or failures[0]
        )
    if any(now - (state.stopped_since or now) > deadline_s for state in stopped):
        return _diagnose_stopped(stopped)
    return _diagnose_hang(states, position_of, now, deadline_s) or _diagnose_late_start(
        states, now, max(START_S, deadline_s)
    )


def _diagnose_stopped(stopped: list[ProcessState]) -> Failure | None:
    if not stopped:
        return None
    first = min(stopped, key=lambda state: state.stopped_since or 0.0)
    return Failure(rank=first.rank, cause="is stopped (by a signal such as SIGSTOP, or a debugger)")


def _diagnose_unresponsive(
    states: Sequence[ProcessState],
    failures: list[Failure],
    position_of: Callable[[int], RankPosition],
    deadline_s: float,
) -> Failure | None:
    """Find a rank that let others wait beyond the deadline: one that still runs, or one that arrived after they had
    timed out and found its connections closed. Of several, one that a timed-out message names, else the one furthest
    behind. Where connections broke before any timeout, running ranks are not to blame."""
    timeouts = [failure for failure in failures if failure.timed_out]
    if not timeouts:
        return None
    late = {each.rank: each for each in failures if not each.timed_out and each.failed_at > timeouts[0].failed_at}
    slow = [state.rank for state in states if state.is_running] or list(late)
    if not slow:
        return None
    awaited = {int(rank) for failure in timeouts for rank in _PEER_RANK.findall(failure.message)}
    candidates = [rank for rank in slow if rank in awaited] or slow
    positions = {rank: (rank in late and late[rank].position) or position_of(rank) for rank in candidates}
    rank = min(positions, key=lambda rank: (positions[rank].epoch, positions[rank].step, positions[rank].since))
    return Failure(rank=rank, cause=f"did not answer for {deadline_s:g} s", position=positions[rank])


def _diagnose_hang(
    states: Sequence[ProcessState], position_of: Callable[[int], RankPosition], now: float, deadline_s: float
) -> Failure | None:
    """Find a rank that works alone, while all others wait for it, and has long used no processor time."""
    for state in states:
        position = position_of(state.rank)
        if state.is_running and state.idle_since is not None and position.alone:
            idle_s = now - max(state.idle_since, position.since)
            if idle_s > IDLE_DEADLINES * deadline_s:
                return Failure(rank=state.rank, cause=f"did nothing for {idle_s:.3g} s while the others waited for it")
    return None


def _diagnose_late_start(states: Sequence[ProcessState], now: float, timeout_s: float) -> Failure | None:
    ready = [state.ready_since for state in states if state.ready_since is not None]
    late = [state.rank for state in states if state.ready_since is None]
    if not ready or not late or now - min(ready) < timeout_s:
        return None
    return Failure(rank=late[0], cause=f"did not start within {timeout_s:g} s")
