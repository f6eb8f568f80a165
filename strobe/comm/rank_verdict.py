"""Which rank is to blame when a job fails: a rank's own reason goes before messages that did not come."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strobe.comm.board import Place
from strobe.comm.rank_failure import Failure

GRACE_S = 2.0
"""How long others have, after the first message that did not come, to show a reason of their own."""

START_S = 60.0
"""How long ranks may take to start after the first has: they import packages from disks that may be slow."""

IDLE_DEADLINES = 10
"""How many deadlines rank 0 may go without using the processor while it works alone and all others wait for it."""

_WAITED_FOR = re.compile(r"\b(?:from|to|asking) rank (\d+)")


@dataclass
class Fate:
    """What is known of a rank from outside. ``idle_since``: since when its process has used no processor time."""

    rank: int
    ready_since: float | None = None
    done: bool = False
    failure: Failure | None = None
    stopped_since: float | None = None
    idle_since: float | None = None

    @property
    def silent(self) -> bool:
        return self.failure is None and not self.done


def verdict(fates: Sequence[Fate], place: Callable[[int], Place], *, now: float, deadline_s: float) -> Failure | None:
    """The failure that ends the job; nothing while all is well or more may yet come to light."""
    failures = sorted((fate.failure for fate in fates if fate.failure), key=lambda failure: failure.when)
    for failure in failures:
        if not failure.by_others:
            return failure
    stopped = [fate for fate in fates if fate.stopped_since is not None and fate.silent]
    if failures:
        known = all(fate in stopped or not fate.silent for fate in fates)
        if not known and now - failures[0].when < GRACE_S:
            return None
        return _stopped(stopped) or _unanswering(fates, failures, place, deadline_s) or failures[0]
    if any(now - (fate.stopped_since or now) > deadline_s for fate in stopped):
        return _stopped(stopped)
    return _hangs_alone(fates, place, now, deadline_s) or _late(fates, now, max(START_S, deadline_s))


def _stopped(stopped: list[Fate]) -> Failure | None:
    if not stopped:
        return None
    first = min(stopped, key=lambda fate: fate.stopped_since or 0.0)
    return Failure(rank=first.rank, cause="is stopped (by a signal such as SIGSTOP, or a debugger)")


def _unanswering(
    fates: Sequence[Fate], failures: list[Failure], place: Callable[[int], Place], deadline_s: float
) -> Failure | None:
    """A rank that let others wait too long: one that still runs, or one that came after they had given up and found
    its links broken. Of several, one that was waited for, else the one that is furthest behind. Where links broke
    before anyone had waited too long, ranks that know nothing of it yet are not to blame."""
    gave_up = [failure for failure in failures if failure.timed_out]
    if not gave_up:
        return None
    came_late = {each.rank: each for each in failures if not each.timed_out and each.when > gave_up[0].when}
    slow = [fate.rank for fate in fates if fate.silent] or list(came_late)
    if not slow:
        return None
    waited_for = {int(rank) for failure in gave_up for rank in _WAITED_FOR.findall(failure.said)}
    among = [rank for rank in slow if rank in waited_for] or slow
    behind = {rank: (rank in came_late and came_late[rank].place) or place(rank) for rank in among}
    rank = min(behind, key=lambda rank: (behind[rank].epoch, behind[rank].step, behind[rank].since))
    return Failure(rank=rank, cause=f"did not answer for {deadline_s:g} s", place=behind[rank])


def _hangs_alone(fates: Sequence[Fate], place: Callable[[int], Place], now: float, deadline_s: float) -> Failure | None:
    """A rank that all others wait for, without a deadline, and that has not used the processor for long."""
    for fate in fates:
        at = place(fate.rank)
        if fate.silent and fate.idle_since is not None and at.alone:
            idle_s = now - max(fate.idle_since, at.since)
            if idle_s > IDLE_DEADLINES * deadline_s:
                return Failure(rank=fate.rank, cause=f"did nothing for {idle_s:.3g} s while the others waited for it")
    return None


def _late(fates: Sequence[Fate], now: float, patience_s: float) -> Failure | None:
    """A rank that is not there long after another was."""
    ready = [fate.ready_since for fate in fates if fate.ready_since is not None]
    late = [fate.rank for fate in fates if fate.ready_since is None]
    if not ready or not late or now - min(ready) < patience_s:
        return None
    return Failure(rank=late[0], cause=f"did not start within {patience_s:g} s")
