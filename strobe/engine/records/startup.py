"""What the time before the first epoch went to."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from strobe.engine.progress import Progress


@dataclass
class StartupTimes:
    """Seconds by stage, in order; ``stage`` runs since ``since``. Other processes of this machine may go on counting:
    its monotonic clock is theirs, too. ``cached``: results of the run that came from the cache, also later ones."""

    began: float = field(default_factory=perf_counter)
    stages: dict[str, float] = field(default_factory=dict)
    stage: str | None = None
    since: float = 0.0
    cached: list[str] = field(default_factory=list)

    def enter(self, stage: str | None) -> None:
        """End the running stage and begin another one; None: only end it."""
        now = perf_counter()
        if self.stage is not None:
            self.stages[self.stage] = self.stages.get(self.stage, 0.0) + now - self.since
        self.stage, self.since = stage, now

    def to_json(self) -> dict[str, Any]:
        """Seconds from the beginning to the end of the last stage, those of the stages, and what was cached."""
        return {
            "seconds": round(self.since - self.began, 6),
            "stages": {stage: round(seconds, 6) for stage, seconds in self.stages.items()},
            "cached": sorted(set(self.cached)),
        }


class StartupClock(Progress):
    """Progress that is passed on, timed by stage until training begins."""

    def __init__(self, progress: Progress, times: StartupTimes | None = None) -> None:
        self._progress = progress
        self.times = StartupTimes() if times is None else times
        self._is_over = False

    @classmethod
    def around(cls, progress: Progress) -> StartupClock:
        """The clock that ``progress`` is, or a new one around it."""
        return progress if isinstance(progress, cls) else cls(progress)

    def stage(self, what: str, done: int, total: int | None) -> None:
        if not self._is_over and what != self.times.stage:
            self.times.enter(what)
        self._progress.stage(what, done, total)

    def begin(self, info: dict[str, Any]) -> None:
        if not self._is_over:
            self.times.enter(None)
            self._is_over = True
        self._progress.begin(info)

    def step(self, epoch: int, step: int) -> None:
        self._progress.step(epoch, step)

    def epoch(self, line: dict[str, Any]) -> None:
        self._progress.epoch(line)

    def from_cache(self, what: str) -> None:
        self.times.cached.append(what)
        self._progress.from_cache(what)

    def note(self, text: str) -> None:
        self._progress.note(text)
