"""Multi-hop neighbor sampling: at most ``fanouts[k]`` incoming arcs per cell at hop k."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray, readonly_view

ALL_NEIGHBORS = -1
"""Fanout without a limit."""

_ALL_BITS = (1 << 64) - 1
_HOP_STEP = 0xD1B54A32D192ED03  # added to the key per hop

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)

_thread_local = threading.local()


@dataclass(frozen=True, eq=False)
class SampledArcs:
    """Sampled arcs of the first cells of a sample, by rows, in the order of the snapshot."""

    row_ptr: IntArray  # [r + 1]
    col: IntArray  # [a] into the cells of the sample
    arc: IntArray  # [a] index among the arcs of the snapshot
    degree: IntArray  # [r] in-degree of each cell in the snapshot

    @cached_property
    def reader(self) -> IntArray:
        """Reading cell of each arc."""
        return np.repeat(np.arange(len(self.degree)), np.diff(self.row_ptr))

    @cached_property
    def scale(self) -> FloatArray | None:
        """Degree over sampled arcs, per arc; None if all arcs were sampled."""
        count = np.diff(self.row_ptr)
        if np.array_equal(count, self.degree):
            return None
        scale: FloatArray = (self.degree[self.reader] / count[self.reader]).astype(np.float64)
        return scale


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled cells of a snapshot, targets first: ``hops[j]`` are arcs of the first ``sizes[j]`` cells and lead to the
    first ``sizes[j + 1]``."""

    position: IntArray  # [c] position of each cell in its snapshot
    sizes: tuple[int, ...]
    hops: tuple[SampledArcs, ...]

    @property
    def num_arcs(self) -> int:
        return sum(len(arcs.arc) for arcs in self.hops)


def sample_neighbors(
    row_ptr: IntArray, col: IntArray, nodes: IntArray, targets: IntArray, fanouts: Sequence[int], key: int
) -> Sample:
    """Sample at most ``fanouts[k]`` incoming arcs, uniformly without replacement, of every cell reached before hop k.

    The arcs of a node depend on ``key``, node id, degree and hop alone, so all ranks sample the same arcs.

    Args:
        row_ptr: row pointers of the snapshot.
        col: positions of the sources.
        nodes: node ids of the cells.
        targets: distinct positions.
        fanouts: from the nearest hop; ``ALL_NEIGHBORS`` for no limit.
        key: 64 random bits.
    """
    place = _take_scratch(len(row_ptr) - 1)
    snapshot = readonly_view(row_ptr), readonly_view(col), readonly_view(nodes)
    cells: IntArray = targets.astype(np.int32)
    _mark(cells, place)
    sizes, hops = [len(cells)], []
    for hop, fanout in enumerate(fanouts):
        cells, *arrays = _sample_hop(snapshot, cells, fanout, np.uint64((key + hop * _HOP_STEP) & _ALL_BITS), place)
        sizes.append(len(cells))
        hops.append(SampledArcs(*arrays))
    _clear(cells, place)
    _thread_local.scratch = place
    return Sample(cells, tuple(sizes), tuple(hops))


def _take_scratch(num_cells: int) -> Any:
    """Take this thread's array of -1. The caller resets and returns it; after an error it is discarded."""
    scratch = getattr(_thread_local, "scratch", None)
    _thread_local.scratch = None
    return np.full(num_cells, -1, np.int32) if scratch is None or len(scratch) < num_cells else scratch


@cached_njit
def _splitmix64(state: Any) -> Any:
    """Finalizer of splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@cached_njit
def _floyd_sample(first: int, degree: int, number: int, state: Any, out: Any) -> None:
    """Sample ``number`` of ``degree`` consecutive integers from ``first``, ascending (Floyd's algorithm)."""
    for k in range(number):
        last = degree - number + k
        state = state + _STEP
        offset = np.int64(((_splitmix64(state) >> _HALF) * np.uint64(last + 1)) >> _HALF)
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
def _mark(cells: Any, place: Any) -> None:
    """Set the index of each cell."""
    for k in range(len(cells)):
        place[cells[k]] = k


@cached_njit
def _clear(cells: Any, place: Any) -> None:
    """Reset the index of each cell to -1."""
    for k in range(len(cells)):
        place[cells[k]] = -1


@cached_njit
def _sample_hop(snapshot: Any, cells: Any, fanout: int, key: Any, place: Any) -> Any:
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
            state = _splitmix64(key ^ (np.uint64(node[cells[k]]) * _STEP))
            _floyd_sample(first, degrees[k], len(sampled), state, sampled)
        for j in range(starts[k], starts[k + 1]):
            source = col[arcs[j]]
            if place[source] < 0:
                place[source] = number
                found[number] = source
                number += 1
            columns[j] = place[source]
    return found[:number].copy(), starts, columns, arcs, degrees
