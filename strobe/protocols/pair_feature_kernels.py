"""Compiled loops of ``pair_features``: walks, features of candidates and sources from the state of a stream, and
candidates of a sampled softmax, hard ones that stand for themselves and uniform ones for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.pair_state import (
    DST_FIXED,
    DST_MEMORY,
    NUM_SCALES,
    RUN_MEMORY,
    SRC_MEMORY,
    log1p,
)

_WALK_START, _WALK_END = 8, 16
"""Destinations of the source that walks pass through, and destinations of the other sources that they reach."""


@cached_njit
def walk(src: int, time: float, pair_dst: Any, state: Any, tau: Any, walks: Any, reached: Any) -> int:
    """Walk from the source's last destinations to their last other sources and on to their last destinations.

    Adds to walks, [destinations, 5]: probability; sum decayed by the third scale; number through the source's last
    destination; forward in time (the other source went there after the shared destination), nearest steps most; time of
    the last step. Returns the number of destinations reached.
    """
    p, s, d = state
    num_reached = 0
    for k in range(_WALK_START):
        if s.recent[src, k] < 0:
            break
        shared = pair_dst[s.recent[src, k]]
        weight = 1.0 / (1 + k)
        num_src = 0
        while num_src < DST_MEMORY and d.recent[shared, num_src] >= 0:
            num_src += 1
        for j in range(num_src):
            other = d.recent[shared, j]
            if other == src:
                continue
            at, num = _WALK_END, 0
            while num < _WALK_END and s.recent[other, num] >= 0:
                if pair_dst[s.recent[other, num]] == shared:
                    at = num
                num += 1
            for step in range(num):
                slot = s.recent[other, step]
                dst = pair_dst[slot]
                if dst == shared:
                    continue
                if walks[dst, 0] == 0:
                    reached[num_reached] = dst
                    num_reached += 1
                walks[dst, 0] += weight / num_src / num
                walks[dst, 1] += weight * np.exp(-(time - p.last[slot]) / tau[2])
                walks[dst, 2] += k == 0
                if step < at:
                    walks[dst, 3] += weight / (1 + at - step)
                walks[dst, 4] = max(walks[dst, 4], p.last[slot])
    return num_reached


NEVER = 12.0
"""Logarithm of the time since something that has not happened."""
FLOOR = -4.0
"""Least logarithm of a decayed sum."""

_PAIR, _DST, _WALK = 14 + NUM_SCALES, 2 + DST_FIXED + NUM_SCALES, 7
NUM_PAIR_FEATURES = _PAIR + _DST + _WALK
NUM_SRC_FEATURES = 10 + NUM_SCALES


@cached_njit
def describe(
    src: Any,
    time: Any,
    last_time: float,
    candidates: Any,
    pairs: Any,
    state: Any,
    tau: Any,
    unit: float,
    pair_out: Any,
    src_out: Any,
) -> None:
    """Write the features of candidates, [n, C, features], and of sources, [n, features]."""
    src_ptr, pair_dst = pairs
    p, s, d = state
    num_dst = len(d.count)
    slot_of = np.full(num_dst, -1, np.int64)
    rank = np.zeros(num_dst)
    follows = np.zeros(num_dst)
    walks = np.zeros((num_dst, 5))
    reached = np.empty(num_dst, np.int64)
    for row in range(len(src)):
        x = src[row]
        for slot in range(src_ptr[x], src_ptr[x + 1]):
            if p.count[slot] > 0:
                slot_of[pair_dst[slot]] = slot
                rank[pair_dst[slot]] = SRC_MEMORY
        for k in range(SRC_MEMORY):
            if s.recent[x, k] < 0:
                break
            rank[pair_dst[s.recent[x, k]]] = k
        _count_followers(x, s, follows)
        num_reached = walk(x, time[row], pair_dst, state, tau, walks, reached)
        for column in range(candidates.shape[1]):
            dst = candidates[row, column]
            out = pair_out[row, column]
            _describe_pair(x, dst, slot_of[dst], rank[dst], follows[dst], time[row], state, tau, unit, out)
            _describe_dst(dst, time[row], d, tau, unit, out[_PAIR:])
            _describe_walks(walks[dst], d.num_src[dst], time[row], unit, out[_PAIR + _DST :])
        _describe_src(x, time[row], last_time, s, tau, unit, src_out[row])
        for slot in range(src_ptr[x], src_ptr[x + 1]):
            slot_of[pair_dst[slot]] = -1
            follows[pair_dst[slot]] = 0
        for k in range(num_reached):
            walks[reached[k]] = 0


@cached_njit
def _count_followers(src: int, s: Any, follows: Any) -> None:
    """Count the destinations that followed the source's last one, among its last events."""
    count = int(s.count[src])
    if count == 0:
        return
    last = s.ring[src, (count - 1) % RUN_MEMORY]
    for event in range(max(count - RUN_MEMORY, 0), count - 1):
        if s.ring[src, event % RUN_MEMORY] == last:
            follows[s.ring[src, (event + 1) % RUN_MEMORY]] += 1


