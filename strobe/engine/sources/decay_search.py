"""Search for the decay of sliding windows: neighboring settings train the same epoch, the best one continues."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from strobe.batching.base import EpochPolicy, EpochResult, Event
from strobe.batching.trapezoid import Decay, DecaySearchOptions
from strobe.engine.checkpoint.serialization import copy_tree, same_structure
from strobe.engine.checkpoint.store import load_weights
from strobe.engine.machine import random_state, restore_random_state
from strobe.engine.settings import DivergedError
from strobe.errors import FormatError, OptionError
from strobe.format import duration, format_metric, percent, pluralize
from strobe.options import short_repr
from strobe.tasks.base import Metrics

if TYPE_CHECKING:
    from strobe.engine.context import RunContext
    from strobe.engine.sources.sliding import SlidingWindowSource

SHARES = (0.02, 0.05, *(k / 10 for k in range(1, 11)))
"""Grid for ``min_keep``. Zero is excluded: a window keeps at least one chunk."""


def neighbor_settings(decay: Decay, num_chunks: int, most: float) -> list[Decay]:
    """Settings one step away, each once, none above ``most`` of a full window; the smallest first. With few chunks a
    step may be larger than a tenth."""
    now, window = decay.num_chunks_by_age(num_chunks), decay.window
    fulls = [full for full in (decay.full - 1, decay.full + 1) if 1 <= full <= window]
    less = [replace(decay, min_keep=share) for share in reversed(SHARES) if share < decay.min_keep]
    more = [replace(decay, min_keep=share) for share in SHARES if share > decay.min_keep]
    ways = [*([replace(decay, full=full, decayed=window - full)] for full in fulls), less, more]
    found: dict[tuple[int, ...], Decay] = {}
    for way in ways:
        for step in [each for each in way if each.num_chunks_by_age(num_chunks) != now][:1]:
            found.setdefault(step.num_chunks_by_age(num_chunks), step)
    return sorted(
        (each for each in found.values() if each.window_share(num_chunks) <= most),
        key=lambda each: each.window_share(num_chunks),
    )


@dataclass(frozen=True)
class Candidate:
    """An epoch trained with one setting; ``value`` is None where training diverged or validation has no examples."""

    decay: Decay
    steps: int
    loss: float
    metrics: Metrics
    value: float | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        found = _to_json(self.decay) | {"loss": self.loss, "validation": self.metrics}
        return found | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True)
class SearchRound:
    """The candidates of one epoch, the current setting first."""

    epoch: int
    candidates: list[Candidate]
    chosen: Candidate

    @property
    def is_last(self) -> bool:
        """Whether no neighbour is better."""
        return self.chosen is self.candidates[0]

    def describe(self, metric: str) -> str:
        """What was tried, what each scored and what was taken, in a line for people."""
        first, *others = (f"{format_metric(each.value)} with {_describe_decay(each.decay)}" for each in self.candidates)
        lost = sum(each.seconds for each in self.candidates if each is not self.chosen)
        then = "stays: the search is done" if self.is_last else "goes on"
        return (
            f"epoch {self.epoch}, trained with {pluralize(len(self.candidates), 'setting')}: validation {metric} "
            f"{first} as before, {', '.join(others)}; {_describe_decay(self.chosen.decay)} {then} "
            f"(trying took {duration(lost)})"
        )


_MAX_WINDOW = 1 << 20
"""Longest window that a checkpoint may ask for."""


class DecaySearch(EpochPolicy):
    """Hill climbing over decay settings while training goes on, by all ranks together.

    A round trains an epoch with the current setting and with each of its neighbors, always from the same weights,
    optimizer state, random numbers and inherited states, and continues with the best outcome. The others are lost.
    """

    def __init__(self, run: RunContext, source: SlidingWindowSource, options: DecaySearchOptions) -> None:
        self._job, self._state, self._evaluator = run.job, run.state, run.evaluator
        self._sliding, self._tune = source, options
        self._round: SearchRound | None = None
        self._over = False
        share = source.decay.window_share(source.num_chunks)
        if share > options.max_share:
            raise OptionError(
                f"a step begins with {percent(share)} of a window that keeps everything, and tuning may reach "
                f"{percent(options.max_share)}: begin with fewer full snapshots or a smaller keep, or raise most"
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        damaged = FormatError(
            f"the checkpoint's tuning is damaged: windows of this run cannot decay as {short_repr(state)}"
        )
        if not same_structure(state, _to_json(self._sliding.decay) | {"done": False}) or None in state.values():
            raise damaged
        known = {name: value for name, value in state.items() if name != "done"}
        decay = replace(self._sliding.decay, **known)
        if min(decay.full, decay.decayed) < 0 or decay.window > _MAX_WINDOW or not 0 < decay.min_keep <= 1:
            raise damaged
        self._sliding.decay, self._over = decay, state["done"]

    def run(self, train_epoch: Callable[[], EpochResult]) -> EpochResult:
        """Train with the current setting or, if a round is due, with the best of it and its neighbors."""
        self._round = None
        if not self._is_due():
            return train_epoch()
        begin = self._state_dict()
        best = self._try(self._sliding.decay, train_epoch)
        end, trials = self._state_dict(), [best]
        for decay in self._neighbors():
            self._load_epoch_state(begin)
            trials.append(self._try(decay, train_epoch))
            if self._is_better(trials[-1], best):
                best, end = trials[-1], self._state_dict()
        self._load_epoch_state(end)
        self._sliding.decay = best.decay
        self._round = SearchRound(self._state.epoch + 1, trials, best)
        self._over = self._round.is_last
        return EpochResult(best.steps, best.loss, best.metrics)

    def log(self) -> dict[str, Any]:
        return _to_json(self._sliding.decay)

    def events(self) -> list[Event]:
        if self._round is None:
            return []
        candidates = [each.to_json() for each in self._round.candidates]
        chosen = _to_json(self._round.chosen.decay)
        values = {"candidates": candidates, "chosen": chosen, "done": self._round.is_last}
        return [Event("decay_search", values, self._round.describe(self._job.problem.metric))]

    def state_dict(self) -> dict[str, Any]:
        return _to_json(self._sliding.decay) | {"done": self._over}

    def _is_due(self) -> bool:
        """Whether a round is due. Without neighbors left to try the search is done."""
        if self._over or (self._state.epoch + 1) % self._tune.every:
            return False
        self._over = not self._neighbors()
        return not self._over

    def _neighbors(self) -> list[Decay]:
        return neighbor_settings(self._sliding.decay, self._sliding.num_chunks, self._tune.max_share)

    def _try(self, decay: Decay, train_epoch: Callable[[], EpochResult]) -> Candidate:
        began, current = perf_counter(), self._sliding.decay
        self._sliding.decay = decay
        try:
            steps, loss, _ = train_epoch()
            metrics = self._evaluator.score()
        except DivergedError:
            if decay is current:
                raise
            steps, loss, metrics = 0, math.nan, {}
        finally:
            self._sliding.decay = current
        return Candidate(decay, steps, loss, metrics, metrics.get(self._job.problem.metric), perf_counter() - began)

    def _is_better(self, trial: Candidate, than: Candidate) -> bool:
        """What is no number is never better."""
        if trial.value is None or not math.isfinite(trial.value):
            return False
        if than.value is None or math.isnan(than.value):
            return True
        higher = self._job.problem.higher_is_better
        return trial.value > than.value if higher else trial.value < than.value

    def _state_dict(self) -> dict[str, Any]:
        """All that an epoch changes, in the computer's memory: a GPU has other use for its own."""
        state = self._state
        kept = {**state.weights(), "optimizer": state.optimizer.state_dict(), "random": random_state()}
        found: dict[str, Any] = copy_tree(kept | {"inherited": self._sliding.state_dict()}, "cpu")
        return found

    def _load_epoch_state(self, found: dict[str, Any]) -> None:
        state = self._state
        load_weights(state.model, state.head, found)
        state.optimizer.load_state_dict(copy_tree(found["optimizer"]))  # torch takes the very tensors, and changes them
        restore_random_state(found["random"])
        self._sliding.load_state_dict(found["inherited"])


def _to_json(decay: Decay) -> dict[str, Any]:
    return {"full": decay.full, "decayed": decay.decayed, "min_keep": decay.min_keep}


def _describe_decay(decay: Decay) -> str:
    return f"full={decay.full} min_keep={decay.min_keep:g}"
