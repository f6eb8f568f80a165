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

_WAITED_FOR = re.compile(r"\b(?:from|to|asking) rank (\d+)")


@dataclass
class Fate:
    """What is known of a rank from outside."""

    rank: int
    ready_since: float | None = None
    done: bool = False
    failure: Failure | None = None
    stopped_since: float | None = None

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
    return _late(fates, now, max(START_S, deadline_s))


def _stopped(stopped: list[Fate]) -> Failure | None:
    if not stopped:
        return None
    first = min(stopped, key=lambda fate: fate.stopped_since or 0.0)
    return Failure(rank=first.rank, cause="is stopped (by a signal such as SIGSTOP, or a debugger)")


def _unanswering(
    fates: Sequence[Fate], failures: list[Failure], place: Callable[[int], Place], deadline_s: float
) -> Failure | None:
    """A rank that still runs while others have waited too long for it. Of several, one that was waited for, else the
    one that is furthest behind. Where links broke, ranks that know nothing of it yet are not to blame."""
    silent = [fate for fate in fates if fate.silent]
    if not silent or not any(failure.timed_out for failure in failures):
        return None
    waited_for = {int(rank) for failure in failures for rank in _WAITED_FOR.findall(failure.said)}
    among = [fate for fate in silent if fate.rank in waited_for] or silent
    behind = {fate.rank: place(fate.rank) for fate in among}
    rank = min(behind, key=lambda rank: (behind[rank].epoch, behind[rank].step, behind[rank].since))
    return Failure(rank=rank, cause=f"did not answer for {deadline_s:g} s")


def _late(fates: Sequence[Fate], now: float, patience_s: float) -> Failure | None:
    """A rank that is not there long after another was."""
    ready = [fate.ready_since for fate in fates if fate.ready_since is not None]
    late = [fate.rank for fate in fates if fate.ready_since is None]
    if not ready or not late or now - min(ready) < patience_s:
        return None
    return Failure(rank=late[0], cause=f"did not start within {patience_s:g} s")
