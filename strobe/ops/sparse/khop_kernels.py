"""Compiled loops of ``khop``."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit

_SPARSE = 32
"""Sort the found cells if the snapshot has at least this many times as many; otherwise scan all cells."""


@cached_njit
def _seek(node: Any, start: int, stop: int, wanted: int) -> Any:
    """First position from ``start`` whose node is not below ``wanted``, by galloping search."""
    guess = start + wanted - node[start]
    if start <= guess < stop and node[guess] == wanted:
        return guess
    step = 1
    while start + step < stop and node[start + step] < wanted:
        start += step
        step *= 2
    last = min(start + step, stop)
    while start < last:
        middle = (start + last) >> 1
        if node[middle] < wanted:
            start = middle + 1
        else:
            last = middle
    return start


@cached_njit
def _mark_targets(node: Any, num_nodes: int, first: int, size: int, targets: Any, place: Any, found: Any) -> int:
    """Mark present targets with distance 0; returns their number."""
    if size == num_nodes:  # all nodes are present: positions are ids
        for k in range(len(targets)):
            place[targets[k]] = 0
            found[k] = targets[k]
        return len(targets)
    count = 0
    at, stop = first, first + size
    for k in range(len(targets)):
        if at < stop:
            at = _seek(node, at, stop, targets[k])
        if at == stop:
            break
        if node[at] == targets[k]:
            place[at - first] = 0
            found[count] = at - first
            count += 1
    return count


@cached_njit
def _expand_hop(rows: Any, t: int, row: int, begin: int, end: int, hop: int, count: int, place: Any, found: Any) -> Any:
    """Mark new cells read by ``found[begin:end]`` with distance ``hop``; returns the number of cells and arcs."""
    arc_ptr, row_ptr, col = rows
    first, arcs = arc_ptr[t], 0
    last = np.uint64(count)
    for k in range(begin, end):
        start, stop = row_ptr[row + found[k]], row_ptr[row + found[k] + 1]
        arcs += stop - start
        for j in range(np.uint64(first + start), np.uint64(first + stop)):
            source = np.uint64(col[j])
            known = place[source]
            found[last] = source  # branch-free: overwritten unless new; the array has room for one more
            last += np.uint64(known < 0)
            place[source] = hop if known < 0 else known
    return np.int64(last), arcs


@cached_njit
def _sort_cells(size: int, place: Any, least: int, found: Any) -> None:
    """Puts all that was found at a distance or farther in ascending order; ``found`` has room for one more."""
    if size > _SPARSE * len(found):
        found[:-1].sort()
        return
    at = np.uint64(0)
    for cell in range(np.uint64(size)):
        found[at] = cell
        at += np.uint64(place[cell] >= least)


@cached_njit
def _grow_array(array: Any, used: int, size: int) -> Any:
    """The same array, or one with more room and the part of it that is in use."""
    if size <= len(array):
        return array
    grown = np.empty(max(size, 2 * len(array)), array.dtype)
    grown[:used] = array[:used]
    return grown


@cached_njit
def expand_hops(
    snapshots: Any, node: Any, num_nodes: int, targets: Any, hops: int, rows: Any, both: bool, scratch: Any
) -> Any:
    """Cells by snapshot and position, and how far they are from targets; of every snapshot also the arcs of both kinds
    whose readers are not the outermost."""
    when, cell_ptr = snapshots
    reads, out = rows
    place, found, distance = scratch
    ptr = np.zeros(len(when) + 1, np.int64)
    arcs = np.zeros((2, len(when)), np.int64)
    for s in range(len(when)):
        t, filled = when[s], ptr[s]
        row, size = cell_ptr[t] + t, cell_ptr[t + 1] - cell_ptr[t]
        found = _grow_array(found, filled, filled + size + 1)
        here = found[filled:]
        count = _mark_targets(node, num_nodes, cell_ptr[t], size, targets, place, here)
        begin, end = 0, count
        for hop in range(1, hops + 1):
            count, more = _expand_hop(reads, t, row, begin, end, hop, count, place, here)
            arcs[0, s] += more
            if both:
                count, more = _expand_hop(out, t, row, begin, end, hop, count, place, here)
                arcs[1, s] += more
            begin, end = end, count
            if hop < hops:
                _sort_cells(size, place, hop, here[begin : end + 1])  # rows that lie side by side are read faster
        _sort_cells(size, place, 0, here[: count + 1])
        distance = _grow_array(distance, filled, filled + count)
        for k in range(count):
            distance[filled + k] = place[here[k]]
            place[here[k]] = -1
        ptr[s + 1] = filled + count
    return ptr, arcs, found, distance


@cached_njit
def copy_rows(cells: Any, inner: Any, place: Any, old: Any, new: Any) -> None:
    """Copy the rows of inner cells with renumbered columns; other rows stay empty."""
    when, cell_ptr, ptr, position = cells
    arc_ptr, row_ptr, col, weight = old
    new_row_ptr, new_col, new_weight = new
    weighted = len(new_weight) > 0
    filled = np.uint64(0)
    for s in range(len(when)):
        t = when[s]
        row, first = cell_ptr[t] + t, arc_ptr[t]
        for k in range(ptr[s], ptr[s + 1]):
            place[position[k]] = k - ptr[s]
        begun = filled
        for k in range(ptr[s], ptr[s + 1]):
            new_row_ptr[k + s] = filled - begun
            if not inner[k]:
                continue
            start, stop = row_ptr[row + position[k]], row_ptr[row + position[k] + 1]
            for j in range(np.uint64(first + start), np.uint64(first + stop)):
                new_col[filled] = place[np.uint64(col[j])]
                if weighted:
                    new_weight[filled] = weight[j]
                filled += np.uint64(1)
        new_row_ptr[ptr[s + 1] + s] = filled - begun
        for k in range(ptr[s], ptr[s + 1]):
            place[position[k]] = -1


@cached_njit
def gather_node_ids(cells: Any, node: Any) -> Any:
    """Node of each cell."""
    when, cell_ptr, ptr, position = cells
    names = np.empty(len(position), node.dtype)
    for s in range(len(when)):
        first = cell_ptr[when[s]]
        for k in range(ptr[s], ptr[s + 1]):
            names[k] = node[first + position[k]]
    return names
