"""Validation of snapshot indices read from files, which other kernels use without bounds checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import IntArray, readonly_view

FAULTS = {
    1: "row_ptr does not go from 0 to the number of the snapshot's arcs, never descending",
    2: "col has a position that is not one of the snapshot's nodes, or descends within a row",
    3: "node has an id that is not one of the graph's nodes, or does not ascend",
    4: "edge_count is not the number of its edges",
    5: "an edge of an undirected graph is stored in one direction only, or with two weights",
}
"""Messages of ``first_fault`` by code."""

_ROWS, _COLUMNS, _NODES, _COUNT, _DIRECTIONS = FAULTS

# Odd 64-bit constants of SplitMix64 and of Knuth's multiplicative hash, as signed numbers.
_FIRST, _SECOND, _THIRD = (
    int(np.array(c, np.uint64).astype(np.int64)) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def first_fault(
    snapshots: range,
    ends: tuple[IntArray, IntArray, IntArray],
    rows: tuple[IntArray, IntArray],
    node: IntArray | None,
    weight_bits: IntArray | None,
    *,
    num_nodes: int,
    directed: bool,
) -> tuple[int, int] | None:
    """Find the first snapshot with invalid indices, as (code of ``FAULTS``, snapshot); None if all are valid.

    One pass over the arrays without a copy, about 1 ns an arc. Whether every arc of an undirected graph has its reverse
    is checked by a sum of hashes, with a collision probability of 2^-64.

    Args:
        snapshots: range to check.
        ends: ``cell_ptr``, ``arc_ptr`` and ``edge_count``. The first two must be valid.
        rows: ``row_ptr`` and ``col``.
        node: ids of present nodes; None if all are present.
        weight_bits: weights of arcs, viewed as integers.
        num_nodes: nodes of the graph.
        directed: whether the graph is directed.
    """
    empty = np.empty(0, np.int32)
    arrays = (*ends, *rows, *(empty if array is None else array for array in (node, weight_bits)))
    views = tuple(readonly_view(array) for array in arrays)
    code, t = _first_fault(snapshots.start, snapshots.stop, num_nodes, directed, views)
    return (code, t) if code else None


def first_descent(ptr: IntArray, text: IntArray, order: IntArray | None) -> int:
    """Find the first name, in ``order``, that is not above its predecessor by bytes; -1 if all ascend.

    ``ptr`` and ``order`` must be valid.
    """
    ranked = np.empty(0, np.int64) if order is None else order
    return int(_first_descent(readonly_view(ptr), readonly_view(text), readonly_view(ranked)))


@cached_njit
def _first_fault(start: int, stop: int, num_nodes: int, directed: bool, arrays: Any) -> tuple[int, int]:
    cell_ptr, arc_ptr, edge_count, row_ptr, col, node, weight_bits = arrays
    for t in range(start, stop):
        num_cells, num_arcs = cell_ptr[t + 1] - cell_ptr[t], arc_ptr[t + 1] - arc_ptr[t]
        row, arc = cell_ptr[t] + t, arc_ptr[t]
        if row_ptr[row] != 0 or row_ptr[row + num_cells] != num_arcs:
            return _ROWS, t
        loops = 0
        balance: Any = np.int64(0)
        for i in range(num_cells):
            begin, end = row_ptr[row + i], row_ptr[row + i + 1]
            if end < begin or end > num_arcs:
                return _ROWS, t
            before: Any = np.int64(0)
            for k in range(arc + begin, arc + end):
                source: Any = np.int64(col[k])
                if source < before or source >= num_cells:
                    return _COLUMNS, t
                before = source
                if source == i:
                    loops += 1
                elif not directed:
                    low, high = (source, i) if source < i else (i, source)
                    weight = np.int64(weight_bits[k]) if weight_bits.size else np.int64(0)
                    key = (low * _FIRST + high) * _SECOND + weight
                    key = (key ^ (key >> 29)) * _THIRD
                    balance += key if source < i else -key
        if edge_count[t] != (num_arcs if directed else (num_arcs + loops) // 2):
            return _COUNT, t
        if balance != 0:
            return _DIRECTIONS, t
        if node.size:
            last = np.int64(-1)
            for k in range(cell_ptr[t], cell_ptr[t + 1]):
                if node[k] <= last or node[k] >= num_nodes:
                    return _NODES, t
                last = np.int64(node[k])
    return 0, 0


@cached_njit
def _first_descent(ptr: Any, text: Any, order: Any) -> int:
    for rank in range(1, ptr.size - 1):
        low, high = (order[rank - 1], order[rank]) if order.size else (rank - 1, rank)
        length, other = ptr[low + 1] - ptr[low], ptr[high + 1] - ptr[high]
        above = other > length
        for k in range(min(length, other)):
            a, b = text[ptr[low] + k], text[ptr[high] + k]
            if a != b:
                above = b > a
                break
        if not above:
            return rank
    return -1
