"""DyGLib's parts of a stream of events, and the negatives of their batches.

Read from the authors' code (yule-BUAA/DyGLib, ``utils/DataLoader.py`` and ``utils/utils.py``). Two things are not
reproduced: the ids of nodes, which decide what the same random numbers mean, and the order in which Python lists a set
of pairs, from which historical and inductive negatives are drawn; here it is that of ids.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strobe.graph import DynamicGraph
from strobe.protocols.events import Floats, Ids
from strobe.protocols.timed_pairs import TimedPairs, snapshots_of_events
from strobe.tasks.metrics import BoolArray

BATCH_SIZE = 200
STRATEGIES = ("random", "historical", "inductive")
SETTINGS = ("all nodes", "new nodes")
"""Events of a part that are scored: all, or those with a node that no training event has."""
SCORED = ("validation", "test")
NEW_NODES_SEED = 2020
NEW_NODES_SHARE = 0.1
_NEGATIVES_SEED = {(part, setting): 2 * k + j for k, part in enumerate(SCORED) for j, setting in enumerate(SETTINGS)}


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitEvents:
    """Events in order of time, split at quantiles of time.

    Attributes:
        src, dst: node ids from 0 on, [E].
        time: of each event, [E].
        ends: shares of the events at whose times training and validation end.
    """

    src: Ids
    dst: Ids
    time: Floats
    ends: tuple[float, float] = (0.7, 0.85)

    @classmethod
    def of_events(cls, src: Ids, dst: Ids, time: Floats) -> SplitEvents:
        """Number nodes in the order of their ids."""
        _, number = np.unique(np.concatenate([src, dst]), return_inverse=True)
        return cls(src=number[: len(src)], dst=number[len(src) :], time=time)

    @property
    def num_nodes(self) -> int:
        return int(max(self.src.max(), self.dst.max())) + 1

    @cached_property
    def snapshot(self) -> Ids:
        """The number of each event's time among all times, [E]."""
        return np.unique(self.time, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def end_times(self) -> tuple[float, float]:
        """The last times of the training and of the validation part."""
        train, validation = np.quantile(self.time, self.ends)
        return float(train), float(validation)

    @cached_property
    def end_snapshots(self) -> tuple[int, int]:
        """The last snapshots of the training and of the validation part."""
        train, validation = (int(self.snapshot[self.time <= end].max()) for end in self.end_times)
        return train, validation

    @cached_property
    def new_nodes(self) -> Ids:
        """Nodes whose events are left out of training: a tenth of all, of those that later parts have."""
        later = self.time > self.end_times[0]
        nodes = np.union1d(self.src[later], self.dst[later]).tolist()
        return np.array(random.Random(NEW_NODES_SEED).sample(nodes, int(NEW_NODES_SHARE * self.num_nodes)), np.int64)

    @cached_property
    def is_training(self) -> BoolArray:
        """Events that models are trained on, [E]."""
        hidden = np.isin(self.src, self.new_nodes) | np.isin(self.dst, self.new_nodes)
        return (self.time <= self.end_times[0]) & ~hidden

    def events(self, part: str, setting: str) -> Ids:
        """The numbers of the events of a part that are scored."""
        train, validation = self.end_times
        is_test = self.time > validation
        chosen = is_test if part == "test" else (self.time > train) & ~is_test
        if setting == "new nodes":
            known = np.union1d(self.src[self.is_training], self.dst[self.is_training])
            chosen = chosen & ~(np.isin(self.src, known) & np.isin(self.dst, known))
        return np.flatnonzero(chosen)

    def graph(self, *, training_only: bool) -> DynamicGraph:
        """The snapshots of all events, or without those of nodes that are held out from the training part."""
        kept = self.is_training | (self.time > self.end_times[0]) if training_only else np.ones(len(self.src), bool)
        ends = self.src[kept], self.dst[kept], self.snapshot[kept]
        return snapshots_of_events(*ends, self.num_nodes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Events that are scored together.

    Attributes:
        events: their numbers, [n].
        pairs: the events, then as many negatives.
    """

    events: Ids
    pairs: TimedPairs


def iter_batches(events: SplitEvents, part: str, setting: str, strategy: str) -> Iterator[Batch]:
    """Yield the batches of a part with their negatives; equal in every call."""
    scored = events.events(part, setting)
    pool = scored if setting == "new nodes" else np.arange(len(events.src))
    last_observed = float(events.time[events.is_training][-1]) if part == "validation" else events.end_times[1]
    draw = _NegativeDraw(
        events.src[pool],
        events.dst[pool],
        events.time[pool],
        last_observed=last_observed,
        strategy=strategy,
        seed=_NEGATIVES_SEED[part, setting],
    )
    for start in range(0, len(scored), BATCH_SIZE):
        here = scored[start : start + BATCH_SIZE]
        src, dst = draw(events.src[here], events.dst[here], events.time[here])
        yield Batch(
            events=here,
            pairs=TimedPairs(
                src=np.concatenate([events.src[here], src]),
                dst=np.concatenate([events.dst[here], dst]),
                target=np.tile(events.snapshot[here], 2),
                positive=np.repeat([True, False], len(here)),
            ),
        )


class _NegativeDraw:
    """Draws as many negatives as a batch has events.

    ``random``: the events' sources with uniform destinations. ``historical``: distinct pairs that had an event up to
    the batch's first time, but none from there to its last. ``inductive``: those of them without an event up to
    ``last_observed``. Where there are fewer, uniform pairs of a source and a destination that the batch has not.
    """

    def __init__(self, src: Ids, dst: Ids, time: Floats, *, last_observed: float, strategy: str, seed: int) -> None:
        self._width = int(max(src.max(), dst.max())) + 1
        self._keys, self._time = src * self._width + dst, time
        self._sources, self._destinations = np.unique(src), np.unique(dst)
        self._last_observed, self._strategy = last_observed, strategy
        self._rng = np.random.RandomState(seed)
        self._past: dict[tuple[float, float], Ids] = {}

    def __call__(self, src: Ids, dst: Ids, time: Floats) -> tuple[Ids, Ids]:
        """Sources and destinations of the negatives of a batch."""
        if self._strategy == "random":
            self._rng.randint(0, len(self._sources), len(src))  # the authors draw sources, too, and drop them
            return src, self._destinations[self._rng.randint(0, len(self._destinations), len(src))]
        keys = self._past_pairs(float(time[0]), float(time[-1]))
        missing = len(src) - len(keys)
        if missing > 0:
            keys = np.concatenate([self._other_pairs(src, dst, missing), keys])
        else:
            keys = keys[self._rng.choice(len(keys), len(src), replace=False)]
        sources, destinations = np.divmod(keys, self._width)
        return sources, destinations

    def _past_pairs(self, start: float, end: float) -> Ids:
        """Keys of the historical or inductive pairs of a batch with these times."""
        if (start, end) not in self._past:
            now = (self._time >= start) & (self._time <= end)
            keys = np.setdiff1d(self._keys[self._time <= start], self._keys[now])
            if self._strategy == "inductive":
                keys = np.setdiff1d(keys, self._keys[self._time <= self._last_observed])
            self._past[start, end] = keys
        return self._past[start, end]

    def _other_pairs(self, src: Ids, dst: Ids, number: int) -> Ids:
        """Keys of uniform pairs without those of the batch."""
        keys = np.delete(self._every, np.searchsorted(self._every, np.unique(src * self._width + dst)))
        return keys[self._rng.choice(len(keys), number, replace=len(keys) < number)]

    @cached_property
    def _every(self) -> Ids:
        """Ascending keys of all pairs of a source and a destination, those of batches among them."""
        keys: Ids = (self._sources[:, None] * self._width + self._destinations).ravel()
        return keys
