"""State of pairs, sources and destinations of a stream of events, and its update by an event: compiled loops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from strobe.ops.runtime.njit import cached_njit

NUM_SCALES = 4
SRC_MEMORY = 32
"""Last distinct destinations of a source that are stored in order."""
DST_MEMORY = 64
"""Last distinct sources of a destination that are stored in order."""
RUN_MEMORY = 32
"""Last events of a source that are stored."""

_RATE = 0.8  # factor of moving rates of a source, per event
_RETURN = 0.9  # factor of the rate of returning sources, per event of the destination

DST_FIXED = 4
"""Features of a destination that change only with its events."""


class PairState(NamedTuple):
    """State of every pair, [P], or [P, scales]."""

    count: Any
    first: Any
    last: Any
    gap: Any  # time between the last two meetings
    runs: Any  # runs of consecutive events of the source with this destination
    src_count: Any  # events of the source before the pair's last
    dst_count: Any  # events of the destination up to the pair's last
    log_sum: Any  # logarithms of decayed sums after the pair's last event


class SrcState(NamedTuple):
    """State of every source."""

    count: Any
    first: Any
    last: Any
    num_dst: Any
    new_rate: Any
    change_rate: Any
    run: Any  # length of the current run
    log_sum: Any
    recent: Any  # pairs, the last met first, -1 for none, [sources, SRC_MEMORY]
    ring: Any  # destination of event k at k % RUN_MEMORY


class DstState(NamedTuple):
    """State of every destination."""

    count: Any
    last: Any
    num_src: Any
    return_rate: Any
    log_sum: Any
    fixed: Any  # [destinations, DST_FIXED]
    recent: Any  # sources, the last met first, -1 for none, [destinations, DST_MEMORY]


def make_pair_state(num: int) -> PairState:
    """Return the state before the first event."""
    zeros = {name: np.zeros(num) for name in PairState._fields}
    return PairState(**zeros | {"log_sum": np.full((num, NUM_SCALES), -np.inf)})


def make_src_state(num: int) -> SrcState:
    """Return the state before the first event."""
    zeros = {name: np.zeros(num) for name in SrcState._fields}
    recent, ring = (np.full((num, size), -1, np.int64) for size in (SRC_MEMORY, RUN_MEMORY))
    return SrcState(**zeros | {"log_sum": np.full((num, NUM_SCALES), -np.inf), "recent": recent, "ring": ring})


def make_dst_state(num: int) -> DstState:
    """Return the state before the first event."""
    return DstState(
        count=np.zeros(num),
        last=np.zeros(num),
        num_src=np.zeros(num),
        return_rate=np.zeros(num),
        log_sum=np.full((num, NUM_SCALES), -np.inf),
        fixed=np.zeros((num, DST_FIXED)),
        recent=np.full((num, DST_MEMORY), -1, np.int64),
    )


@cached_njit
def advance(events: Any, start: int, end: int, state: Any, tau: Any) -> None:
    """Read events ``start`` up to ``end``."""
    for event in range(start, end):
        _read_event(events[0][event], events[1][event], events[2][event], events[3][event], state, tau)


@cached_njit
def _read_event(src: int, dst: int, time: float, slot: int, state: Any, tau: Any) -> None:
    p, s, d = state
    is_new, no_history = p.count[slot] == 0, s.count[src] == 0
    changes = no_history or s.recent[src, 0] != slot
    for k in range(NUM_SCALES):
        p.log_sum[slot, k] = _with_event(p.log_sum[slot, k], time - p.last[slot], tau[k])
        s.log_sum[src, k] = _with_event(s.log_sum[src, k], time - s.last[src], tau[k])
        d.log_sum[dst, k] = _with_event(d.log_sum[dst, k], time - d.last[dst], tau[k])
    # the source
    if no_history:
        s.first[src] = time
        s.new_rate[src] = 1.0
    else:
        s.new_rate[src] = _RATE * s.new_rate[src] + (1 - _RATE) * is_new
        s.change_rate[src] = _RATE * s.change_rate[src] + (1 - _RATE) * changes
    s.run[src] = 1 if changes else s.run[src] + 1
    s.num_dst[src] += is_new
    s.last[src] = time
    s.ring[src, int(s.count[src]) % RUN_MEMORY] = dst
    # the pair
    p.src_count[slot] = s.count[src]
    p.runs[slot] += changes
    if is_new:
        p.first[slot] = time
    else:
        p.gap[slot] = time - p.last[slot]
    p.last[slot] = time
    p.count[slot] += 1
    s.count[src] += 1
    # the destination
    d.num_src[dst] += is_new
    d.return_rate[dst] = _RETURN * d.return_rate[dst] + (1 - _RETURN) * (not is_new)
    d.last[dst] = time
    d.count[dst] += 1
    p.dst_count[slot] = d.count[dst]
    fixed = d.fixed[dst]
    fixed[0] = log1p(d.count[dst])
    fixed[1] = log1p(d.num_src[dst])
    fixed[2] = d.num_src[dst] / d.count[dst]
    fixed[3] = d.return_rate[dst]
    _move_to_front(s.recent[src], slot)
    _move_to_front(d.recent[dst], src)


@cached_njit
def log1p(value: float) -> float:
    """Logarithm of 1 + value, a few times faster than numpy's, which is exact where this needs no more digits."""
    return np.log(1.0 + value)  # type: ignore[no-any-return]


@cached_njit
def _with_event(log_sum: float, elapsed: float, tau: float) -> float:
    """Logarithm of a decayed sum with one more event; the sum of nothing is -inf."""
    return np.log(np.exp(log_sum - elapsed / tau) + 1.0)  # type: ignore[no-any-return]


@cached_njit
def _move_to_front(row: Any, value: int) -> None:
    """Put a value first; the values before it move back by one, and the last is dropped if it was not there."""
    at = 0
    while at < len(row) - 1 and row[at] != value and row[at] >= 0:
        at += 1
    while at > 0:
        row[at] = row[at - 1]
        at -= 1
    row[0] = value
