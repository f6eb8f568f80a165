"""Candidates of events for a sampled softmax: hard ones that stand for themselves, and uniform ones for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.pair_state import SRC_MEMORY
from strobe.protocols.pair_walks import walk

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
