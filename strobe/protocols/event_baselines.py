"""Trivial methods on streams of events: EdgeBank, most recent first, counts and popularity.

Each gives a value to every pair met so far and a value to every destination; a destination that the source has met has
the value of the pair, any other its own. All read the batches before the one that is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.events import EventStream, Floats

WINDOW = 0.15
"""Share of the training time that EdgeBank with a time window remembers."""

Values = tuple[Floats, Floats]
"""Values of pairs, [P], and of destinations, [num_dst]."""


class EventHistory:
    """What a stream's batches so far say about pairs and destinations.

    Attributes:
        num_read: events read.
        pair_count, pair_last: number and time of the last of each pair's events, [P]; 0 and -inf for none.
        dst_count, dst_last: the same of each destination, [num_dst].
    """

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.num_read = 0
        self.pair_count, self.pair_last = np.zeros(len(stream.pairs)), np.full(len(stream.pairs), -np.inf)
        self.dst_count, self.dst_last = np.zeros(stream.num_dst), np.full(stream.num_dst, -np.inf)

    def advance(self, end: int) -> None:
        """Read events up to ``end``."""
        slot, dst, time = (each[self.num_read : end] for each in (self.stream.pairs.slot, *self._ends()))
        self.pair_count += np.bincount(slot, minlength=len(self.pair_count))
        self.dst_count += np.bincount(dst, minlength=len(self.dst_count))
        np.maximum.at(self.pair_last, slot, time)
        np.maximum.at(self.dst_last, dst, time)
        self.num_read = end

    def _ends(self) -> tuple[Any, Any]:
        return self.stream.dst, self.stream.time

    @property
    def last_time(self) -> float:
        """Time of the last event read."""
        return float(self.stream.time[self.num_read - 1]) if self.num_read else -np.inf

    def window_start(self) -> float:
        """Time from which events are remembered by a window of ``WINDOW`` of the training time."""
        time = self.stream.time[: self.stream.train_end]
        return self.last_time - WINDOW * float(time[-1] - time[0]) if len(time) else -np.inf

    def scores(self, first: int, end: int, values: Values) -> Floats:
        """Return the scores of all destinations for events ``first`` up to ``end``, [end - first, num_dst]."""
        pairs, result = self.stream.pairs, np.empty((end - first, self.stream.num_dst))
        met = self.pair_count > 0
        _fill_scores(self.stream.src[first:end], pairs.src_ptr, pairs.dst, met, *values, result)
        return result


def _zeros(history: EventHistory) -> Floats:
    return np.zeros(history.stream.num_dst)


def _recent_first(history: EventHistory) -> Values:
    """A pair met is above every destination not met: its time is moved behind all times of the stream."""
    span = float(np.ptp(history.stream.time)) + 1
    return history.pair_last + span, history.dst_last


def _last_meeting(history: EventHistory) -> Values:
    return history.pair_last, np.full(history.stream.num_dst, -np.inf)


def _popularity(history: EventHistory) -> Values:
    return history.dst_count[history.stream.pairs.dst], history.dst_count


def _in_window(history: EventHistory) -> Values:
    return (history.pair_last >= history.window_start()).astype(np.float64), _zeros(history)


BASELINES: Mapping[str, Callable[[EventHistory], Values]] = {
    "most-recent-first": _recent_first,
    "last-meeting": _last_meeting,
    "number-of-meetings": lambda history: (history.pair_count, _zeros(history)),
    "edgebank-window": _in_window,
    "edgebank": lambda history: (np.ones(len(history.pair_count)), _zeros(history)),
    "popularity": _popularity,
}
"""Values of pairs and destinations, by name of the method."""


def score_baseline(stream: EventStream, name: str, part: str) -> Iterator[tuple[int, Floats]]:
    """Yield the first event and the scores, [n, num_dst], of each batch of a part."""
    history = EventHistory(stream)
    for first, end in stream.batches(part):
        history.advance(first)
        yield first, history.scores(first, end, BASELINES[name](history))


@cached_njit
def _fill_scores(src: Any, src_ptr: Any, pair_dst: Any, met: Any, pair_value: Any, dst_value: Any, result: Any) -> None:
    for row in range(len(src)):
        result[row] = dst_value
        for slot in range(src_ptr[src[row]], src_ptr[src[row] + 1]):
            if met[slot]:
                result[row, pair_dst[slot]] = pair_value[slot]