@cached_njit
def _describe_pair(
    src: int,
    dst: int,
    slot: int,
    rank: float,
    follows: float,
    time: float,
    state: Any,
    tau: Any,
    unit: float,
    out: Any,
) -> None:
    p, s, d = state
    if slot < 0:
        out[: _PAIR - NUM_SCALES] = 0
        out[_PAIR - NUM_SCALES : _PAIR] = FLOOR
        return
    elapsed, count = time - p.last[slot], s.count[src]
    since = count - 1 - p.src_count[slot]
    place = 0
    while place < DST_MEMORY and d.recent[dst, place] != src:
        place += 1
    out[0] = 1
    out[1] = log1p(elapsed / unit)
    out[2] = log1p(p.count[slot])
    out[3] = 1 / (1 + rank)
    out[4] = log1p(s.run[src]) if since == 0 else 0.0
    out[5] = log1p((p.last[slot] - p.first[slot]) / max(p.count[slot] - 1, 1) / unit)
    out[6] = log1p(p.gap[slot] / unit)
    out[7] = log1p((time - p.first[slot]) / unit)
    out[8] = log1p(d.count[dst] - p.dst_count[slot])
    out[9] = 1.0 / (1 + place)
    out[10] = log1p(follows)
    out[11] = count > 1 and s.ring[src, (int(count) - 2) % RUN_MEMORY] == dst
    out[12] = log1p(p.runs[slot])
    out[13] = log1p((d.last[dst] - p.last[slot]) / unit)
    for k in range(NUM_SCALES):
        out[_PAIR - NUM_SCALES + k] = max(p.log_sum[slot, k] - elapsed / tau[k], FLOOR)


@cached_njit
def _describe_dst(dst: int, time: float, d: Any, tau: Any, unit: float, out: Any) -> None:
    if d.count[dst] == 0:
        out[:_DST] = 0
        out[1] = NEVER
        out[_DST - NUM_SCALES : _DST] = FLOOR
        return
    elapsed = time - d.last[dst]
    out[0] = 1
    out[1] = log1p(elapsed / unit)
    for k in range(DST_FIXED):
        out[2 + k] = d.fixed[dst, k]
    for k in range(NUM_SCALES):
        out[_DST - NUM_SCALES + k] = max(d.log_sum[dst, k] - elapsed / tau[k], FLOOR)


@cached_njit
def _describe_walks(walks: Any, num_src: float, time: float, unit: float, out: Any) -> None:
    if walks[0] == 0:
        out[: _WALK - 1] = 0
        out[_WALK - 1] = NEVER
        return
    out[0] = 1
    out[1] = log1p(1000 * walks[0])
    out[2] = log1p(10 * walks[1])
    out[3] = log1p(walks[2])
    out[4] = log1p(10 * walks[3])
    out[5] = log1p(1000 * walks[0] / (1 + num_src))
    out[6] = log1p((time - walks[4]) / unit)


