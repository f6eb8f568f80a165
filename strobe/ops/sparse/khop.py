"""k-hop subgraphs of snapshots: the cells that target nodes read within k sparse products, with renumbered arcs.

The work is proportional to the subgraph, not to the snapshots: arcs are followed from the targets, and only the written
entries of the per-cell scratch array are reset. Each thread reuses its scratch; the loops release the GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray, distinct, readonly_view

Places = npt.NDArray[np.int32]
Distances = npt.NDArray[np.uint8]
_MAX_HOPS = 254
_SPARSE = 32
"""Sort the found cells if the snapshot has at least this many times as many; otherwise scan all cells."""
_EMPTY = np.empty(0, np.int32)
_thread_local = threading.local()


class _Scratch:
    """Scratch arrays of a thread, reused by later calls; ``place`` is -1 for all cells between calls."""

    def __init__(self) -> None:
        self.place = np.empty(0, np.int32)  # per cell of a snapshot: its distance, then its new number
        self.found = np.empty(0, np.int32)
        self.distance = np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class ArcRows:
    """Arcs of several snapshots by reading cell, in the layout of graph storage.

    Snapshot t has rows ``row_ptr[cell_ptr[t] + t :]``, which start at 0, and arcs ``arc_ptr[t]:arc_ptr[t + 1]``;
    columns are positions within the snapshot, ascending in each row.
    """

    arc_ptr: IntArray  # [T + 1]
    row_ptr: IntArray  # [C + T]
    col: IntArray  # [A]
    weight: FloatArray | None = None  # [A]


@dataclass(frozen=True, eq=False)
class SnapshotCsr:
    """Snapshots with the incoming arcs of each cell and, if a model needs them, the outgoing arcs.

    ``node`` holds the nodes of each snapshot, ascending; None if all nodes are present in all snapshots.
    """

    num_nodes: int
    cell_ptr: IntArray  # [T + 1]
    reads: ArcRows
    node: IntArray | None = None  # [C]
    out: ArcRows | None = None

    @property
    def num_cells(self) -> int:
        return int(self.cell_ptr[-1])

    @property
    def num_arcs(self) -> int:
        """Incoming and outgoing entries."""
        return len(self.reads.col) + (0 if self.out is None else len(self.out.col))

    def block(self, t: int, *, out: bool = False) -> tuple[IntArray, IntArray, FloatArray | None]:
        """Row pointers, columns and weights of one snapshot."""
        rows = self.out if out else self.reads
        assert rows is not None
        arcs = slice(int(rows.arc_ptr[t]), int(rows.arc_ptr[t + 1]))
        row_ptr = rows.row_ptr[int(self.cell_ptr[t]) + t : int(self.cell_ptr[t + 1]) + t + 1]
        return row_ptr, rows.col[arcs], None if rows.weight is None else rows.weight[arcs]


@dataclass(frozen=True, eq=False)
class KHopSubgraph:
    """Cells of a k-hop subgraph, by snapshot and ascending node.

    ``distance`` counts arcs to the nearest target. A row of ``blocks`` equals the row of the full snapshot, in the same
    order; rows at the full distance are empty, since no target depends on them. Products over ``blocks`` therefore give
    targets exactly the results of products over full snapshots, if weights come from full snapshots: normalize before,
    or by the degrees of the full snapshots.
    """

    full: SnapshotCsr
    times: IntArray  # [S] snapshots of ``full``
    blocks: SnapshotCsr
    position: Places  # [c] position of each cell in its full snapshot
    distance: Distances  # [c] 0 for targets

    @cached_property
    def cell(self) -> IntArray:
        """Index of each cell among all cells of ``full``, [c]."""
        return self._cell_offsets(self.full.cell_ptr[self.times])

    def _cell_offsets(self, first: IntArray) -> IntArray:
        """Offset of each cell in an array whose snapshots begin at ``first``."""
        return np.repeat(first, np.diff(self.blocks.cell_ptr)) + self.position


def khop_subgraph(
    blocks: SnapshotCsr, times: Iterable[int], targets: IntArray, hops: int, *, out: bool = False
) -> KHopSubgraph:
    """Extract the cells of target nodes and all cells that they read within ``hops`` sparse products.

    Args:
        blocks: the full snapshots.
        times: snapshots, in output order.
        targets: node ids in any order, duplicates allowed. Nodes absent from a snapshot are skipped there.
        hops: number of products; 0 gives the targets without arcs.
        out: follow outgoing arcs, too, at any hop.

    Raises:
        InputError: unknown node or snapshot, or ``out`` without outgoing rows.
        OptionError: ``hops`` out of range.
    """
    when, wanted = _check_snapshots(blocks, times), _sorted_targets(blocks, targets)
    outgoing = blocks.out if out else None
    if out and outgoing is None:
        raise InputError("outgoing arcs are missing")
    if not 0 <= hops <= _MAX_HOPS:
        raise OptionError(f"hops must be 0 to {_MAX_HOPS}, not {hops}")
    scratch = _take_scratch(int(np.diff(blocks.cell_ptr)[when].max(initial=0)))
    cell_ptr, arcs, scratch.found, scratch.distance = _expand_hops(
        (when, readonly_view(blocks.cell_ptr)),
        readonly_view(_EMPTY if blocks.node is None else blocks.node),
        blocks.num_nodes,
        wanted,
        hops,
        (_arrays(blocks.reads), _arrays(outgoing or blocks.reads)),
        outgoing is not None,
        (scratch.place, scratch.found, scratch.distance),
    )
    position, distance = scratch.found[: cell_ptr[-1]].copy(), scratch.distance[: cell_ptr[-1]].copy()
    cells = when, readonly_view(blocks.cell_ptr), cell_ptr, position
    inner = distance < hops
    reads = _copy_arc_rows(blocks.reads, arcs[0], inner, scratch.place, cells)
    leaves = None if outgoing is None else _copy_arc_rows(outgoing, arcs[1], inner, scratch.place, cells)
    node = position if blocks.node is None else _gather_node_ids(cells, readonly_view(blocks.node))
    _thread_local.scratch = scratch
    return KHopSubgraph(blocks, when, SnapshotCsr(blocks.num_nodes, cell_ptr, reads, node, leaves), position, distance)


def select_arc_rows(subgraph: KHopSubgraph, source: ArcRows, hops: int) -> ArcRows:
    """Select the rows of another matrix over the same snapshots for the cells within ``hops``.

    Its columns must be cells of the subgraph.
    """
    row = subgraph._cell_offsets(subgraph.full.cell_ptr[subgraph.times] + subgraph.times)
    inner = subgraph.distance < hops
    degree = np.where(inner, source.row_ptr[row + 1] - source.row_ptr[row], 0)
    ptr = subgraph.blocks.cell_ptr
    ends = np.concatenate(([0], np.cumsum(degree, dtype=np.int64)))
    scratch = _take_scratch(int(np.diff(subgraph.full.cell_ptr)[subgraph.times].max(initial=0)))
    cells = subgraph.times, readonly_view(subgraph.full.cell_ptr), ptr, subgraph.position
    rows = _copy_arc_rows(source, np.diff(ends[ptr]), inner, scratch.place, cells)
    _thread_local.scratch = scratch
    return rows


def _check_snapshots(blocks: SnapshotCsr, times: Iterable[int]) -> IntArray:
    when = np.array(list(times), np.int64)
    wrong = when[(when < 0) | (when >= len(blocks.cell_ptr) - 1)]
    if wrong.size:
        raise InputError(f"snapshot {wrong[0]} is not one of {len(blocks.cell_ptr) - 1}, numbered from 0")
    return when


def _sorted_targets(blocks: SnapshotCsr, targets: IntArray) -> IntArray:
    """Distinct targets, ascending."""
    wanted = distinct(np.asarray(targets, np.int64))
    if wanted.size and (wanted[0] < 0 or wanted[-1] >= blocks.num_nodes):
        wrong = wanted[0] if wanted[0] < 0 else wanted[-1]
        raise InputError(f"node {wrong} is not one of the graph's {blocks.num_nodes:,} nodes, numbered from 0")
    return wanted


def _take_scratch(most_cells: int) -> _Scratch:
    """Take this thread's scratch. The caller resets and returns it; after an error it is discarded."""
    assert most_cells <= np.iinfo(np.int32).max
    scratch: _Scratch = getattr(_thread_local, "scratch", None) or _Scratch()
    _thread_local.scratch = None
    if len(scratch.place) < most_cells:
        scratch.place = np.full(most_cells, -1, np.int32)
    return scratch


