"""Loops that draw arcs, for ``sampling``: arrays alone, compiled when they are first called."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.compiled import compiled

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


@compiled
def mixed(state: Any) -> Any:
    """A number that looks like chance, from a state (the finaliser of splitmix64)."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@compiled
def choose(first: int, degree: int, number: int, state: Any, out: Any) -> None:
    """So many of ``degree`` numbers from ``first`` on, ascending (Floyd's way: as many draws as are wanted)."""
    for k in range(number):
        last = degree - number + k
        state = state + _STEP
        drawn = np.int64(((mixed(state) >> _HALF) * np.uint64(last + 1)) >> _HALF)
        at = k  # where it goes, so that the list stays in order
        while at > 0 and out[at - 1] > first + drawn:
            at -= 1
        if at > 0 and out[at - 1] == first + drawn:  # it is there already: the last one cannot be
            out[k] = first + last
            continue
        for j in range(k, at, -1):
            out[j] = out[j - 1]
        out[at] = first + drawn


@compiled
def draw(whole: Any, targets: Any, fanouts: Any, key: Any, place: Any) -> Any:
    """The arrays of a sample; ``place`` has -1 for every cell, before and after."""
    row_ptr, col, node = whole
    count = len(targets)
    found = targets.copy()
    for k in range(count):
        place[targets[k]] = k
    starts = np.zeros(1, np.int64)
    arcs = np.empty(0, np.int64)
    ends = np.empty(len(fanouts) + 1, np.int64)  # cells found up to each distance
    ends[0] = count
    begin, filled = 0, 0
    for hop in range(len(fanouts)):
        end, limit = count, fanouts[hop]
        more = np.empty(end + 1, np.int64)
        more[: begin + 1] = starts[: begin + 1]
        for k in range(begin, end):
            degree = row_ptr[found[k] + 1] - row_ptr[found[k]]
            more[k + 1] = more[k] + (degree if limit < 0 or degree < limit else limit)
        starts = more
        grown = np.empty(starts[end], np.int64)
        grown[:filled] = arcs[:filled]
        arcs = grown
        longer = np.empty(min(len(row_ptr) - 1, count + starts[end] - filled), np.int32)
        longer[:count] = found[:count]
        found = longer
        for k in range(begin, end):
            first, number = row_ptr[found[k]], starts[k + 1] - starts[k]
            degree = row_ptr[found[k] + 1] - first
            drawn = arcs[starts[k] : starts[k + 1]]
            if number == degree:
                for j in range(number):
                    drawn[j] = first + j
            else:
                state = mixed(key ^ (np.uint64(node[found[k]]) * _STEP))
                choose(first, degree, number, state, drawn)
            for j in range(number):
                source = col[drawn[j]]
                if place[source] < 0:
                    place[source] = count
                    found[count] = source
                    count += 1
        begin, filled = end, starts[end]
        ends[hop + 1] = count
    row_ptr_out = np.full(count + 1, filled, np.int64)
    row_ptr_out[: begin + 1] = starts[: begin + 1]
    columns = np.empty(filled, np.int32)
    for j in range(filled):
        columns[j] = place[col[arcs[j]]]
    degrees = np.empty(count, np.int64)
    distance = np.empty(count, np.uint8)
    hop = 0
    for k in range(count):
        while k >= ends[hop]:
            hop += 1
        distance[k] = hop
        degrees[k] = row_ptr[found[k] + 1] - row_ptr[found[k]]
        place[found[k]] = -1
    return found[:count], distance, row_ptr_out, columns, arcs, degrees
