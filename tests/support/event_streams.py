"""Small random streams of events, and plain answers to what compiled kernels compute on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.protocols.events import EventStream


def random_stream(
    seed: int, num_events: int = 120, num_src: int = 7, num_dst: int = 9, batch_size: int = 8, ties: int = 3
) -> EventStream:
    """Random events; about one in ``ties`` is at the time of the event before it."""
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.integers(0, 40, num_events) * (rng.integers(0, ties, num_events) > 0))
    return EventStream(
        src=rng.integers(0, num_src, num_events) * rng.integers(0, 2, num_events),  # source 0 is in half of the events
        dst=rng.integers(0, num_dst, num_events),
        time=time.astype(np.float64),
        num_src=num_src,
        num_dst=num_dst,
        train_end=num_events // 2,
        validation_end=3 * num_events // 4,
        batch_size=batch_size,
    )


def negatives(stream: EventStream, event: int, part: tuple[int, int]) -> list[int]:
    """All destinations but those that the event's source reaches at its time, within a part."""
    first, end = part
    reached = {
        int(stream.dst[k])
        for k in range(first, end)
        if stream.src[k] == stream.src[event] and stream.time[k] == stream.time[event]
    }
    return [dst for dst in range(stream.num_dst) if dst not in reached]


def plain_rank(scores: Any, target: int, candidates: list[int]) -> float:
    """TGB's rank, from its definition."""
    optimistic = sum(1 for dst in candidates if scores[dst] > scores[target])
    pessimistic = sum(1 for dst in candidates if scores[dst] >= scores[target])
    return 1 + (optimistic + pessimistic) / 2


def with_changed_tail(stream: EventStream, first: int, seed: int = 0) -> EventStream:
    """The same stream up to event ``first``; later events have other ends and later times."""
    rng = np.random.default_rng(seed)
    src, dst, time = stream.src.copy(), stream.dst.copy(), stream.time.copy()
    src[first:] = rng.integers(0, stream.num_src, len(src) - first)
    dst[first:] = rng.integers(0, stream.num_dst, len(dst) - first)
    time[first:] += np.arange(1, len(time) - first + 1)
    return EventStream(
        src=src,
        dst=dst,
        time=time,
        num_src=stream.num_src,
        num_dst=stream.num_dst,
        train_end=stream.train_end,
        validation_end=stream.validation_end,
        batch_size=stream.batch_size,
    )
