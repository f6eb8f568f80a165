"""Features of (source, destination) pairs at the time of an event, from the batches of a stream before it.

They say when and how often the pair met, how the source behaves, how busy the destination is, and whether sources that
share destinations with this source went to the candidate. Times are in units of the mean duration of a batch, so that
nothing depends on a data set's clock. The cost of an event is proportional to its candidates; nothing is dense in
pairs: 11 numbers per distinct pair, 75 per source and 76 per destination.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.errors import OptionError
from strobe.protocols.events import EventStream, Floats, Ids
from strobe.protocols.pair_feature_kernels import describe, sample_candidates
from strobe.protocols.pair_state import NUM_SCALES, advance, make_dst_state, make_pair_state, make_src_state

_SCALES = tuple(f"scale {k}" for k in range(NUM_SCALES))

PAIR_FEATURES: tuple[str, ...] = (
    # of the pair: 0, or the least for logarithms of sums, if it never met
    "met",
    "log time since last meeting",
    "log meetings",
    "1 / recency rank among the source's destinations",
    "log length of the source's current run",
    "log mean time between meetings",
    "log time between the last two meetings",
    "log time since first meeting",
    "log events of the destination since",
    "1 / recency rank among the destination's sources",
    "log times the pair followed the source's last destination",
    "source's last but one event",
    "log runs",
    "log time from last meeting to the destination's last event",
    *(f"log decayed meetings, {scale}" for scale in _SCALES),
    # of the destination
    "known destination",
    "log time since the destination's last event",
    "log events",
    "log sources",
    "sources per event",
    "rate of returning sources",
    *(f"log decayed events, {scale}" for scale in _SCALES),
    # walks source - destination - other source - candidate
    "reached by a walk",
    "log probability of walks",
    "log decayed walks",
    "log walks through the source's last destination",
    "log walks forward in time",
    "log probability of walks per source of the candidate",
    "log time since the last step of a walk",
)
"""Names of the features of a pair, in order."""

SRC_FEATURES: tuple[str, ...] = (
    "known source",
    "log events",
    "log time since last event",
    "log destinations",
    "rate of new destinations",
    "rate of changes of destination",
    "log length of current run",
    "log mean time between events",
    "log time since first event",
    "log time since the last event read",
    *(f"log decayed events, {scale}" for scale in _SCALES),
)
"""Names of the features of a source, in order."""

SCALES = (0.25, 2.0, 16.0, 128.0)
"""Time constants of decayed sums, in batches."""

_UNIT = 1 / 64
"""Unit of logarithms of times, in batches."""

Features = npt.NDArray[np.float32]


class PairExamples(NamedTuple):
    """Events with candidates and their features.

    Attributes:
        candidates: destinations, [n, C]: all in order, or a sample that begins with the true one.
        log_weight: logarithm of the number of destinations that each candidate stands for, [n, C].
        pair: features of pairs, [n, C, len(PAIR_FEATURES)].
        src: features of sources, [n, len(SRC_FEATURES)].
    """

    candidates: Ids
    log_weight: Features
    pair: Features
    src: Features

    def take(self, rows: Ids) -> PairExamples:
        """Return some of the events."""
        return PairExamples(self.candidates[rows], self.log_weight[rows], self.pair[rows], self.src[rows])


class PairFeatures:
    """Features of a stream's events, batch by batch.

    An event is described by the events before its batch; ``describe`` and ``sample`` read these first. Batches are
    described in order of time.
    """

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self.num_read = 0
        self._tau = np.array(SCALES) * stream.batch_duration
        self._unit = _UNIT * stream.batch_duration
        self._state = (
            make_pair_state(len(stream.pairs)),
            make_src_state(stream.num_src),
            make_dst_state(stream.num_dst),
        )

    def advance(self, end: int) -> None:
        """Read the events up to ``end``."""
        if end < self.num_read:
            raise OptionError(f"events up to {self.num_read} were read: the memory has no way back to {end}")
        advance(self._events(), self.num_read, end, self._state, self._tau)
        self.num_read = end

    def describe(self, first: int, end: int) -> PairExamples:
        """Describe all destinations for the events of one batch, or a part of it."""
        candidates = np.tile(np.arange(self._stream.num_dst), (end - first, 1))
        self.advance(self._batch_start(first, end))
        return PairExamples(candidates, np.zeros(candidates.shape, np.float32), *self._describe(first, end, candidates))

    def sample(self, first: int, end: int, num_candidates: int, seed: int) -> PairExamples:
        """Describe a sample of the destinations for the events of one batch, or a part of it.

        The candidates are the true destination, those that the source met last, those with the latest events, with the
        latest new sources, and with the most walks, each standing for itself; the others are drawn uniformly and stand
        for the rest. A softmax over ``score + log_weight`` estimates the softmax over all destinations.

        Args:
            first, end: the events.
            num_candidates: candidates of each event.
            seed: of the random ones.
        """
        self.advance(self._batch_start(first, end))
        num, pair_dst = min(num_candidates, self._stream.num_dst), self._stream.pairs.dst
        candidates = np.empty((end - first, num), np.int64)
        log_weight = np.empty((end - first, num), np.float32)
        read = first, self.num_read
        sample_candidates(self._events(), *read, pair_dst, self._state, self._tau, seed, candidates, log_weight)
        return PairExamples(candidates, log_weight, *self._describe(first, end, candidates))

    def _describe(self, first: int, end: int, candidates: Ids) -> tuple[Features, Features]:
        stream, shape = self._stream, candidates.shape
        pair = np.empty((*shape, len(PAIR_FEATURES)), np.float32)
        src = np.empty((end - first, len(SRC_FEATURES)), np.float32)
        last_time = float(stream.time[self.num_read - 1]) if self.num_read else float(stream.time[0])
        ends = stream.src[first:end], stream.time[first:end]
        pairs = stream.pairs.src_ptr, stream.pairs.dst
        describe(*ends, last_time, candidates, pairs, self._state, self._tau, self._unit, pair, src)
        return pair, src

    def _batch_start(self, first: int, end: int) -> int:
        ptr = self._stream.batch_ptr
        batch = int(np.searchsorted(ptr, first, side="right")) - 1
        if first >= end or end > ptr[batch + 1]:
            raise OptionError(f"events {first} to {end} are not of one batch")
        return int(ptr[batch])

    def _events(self) -> tuple[Ids, Ids, Floats, Ids]:
        stream = self._stream
        return stream.src, stream.dst, stream.time, stream.pairs.slot
