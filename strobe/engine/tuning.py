"""How much of older snapshots a step keeps, found by training: neighbouring settings are tried, the best goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from strobe.batching.decay import Decay, Tune
from strobe.engine.checkpoint import State, load_weights
from strobe.engine.diverged import DivergedError
from strobe.engine.job import Job
from strobe.engine.judging import Judging
from strobe.engine.machine import random_state, restore_random_state
from strobe.engine.nest import copied, is_like
from strobe.engine.progress import Progress
from strobe.engine.record import Record
from strobe.engine.sliding import Sliding
from strobe.engine.summary import duration, figure
from strobe.errors import FormatError, OptionError
from strobe.numbers import number_of, percent
from strobe.options import short
from strobe.tasks.base import Metrics

Train = Callable[[], tuple[int, float]]
"""Trains an epoch; gives its steps and its loss."""

SHARES = (0.02, 0.05, *(k / 10 for k in range(1, 11)))
"""What may be kept of the oldest snapshot: steps of a tenth, smaller ones at the bottom, for nothing is no share."""


def neighbours(decay: Decay, num_chunks: int, most: float) -> list[Decay]:
    """Settings one step away, each once and none above ``most`` of a window that keeps everything; those that keep the
    least first. A step leads to other chunks: where there are few it may take more than a tenth."""
    now, window = decay.kept(num_chunks), decay.window
    fulls = [full for full in (decay.full - 1, decay.full + 1) if 1 <= full <= window]
    less = [replace(decay, keep=share) for share in reversed(SHARES) if share < decay.keep]
    more = [replace(decay, keep=share) for share in SHARES if share > decay.keep]
    ways = [*([replace(decay, full=full, decayed=window - full)] for full in fulls), less, more]
    found: dict[tuple[int, ...], Decay] = {}
    for way in ways:
        for step in [each for each in way if each.kept(num_chunks) != now][:1]:
            found.setdefault(step.kept(num_chunks), step)
    return sorted(
        (each for each in found.values() if each.share(num_chunks) <= most), key=lambda each: each.share(num_chunks)
    )


@dataclass(frozen=True)
class Trial:
    """An epoch with one setting: what it scored, None where it could not be trained or nothing could be asked."""

    decay: Decay
    steps: int
    loss: float
    metrics: Metrics
    value: float | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        found = _plain(self.decay) | {"loss": self.loss, "validation": self.metrics}
        return found | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True)
class Round:
    """The trials of one epoch, that of the setting at hand first."""

    epoch: int
    trials: list[Trial]
    taken: Trial

    @property
    def over(self) -> bool:
        """Whether no neighbour is better."""
        return self.taken is self.trials[0]

    def said(self, metric: str) -> str:
        """What was tried, what each scored and what was taken, in a line for people."""
        first, *others = (f"{figure(each.value)} with {_named(each.decay)}" for each in self.trials)
        lost = sum(each.seconds for each in self.trials if each is not self.taken)
        then = "stays: tuning is over" if self.over else "goes on"
        return (
            f"epoch {self.epoch}, trained with {number_of(len(self.trials), 'setting')}: validation {metric} {first} "
            f"as before, {', '.join(others)}; {_named(self.taken.decay)} {then} (trying took {duration(lost)})"
        )


_MOST_SNAPSHOTS = 1 << 20
"""Of a window that a checkpoint may ask for."""


class Untuned:
    """Epochs as they are: nothing is tried. The base of what does."""

    def trained(self, train: Train) -> tuple[int, float, Metrics | None]:
        """An epoch: its steps, its loss, and what it scored, where that is known already."""
        return (*train(), None)

    def line(self) -> dict[str, Any]:
        """The setting that the epoch was trained with, as a part of its line."""
        return {}

    def tell(self, record: Record, watch: Progress) -> None:
        """Tells of what was tried in the epoch, if anything was."""


def start_tuning(job: Job, state: State, sliding: Sliding | None, judging: Judging) -> Untuned:
    """Tuning as the batching asks for it, from where a run that is resumed had come to."""
    tune = job.plan.batching.tuning
    if tune is None:
        return Untuned()
    assert sliding is not None, "what is tuned is how windows slide"
    return Tuning(job, state, sliding, judging, tune)


class Tuning(Untuned):
    """Walks from setting to setting while training goes on; all ranks together, for they share what is scored.

    In a round an epoch is trained with the setting at hand and with each of its neighbours, always from the same
    weights, optimiser, random numbers and inherited states. What was trained with those that are not taken is lost.
    """

    def __init__(self, job: Job, state: State, sliding: Sliding, judging: Judging, tune: Tune) -> None:
        self._job, self._state, self._sliding, self._judging, self._tune = job, state, sliding, judging, tune
        self._round: Round | None = None
        self._over = False
        if state.tuned is not None:
            self._recall(state.tuned)
        share = sliding.decay.share(sliding.num_chunks)
        if share > tune.most:
            raise OptionError(
                f"a step begins with {percent(share)} of a window that keeps everything, and tuning may reach "
                f"{percent(tune.most)}: begin with fewer full snapshots or a smaller keep, or raise most"
            )

    def _recall(self, found: dict[str, Any]) -> None:
        damaged = FormatError(f"the checkpoint's tuning is damaged: windows of this run cannot decay as {short(found)}")
        if not is_like(found, _plain(self._sliding.decay) | {"over": False}) or None in found.values():
            raise damaged
        known = {name: value for name, value in found.items() if name != "over"}
        decay = replace(self._sliding.decay, **known)
        if min(decay.full, decay.decayed) < 0 or decay.window > _MOST_SNAPSHOTS or not 0 < decay.keep <= 1:
            raise damaged
        self._sliding.decay, self._over = decay, found["over"]

    def trained(self, train: Train) -> tuple[int, float, Metrics | None]:
        """With the setting at hand or, if it is time, with the best of it and its neighbours."""
        self._round = None
        if not self._is_due():
            return (*train(), None)
        begin = self._captured()
        best = self._trial(self._sliding.decay, train)
        end, trials = self._captured(), [best]
        for decay in self._neighbours():
            self._restore(begin)
            trials.append(self._trial(decay, train))
            if self._is_better(trials[-1], best):
                best, end = trials[-1], self._captured()
        self._restore(end)
        self._sliding.decay = best.decay
        self._round = Round(self._state.epoch + 1, trials, best)
        self._over = self._round.over
        return best.steps, best.loss, best.metrics

    def line(self) -> dict[str, Any]:
        """A checkpoint will know it, too."""
        found = _plain(self._sliding.decay)
        self._state.tuned = found | {"over": self._over}
        return found

    def tell(self, record: Record, watch: Progress) -> None:
        """After the epoch's line: a run that goes on cuts off what follows the epochs it knows."""
        if self._round is None:
            return
        tried = [each.to_json() for each in self._round.trials]
        taken = _plain(self._round.taken.decay)
        record.event("tuned", epoch=self._round.epoch, tried=tried, taken=taken, over=self._round.over)
        if self._job.comm.rank == 0:
            watch.note(self._round.said(self._job.problem.metric))

    def _is_due(self) -> bool:
        """Where no neighbour is left to try, tuning is over as well."""
        if self._over or (self._state.epoch + 1) % self._tune.every:
            return False
        self._over = not self._neighbours()
        return not self._over

    def _neighbours(self) -> list[Decay]:
        return neighbours(self._sliding.decay, self._sliding.num_chunks, self._tune.most)

    def _trial(self, decay: Decay, train: Train) -> Trial:
        began, at_hand = perf_counter(), self._sliding.decay
        self._sliding.decay = decay
        try:
            steps, loss = train()
            metrics = self._judging.scored()
        except DivergedError:
            if decay is at_hand:
                raise
            steps, loss, metrics = 0, math.nan, {}
        finally:
            self._sliding.decay = at_hand
        return Trial(decay, steps, loss, metrics, metrics.get(self._job.problem.metric), perf_counter() - began)

    def _is_better(self, trial: Trial, than: Trial) -> bool:
        """What is no number is never better."""
        if trial.value is None or not math.isfinite(trial.value):
            return False
        if than.value is None or math.isnan(than.value):
            return True
        higher = self._job.problem.higher_is_better
        return trial.value > than.value if higher else trial.value < than.value

    def _captured(self) -> dict[str, Any]:
        """All that an epoch changes, in the computer's memory: a GPU has other use for its own."""
        state = self._state
        kept = {**state.weights(), "optimiser": state.optimiser.state_dict(), "random": random_state()}
        found: dict[str, Any] = copied(kept | {"inherited": self._sliding.remembered()}, "cpu")
        return found

    def _restore(self, found: dict[str, Any]) -> None:
        state = self._state
        load_weights(state.model, state.head, found)
        state.optimiser.load_state_dict(copied(found["optimiser"]))  # torch takes the very tensors, and changes them
        restore_random_state(found["random"])
        self._sliding.recall(found["inherited"])


def _plain(decay: Decay) -> dict[str, Any]:
    return {"full": decay.full, "decayed": decay.decayed, "keep": decay.keep}


def _named(decay: Decay) -> str:
    return f"full={decay.full} keep={decay.keep:g}"
