"""Walks source - destination - other source - destination, along the latest events: compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.pair_state import DST_MEMORY

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
