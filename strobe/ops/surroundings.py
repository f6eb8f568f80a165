"""What some nodes read within a few sparse products: those cells of each snapshot, and their arcs, numbered anew.

The work is proportional to what is found, not to the snapshots: arcs are followed from the targets, and of the one
array that has a number for every cell only those that were written are wiped. Every thread keeps arrays of its own for
that, since memory that is used for the first time is dear, and the loops let other threads run beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.ops.csr import FloatArray, IntArray, distinct, fixed, transpose

Places = npt.NDArray[np.int32]
Distances = npt.NDArray[np.uint8]
_FARTHEST = 254
_NOTHING = np.empty(0, np.int32)
_kept = threading.local()


class _Paper:
    """What a thread writes on while it looks, kept for the next time: ``place`` is -1 in all cells in between."""

    def __init__(self) -> None:
        self.place = np.empty(0, np.int32)  # of every cell of a snapshot: its distance, later its new number
        self.found = np.empty(0, np.int32)
        self.distance = np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Rows:
    """Arcs of several snapshots by the cell that reads, laid out as a graph stores them.

    Snapshot t has rows ``row_ptr[cell_ptr[t] + t :]``, which start at 0, and arcs ``arc_ptr[t]:arc_ptr[t + 1]``;
    columns are positions within the snapshot, ascending in each row.
    """

    arc_ptr: IntArray  # [T + 1]
    row_ptr: IntArray  # [C + T]
    col: IntArray  # [A]
    weight: FloatArray | None = None  # [A]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Snapshots side by side: who is present, what each cell reads along arcs that reach it and, where a model asks
    for it, along those that leave it.

    ``node`` holds the nodes of each snapshot, ascending; None where all are present in all snapshots.
    """

    num_nodes: int
    cell_ptr: IntArray  # [T + 1]
    reads: Rows
    node: IntArray | None = None  # [C]
    out: Rows | None = None

    @property
    def num_cells(self) -> int:
        return int(self.cell_ptr[-1])

    @property
    def num_arcs(self) -> int:
        """Entries of all rows, of both kinds."""
        return len(self.reads.col) + (0 if self.out is None else len(self.out.col))

    def block(self, t: int, *, out: bool = False) -> tuple[IntArray, IntArray, FloatArray | None]:
        """The rows of one snapshot: pointers, columns, weights."""
        rows = _leaving(self) if out else self.reads
        arcs = slice(int(rows.arc_ptr[t]), int(rows.arc_ptr[t + 1]))
        row_ptr = rows.row_ptr[int(self.cell_ptr[t]) + t : int(self.cell_ptr[t + 1]) + t + 1]
        return row_ptr, rows.col[arcs], None if rows.weight is None else rows.weight[arcs]

    def both_ways(self) -> Blocks:
        """The same with rows along the arcs that leave cells, too. Goes through all arcs: once for a graph."""
        row_ptr, col = np.empty_like(self.reads.row_ptr), np.empty_like(self.reads.col)
        weight = None if self.reads.weight is None else np.empty_like(self.reads.weight)
        there = Rows(self.reads.arc_ptr, row_ptr, col, weight)
        turned = replace(self, out=there)
        for t in range(len(self.cell_ptr) - 1):
            rows, cols, weights = self.block(t)
            to_rows, to_cols, to_weights = turned.block(t, out=True)
            to_rows[:], to_cols[:], at = transpose(rows, cols, rows.size - 1)
            if weights is not None and to_weights is not None:
                to_weights[:] = weights[at]
        return turned


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Cells that were found, as blocks of their own: snapshot by snapshot, in each in ascending order of node.

    ``distance`` counts arcs to the nearest target. A row of ``blocks`` is that of the whole snapshot, in the same
    order, or it is empty: what cells at the full distance would read changes no target. So products over the blocks
    give targets exactly what products over whole snapshots give them, if the weights are those of the whole: normalise
    whole snapshots once and find surroundings in the result; or normalise what was found, by the degrees, which are
    of the whole, and by whatever else was summed up there, cell by cell, at ``cell``.
    """

    whole: Blocks
    times: IntArray  # [S] snapshots of the whole
    blocks: Blocks
    position: Places  # [c] where each cell stands in its whole snapshot
    distance: Distances  # [c] 0 for targets

    @cached_property
    def cell(self) -> IntArray:
        """The number of each cell among all cells of the whole, [c]."""
        return self._along(self.whole.cell_ptr[self.times])

    @cached_property
    def in_degree(self) -> IntArray:
        """Arcs that reach each cell in the whole, [c]."""
        return self._degree(self.whole.reads)

    @cached_property
    def out_degree(self) -> IntArray:
        """Arcs that leave each cell in the whole, [c]."""
        return self._degree(_leaving(self.whole))

    def _along(self, first: IntArray) -> IntArray:
        """Where each cell stands in a row of things, one for each cell, that begins anew in each snapshot."""
        return np.repeat(first, np.diff(self.blocks.cell_ptr)) + self.position

    def _degree(self, rows: Rows) -> IntArray:
        row = self._along(self.whole.cell_ptr[self.times] + self.times)
        return rows.row_ptr[row + 1] - rows.row_ptr[row]


def surroundings(
    blocks: Blocks, times: Iterable[int], targets: IntArray, hops: int, *, out: bool = False
) -> Surroundings:
    """The cells of some nodes in some snapshots and all that they read within so many sparse products.

    Args:
        blocks: the whole snapshots.
        times: which of them, in the order in which they are wanted.
        targets: ids of nodes, in any order; one that comes twice counts once. In snapshots in which a node is absent
            it has no cell and is left out.
        hops: products. With none, targets stand alone, without arcs.
        out: some products read along the arcs that leave a cell; either kind may come at any hop.
    """
    from strobe.ops.following import named, reach  # numba takes its time to load

    when, wanted, there = _snapshots(blocks, times), _nodes(blocks, targets), _leaving(blocks) if out else None
    if not 0 <= hops <= _FARTHEST:
        raise OptionError(f"cells are found within 0 to {_FARTHEST} sparse products, not {hops}")
    paper = _take_paper(int(np.diff(blocks.cell_ptr)[when].max(initial=0)))
    cell_ptr, arcs, paper.found, paper.distance = reach(
        (when, fixed(blocks.cell_ptr)),
        fixed(_NOTHING if blocks.node is None else blocks.node),
        blocks.num_nodes,
        wanted,
        hops,
        (_arrays(blocks.reads), _arrays(there or blocks.reads)),
        there is not None,
        (paper.place, paper.found, paper.distance),
    )
    position, distance = paper.found[: cell_ptr[-1]].copy(), paper.distance[: cell_ptr[-1]].copy()
    cells = when, fixed(blocks.cell_ptr), cell_ptr, position
    inner = distance < hops
    reads = _rows(blocks.reads, arcs[0], inner, paper.place, cells)
    leaves = None if there is None else _rows(there, arcs[1], inner, paper.place, cells)
    node = position if blocks.node is None else named(cells, fixed(blocks.node))
    _kept.paper = paper
    return Surroundings(blocks, when, Blocks(blocks.num_nodes, cell_ptr, reads, node, leaves), position, distance)


def rows_of(found: Surroundings, whole: Rows, hops: int) -> Rows:
    """The rows of some other matrix over the same snapshots, for the cells that were found within so many products:
    its columns must be among them."""
    row = found._along(found.whole.cell_ptr[found.times] + found.times)
    inner = found.distance < hops
    degree = np.where(inner, whole.row_ptr[row + 1] - whole.row_ptr[row], 0)
    ptr = found.blocks.cell_ptr
    ends = np.concatenate(([0], np.cumsum(degree, dtype=np.int64)))
    paper = _take_paper(int(np.diff(found.whole.cell_ptr)[found.times].max(initial=0)))
    cells = found.times, fixed(found.whole.cell_ptr), ptr, found.position
    rows = _rows(whole, np.diff(ends[ptr]), inner, paper.place, cells)
    _kept.paper = paper
    return rows


def _snapshots(blocks: Blocks, times: Iterable[int]) -> IntArray:
    when = np.array(list(times), np.int64)
    wrong = when[(when < 0) | (when >= len(blocks.cell_ptr) - 1)]
    if wrong.size:
        raise InputError(f"snapshot {wrong[0]} is not one of {len(blocks.cell_ptr) - 1}, numbered from 0")
    return when


def _nodes(blocks: Blocks, targets: IntArray) -> IntArray:
    """Targets ascending, each once."""
    wanted = distinct(np.asarray(targets, np.int64))
    if wanted.size and (wanted[0] < 0 or wanted[-1] >= blocks.num_nodes):
        wrong = wanted[0] if wanted[0] < 0 else wanted[-1]
        raise InputError(f"node {wrong} is not one of the graph's {blocks.num_nodes:,} nodes, numbered from 0")
    return wanted


def _leaving(blocks: Blocks) -> Rows:
    """Rows along arcs that leave cells."""
    if blocks.out is None:
        raise InputError("the arcs that leave cells are not known: use blocks.both_ways()")
    return blocks.out


def _take_paper(most_cells: int) -> _Paper:
    """This thread's paper. Whoever takes it gives it back clean; if something goes wrong meanwhile it is lost."""
    assert most_cells <= np.iinfo(np.int32).max
    paper: _Paper = getattr(_kept, "paper", None) or _Paper()
    _kept.paper = None
    if len(paper.place) < most_cells:
        paper.place = np.full(most_cells, -1, np.int32)
    return paper


def _arrays(rows: Rows) -> tuple[Any, Any, Any]:
    return fixed(rows.arc_ptr), fixed(rows.row_ptr), fixed(rows.col)


def _rows(whole: Rows, arcs: IntArray, inner: Any, place: Places, cells: tuple[Any, ...]) -> Rows:
    """The rows of cells that were found, with so many arcs in each snapshot. Only the inner ones have any."""
    from strobe.ops.following import copy  # numba takes its time to load

    arc_ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(arcs)))
    num_arcs = int(arc_ptr[-1])
    weight = np.empty(0, np.float32) if whole.weight is None else whole.weight
    row_ptr = np.empty(len(inner) + len(arcs), whole.row_ptr.dtype)
    col = np.empty(num_arcs, whole.col.dtype)
    weights = np.empty(0 if whole.weight is None else num_arcs, weight.dtype)
    copy(cells, inner, place, (*_arrays(whole), fixed(weight)), (row_ptr, col, weights))
    return Rows(arc_ptr, row_ptr, col, None if whole.weight is None else weights)