@cached_njit
def _describe_src(src: int, time: float, last_time: float, s: Any, tau: Any, unit: float, out: Any) -> None:
    count = s.count[src]
    out[9] = log1p((time - last_time) / unit)
    if count == 0:
        out[:9] = 0
        out[2] = NEVER
        out[4] = 1
        out[10:] = FLOOR
        return
    elapsed = time - s.last[src]
    out[0] = 1
    out[1] = log1p(count)
    out[2] = log1p(elapsed / unit)
    out[3] = log1p(s.num_dst[src])
    out[4] = s.new_rate[src]
    out[5] = s.change_rate[src]
    out[6] = log1p(s.run[src])
    out[7] = log1p((s.last[src] - s.first[src]) / max(count - 1, 1) / unit)
    out[8] = log1p((time - s.first[src]) / unit)
    for k in range(NUM_SCALES):
        out[10 + k] = max(s.log_sum[src, k] - elapsed / tau[k], FLOOR)


_FROM_RECENT, _FROM_BUSY, _FROM_WALKS, _FROM_NEW = 12, 8, 8, 6
"""Candidates of a sample that stand for themselves."""
_UNIFORM = 0.25
"""Least share of a sample that is drawn uniformly, unless the sample has all destinations."""
_LOOK_BACK = 400
"""Events in which busy destinations and new sources are looked for."""


@cached_njit
def sample_candidates(
    events: Any,
    first: int,
    num_read: int,
    pair_dst: Any,
    state: Any,
    tau: Any,
    seed: int,
    candidates: Any,
    log_weight: Any,
) -> None:
    """Choose candidates of events from ``first`` on, the true one first, and write what each stands for."""
    p, s, d = state
    num_dst = len(d.count)
    walks = np.zeros((num_dst, 5))
    reached = np.empty(num_dst, np.int64)
    chosen = np.full(num_dst, -1, np.int64)  # the row that chose a destination last
    size = candidates.shape[1]
    room = size if size == num_dst else size - int(np.ceil(_UNIFORM * size))
    for row in range(len(candidates)):
        event = first + row
        src, out = events[0][event], candidates[row]
        num = _choose(events[1][event], row, 0, size, chosen, out)
        limit = min(num + _FROM_RECENT, room)
        for k in range(SRC_MEMORY):
            if s.recent[src, k] < 0:
                break
            num = _choose(pair_dst[s.recent[src, k]], row, num, limit, chosen, out)
        num_reached = walk(src, events[2][event], pair_dst, state, tau, walks, reached)
        num = _choose_walks(walks, reached[:num_reached], row, num, min(num + _FROM_WALKS, room), chosen, out)
        limit = min(num + _FROM_BUSY, room)
        for k in range(num_read - 1, max(num_read - 1 - _LOOK_BACK, -1), -1):
            num = _choose(events[1][k], row, num, limit, chosen, out)
        limit = min(num + _FROM_NEW, room)
        for k in range(num_read - 1, max(num_read - 1 - _LOOK_BACK, -1), -1):
            if p.first[events[3][k]] == events[2][k]:
                num = _choose(events[1][k], row, num, limit, chosen, out)
        _fill_uniformly(seed, event, row, num, chosen, out, log_weight[row])
        for k in range(num_reached):
            walks[reached[k]] = 0


@cached_njit
def _choose(dst: Any, row: int, num: int, limit: int, chosen: Any, out: Any) -> int:
    """Append a destination if it is not chosen yet and there is room; returns the number of chosen ones."""
    if chosen[dst] == row or num >= limit:
        return num
    chosen[dst] = row
    out[num] = dst
    return num + 1


@cached_njit
def _choose_walks(walks: Any, reached: Any, row: int, num: int, limit: int, chosen: Any, out: Any) -> int:
    """Append the destinations with the most walks."""
    order = np.argsort(-walks[reached, 0])
    for k in order:
        num = _choose(reached[k], row, num, limit, chosen, out)
    return num


@cached_njit
def _fill_uniformly(seed: int, event: int, row: int, num: int, chosen: Any, out: Any, log_weight: Any) -> None:
    """Fill the row with other destinations, drawn uniformly without replacement."""
    log_weight[:num] = 0
    if num < len(out):
        log_weight[num:] = np.log((len(chosen) - num) / (len(out) - num))
    draw = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(event) * np.uint64(0xD1B54A32D192ED03)
    while num < len(out):
        draw += np.uint64(0x9E3779B97F4A7C15)
        mixed = (draw ^ (draw >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        num = _choose(np.int64(mixed % np.uint64(len(chosen))), row, num, len(out), chosen, out)