def _arrays(rows: ArcRows) -> tuple[Any, Any, Any]:
    return readonly_view(rows.arc_ptr), readonly_view(rows.row_ptr), readonly_view(rows.col)


def _copy_arc_rows(source: ArcRows, arcs: IntArray, inner: Any, place: Places, cells: tuple[Any, ...]) -> ArcRows:
    """Copy the rows of inner cells; ``arcs`` counts them per snapshot."""
    arc_ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(arcs)))
    num_arcs = int(arc_ptr[-1])
    weight = np.empty(0, np.float32) if source.weight is None else source.weight
    row_ptr = np.empty(len(inner) + len(arcs), source.row_ptr.dtype)
    col = np.empty(num_arcs, source.col.dtype)
    weights = np.empty(0 if source.weight is None else num_arcs, weight.dtype)
    _copy_rows(cells, inner, place, (*_arrays(source), readonly_view(weight)), (row_ptr, col, weights))
    return ArcRows(arc_ptr, row_ptr, col, None if source.weight is None else weights)


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
def _expand_hops(
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
def _copy_rows(cells: Any, inner: Any, place: Any, old: Any, new: Any) -> None:
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
def _gather_node_ids(cells: Any, node: Any) -> Any:
    """Node of each cell."""
    when, cell_ptr, ptr, position = cells
    names = np.empty(len(position), node.dtype)
    for s in range(len(when)):
        first = cell_ptr[when[s]]
        for k in range(ptr[s], ptr[s + 1]):
            names[k] = node[first + position[k]]
    return names
