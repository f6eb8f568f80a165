"""Compiled loops of ``sampling``."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


@cached_njit
def splitmix64(state: Any) -> Any:
    """Finalizer of splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@cached_njit
def floyd_sample(first: int, degree: int, number: int, state: Any, out: Any) -> None:
    """Sample ``number`` of ``degree`` consecutive integers from ``first``, ascending (Floyd's algorithm)."""
    for k in range(number):
        last = degree - number + k
        state = state + _STEP
        offset = np.int64(((splitmix64(state) >> _HALF) * np.uint64(last + 1)) >> _HALF)
        at = k  # insertion position
        while at > 0 and out[at - 1] > first + offset:
            at -= 1
        if at > 0 and out[at - 1] == first + offset:  # a duplicate: take the last one, which is new
            out[k] = first + last
            continue
        for j in range(k, at, -1):
            out[j] = out[j - 1]
        out[at] = first + offset


@cached_njit
def mark(cells: Any, place: Any) -> None:
    """Set the index of each cell."""
    for k in range(len(cells)):
        place[cells[k]] = k


@cached_njit
def clear(cells: Any, place: Any) -> None:
    """Reset the index of each cell to -1."""
    for k in range(len(cells)):
        place[cells[k]] = -1


@cached_njit
def sample_hop(snapshot: Any, cells: Any, fanout: int, key: Any, place: Any) -> Any:
    """Sample arcs of all cells: the cells with new ones appended, and the arrays of ``SampledArcs``.

    ``place`` holds the index of each cell, -1 for others, and is updated.
    """
    row_ptr, col, node = snapshot
    count = len(cells)
    starts = np.zeros(count + 1, np.int64)
    degrees = np.empty(count, np.int64)
    for k in range(count):
        degrees[k] = row_ptr[cells[k] + 1] - row_ptr[cells[k]]
        starts[k + 1] = starts[k] + (degrees[k] if fanout < 0 or degrees[k] < fanout else fanout)
    arcs, columns = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int32)
    found = np.empty(min(len(row_ptr) - 1, count + starts[-1]), np.int32)
    found[:count] = cells
    number = count
    for k in range(count):
        first, sampled = row_ptr[cells[k]], arcs[starts[k] : starts[k + 1]]
        if len(sampled) == degrees[k]:
            for j in range(len(sampled)):
                sampled[j] = first + j
        else:
            state = splitmix64(key ^ (np.uint64(node[cells[k]]) * _STEP))
            floyd_sample(first, degrees[k], len(sampled), state, sampled)
        for j in range(starts[k], starts[k + 1]):
            source = col[arcs[j]]
            if place[source] < 0:
                place[source] = number
                found[number] = source
                number += 1
            columns[j] = place[source]
    return found[:number].copy(), starts, columns, arcs, degrees
