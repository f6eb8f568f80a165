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
def mark(cells: Any, place: Any) -> None:
    """Puts down where each cell is found."""
    for k in range(len(cells)):
        place[cells[k]] = k


@compiled
def clear(cells: Any, place: Any) -> None:
    """Takes it back."""
    for k in range(len(cells)):
        place[cells[k]] = -1


@compiled
def draw(whole: Any, cells: Any, fanout: int, key: Any, place: Any) -> Any:
    """Draws arcs of all cells found so far: those and the new ones that they lead to, and the arrays of what was
    drawn. ``place`` says where cells are found, -1 for those that are not, and is kept up."""
    row_ptr, col, node = whole
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
        first, drawn = row_ptr[cells[k]], arcs[starts[k] : starts[k + 1]]
        if len(drawn) == degrees[k]:
            for j in range(len(drawn)):
                drawn[j] = first + j
        else:
            choose(first, degrees[k], len(drawn), mixed(key ^ (np.uint64(node[cells[k]]) * _STEP)), drawn)
        for j in range(starts[k], starts[k + 1]):
            source = col[arcs[j]]
            if place[source] < 0:
                place[source] = number
                found[number] = source
                number += 1
            columns[j] = place[source]
    return found[:number].copy(), starts, columns, arcs, degrees
