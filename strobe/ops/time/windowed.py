"""Time stages without recurrence: functions of a node's recent cells, computed on dense grids, one piece at a time.

A piece holds runs of sequences as rows of a dense array, so a stage is plain batched torch on any device. Sequences of
similar length share a piece; where few are similar, short runs are packed end to end in a row and masked from one
another (temporal fusion, Chen and Li 2023, section 5.1.2). One piece exists at a time per core; backward recomputes it.

The state of such a stage is its history: the inputs of the last snapshots, prepended to the cells of the next window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.csr import IntArray, stable_argsort
from strobe.ops.time.packing import pack
from strobe.ops.time.sequences import Grid, Sequences

TILE_ROWS = {"cpu": 1024, "cuda": 65_536}
"""Cells per snapshot in a tile. On a GPU a tile must outlast the planning of its pieces."""

GROUPS = 8
"""Weight gradients are summed per group of tiles and then in group order: bit-identical on any number of threads."""

WORTH = 8
"""A piece is split off once it fills 1 / WORTH of its rows."""

FEWER_ROWS = 0.9
"""Runs are packed end to end if that leaves at most this share of rows."""

Tensors = tuple[Tensor, ...]

History = dict[str, Any]
"""``x`` [P, F]: inputs of past cells; ``slots`` [P]: their slots; ``cell_ptr`` [snapshots + 1]."""


@dataclass(frozen=True)
class GridIndex:
    """Positions of cells on a grid [slots, columns]: cell ``rows[i]`` at flat position ``at[i]``."""

    rows: Tensor
    at: Tensor
    slots: int
    columns: int

    def scatter(self, x: Tensor) -> Tensor:
        """Scatter the rows of the cells to a grid [slots, columns, width], zero elsewhere."""
        grid = x.new_zeros(self.slots * self.columns, x.shape[1])
        return grid.index_copy_(0, self.at, x.index_select(0, self.rows)).view(self.slots, self.columns, -1)

    def gather(self, grid: Tensor) -> Tensor:
        """Gather the rows of the cells from a grid."""
        return grid.flatten(0, 1).index_select(0, self.at)


@dataclass(frozen=True)
class Piece:
    """Runs of sequences laid out in rows: *own* cells are computed, *seen* cells (own and earlier ones) are read.

    Clocks are snapshot numbers, offset per run so that runs in the same row are more than ``horizon`` apart. An empty
    position has a clock after all others if seen, an arbitrary one if own. ``number`` identifies the piece.
    """

    own: GridIndex
    seen: GridIndex
    own_clock: Tensor
    seen_clock: Tensor
    horizon: int
    number: int

    @cached_property
    def distance(self) -> Tensor:
        """Snapshots from each seen cell to each own cell, [rows, own, seen]; arbitrary where masked."""
        return self.own_clock[:, :, None] - self.seen_clock[:, None, :]

    def mask(self, span: int | None) -> Tensor:
        """Seen cells that an own cell must not read, [rows, own, seen]: later, out of span, absent, other sequences."""
        far = self.horizon if span is None else min(span, self.horizon)
        return (self.distance < 0) | (self.distance >= far)


Step = Callable[[Piece, Tensors, Tensors, Tensors], Tensor]
"""(piece, grids of own inputs, grids of seen inputs, weights) -> outputs on the own grid, differentiable by autograd.
Outputs at empty positions are ignored but must be finite. Called from several threads."""


@dataclass(frozen=True, kw_only=True)
class WindowedOp:
    """A step and the size of its pieces.

    Args:
        step: computes one piece.
        width: columns of the output.
        past: leading snapshots that are seen but not computed.
        span: largest number of cells a cell reads, itself included; None for all.
        stride: largest number of own columns of a piece.
        pairs: approximate number of (own, seen) pairs of a piece.
    """

    step: Step
    width: int
    past: int = 0
    span: int | None = None
    stride: int = 32
    pairs: int

    def run(self, own: Tensors, seen: Tensors, weights: Tensors, sequences: Sequences) -> Tensor:
        """Compute the cells after ``past``, [C, width].

        Args:
            own: inputs of the cells after ``past``.
            seen: inputs of all cells.
            weights: parameters passed to the step.
            sequences: the sequences of all cells.
        """
        out: Tensor = _Pieces.apply(self, sequences, (len(own), len(seen)), *own, *seen, *weights)  # type: ignore[no-untyped-call]
        return out

    def pieces(self, sequences: Sequences, grid: Grid, tile: int) -> Iterator[Piece]:
        """Yield the pieces of a tile, by time, longest runs first."""
        cells, number = _TileCells.of(sequences, grid, tile, self.past), tile << 32
        for first in range(0, cells.longest, self.stride):
            reach = None if self.span is None else first - self.span + 1
            runs = cells.runs(first, first + self.stride, reach)
            low = 0
            while low < len(runs.own):
                high = self._end(runs, low)
                yield cells.piece(runs[low:high], number)
                low, number = high, number + 1

    def _end(self, runs: _Runs, low: int) -> int:
        """End of the piece that begins with run ``low``: when full, or before runs of half its length.

        A nearly empty piece continues with shorter runs, packed end to end.
        """
        columns, longest = int(runs.widest[low]), int(runs.seen[low])
        rows = max(1, self.pairs // (columns * longest))
        half = runs.first_within(longest // 2)
        if half - low >= max(1, rows // WORTH):
            return min(half, low + rows)
        room = np.cumsum(runs[low:].sizes(columns, longest))
        return low + max(1, int(np.searchsorted(room, rows * longest, "right")))


@dataclass(frozen=True)
class _Runs:
    """Runs of sequences, most seen cells first: the last ``own`` of the ``seen`` cells before ``end``."""

    end: IntArray
    own: IntArray
    seen: IntArray

    def __getitem__(self, cut: slice) -> _Runs:
        return _Runs(self.end[cut], self.own[cut], self.seen[cut])

    @cached_property
    def widest(self) -> IntArray:
        """Largest number of own cells of each run and the runs after it."""
        return np.maximum.accumulate(self.own[::-1])[::-1]

    @cached_property
    def _fewest(self) -> IntArray:
        return -self.seen

    def first_within(self, seen: int) -> int:
        """First run with at most ``seen`` seen cells."""
        return int(np.searchsorted(self._fewest, -seen))

    def sizes(self, columns: int, longest: int) -> IntArray:
        """Seen positions that each run takes in a row of ``longest`` seen and ``columns`` own positions."""
        return np.maximum(self.seen, -(-self.own * longest // columns))

    def rows(self) -> tuple[IntArray, IntArray, IntArray]:
        """Row, own offset and seen offset of each run, packed end to end if that saves rows."""
        count = len(self.own)
        columns, longest = int(self.own.max()), int(self.seen[0])
        sizes = self.sizes(columns, longest)
        if int(sizes.sum()) > FEWER_ROWS * count * longest:
            start = np.zeros(count, np.int64)
            return np.arange(count), start, start
        row, _ = pack(sizes, longest)
        return row, _offsets_in_row(self.own, row), _offsets_in_row(self.seen, row)


@dataclass(frozen=True)
class _TileCells:
    """Cells of a tile ordered by sequence; per sequence the number of own and past cells and the first own cell."""

    row: Tensor
    t: Tensor
    own: IntArray
    past: IntArray
    begin: IntArray
    num_snapshots: int
    own_start: int

    @classmethod
    def of(cls, sequences: Sequences, grid: Grid, tile: int, past: int) -> _TileCells:
        row, slot, t = _cells_by_snapshot(sequences, grid, tile)
        num_slots = int(grid.edges[tile + 1] - grid.edges[tile])
        own = torch.bincount(slot[t >= past], minlength=num_slots).cpu().numpy()
        counts = torch.bincount(slot, minlength=num_slots).cpu().numpy()
        by_sequence = torch.argsort(slot, stable=True)
        begin = np.cumsum(counts) - own
        start = sequences.cell_ptr[past]
        return cls(row[by_sequence], t[by_sequence], own, counts - own, begin, sequences.num_snapshots, start)

    @property
    def longest(self) -> int:
        """Largest number of own cells of a sequence."""
        return int(self.own.max(initial=0))

    def runs(self, first: int, last: int, reach: int | None) -> _Runs:
        """Own cells ``first:last`` of all sequences that have them; seen cells begin with ``reach`` (None: the first).

        Cells are numbered from a sequence's first own cell; past cells have negative numbers.
        """
        who = np.flatnonzero(self.own > first)
        end = np.minimum(self.own[who], last)
        seen = end + (self.past[who] if reach is None else np.minimum(self.past[who], -reach))
        order = stable_argsort(int(seen.max(initial=0)) - seen)
        who, end, seen = who[order], end[order], seen[order]
        return _Runs(self.begin[who] + end, end - first, seen)

    def piece(self, runs: _Runs, number: int) -> Piece:
        """Lay runs out in rows."""
        row, own_at, seen_at = runs.rows()
        rows, device = int(row.max()) + 1, self.row.device
        columns, longest = int(runs.own.max()), int(runs.seen[0])
        which, cells, at = _cell_positions(runs.end, runs.seen, row * longest + seen_at, device)
        apart = 2 * self.num_snapshots
        seen = GridIndex(self.row[cells], at, rows, longest)
        beyond = torch.full((rows * longest,), apart * (len(row) + 1), device=device)
        seen_clock = beyond.index_copy_(0, at, which * apart + self.t[cells]).view(rows, longest)
        which, cells, at = _cell_positions(runs.end, runs.own, row * columns + own_at, device)
        own = GridIndex(self.row[cells] - self.own_start, at, rows, columns)
        own_clock = at.new_zeros(rows * columns).index_copy_(0, at, which * apart + self.t[cells]).view(rows, columns)
        return Piece(own, seen, own_clock, seen_clock, self.num_snapshots, number)


def _offsets_in_row(sizes: IntArray, row: IntArray) -> IntArray:
    """Sum of the sizes before each item in its row."""
    order = stable_argsort(row)
    total = np.cumsum(sizes[order]) - sizes[order]
    begins = np.flatnonzero(np.diff(row[order], prepend=-1))
    before = np.empty_like(sizes)
    before[order] = total - np.repeat(total[begins], np.diff(begins, append=len(row)))
    return before


def _cell_positions(end: IntArray, count: IntArray, at: IntArray, device: torch.device) -> Tensors:
    """Run, cell index and position of all cells of runs: ``count`` cells before ``end``, placed from ``at``."""
    total = int(count.sum())
    ahead = np.cumsum(count)
    begin = torch.from_numpy(np.stack([end - ahead, at + count - ahead, count])).to(device)
    which = torch.repeat_interleave(torch.arange(len(count), device=device), begin[2], output_size=total)
    each = torch.arange(total, device=device)
    return which, begin[0][which] + each, begin[1][which] + each


def _cells_by_snapshot(sequences: Sequences, grid: Grid, tile: int) -> Tensors:
    """Row, slot in the tile and snapshot of every cell of a tile."""
    start, counts = grid.bounds[:, tile], grid.bounds[:, tile : tile + 2].diff()[:, 0]
    t = torch.repeat_interleave(torch.arange(len(counts)), counts)
    row = (torch.arange(len(t)) + (start - counts.cumsum(0) + counts)[t]).to(sequences.device)
    return row, sequences.slots[row] - int(grid.edges[tile]), t.to(sequences.device)


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: WindowedOp, sequences: Sequences, counts: tuple[int, int], *tensors: Tensor) -> Tensor:
        own, seen, weights = _split_groups(tuple(tensor.detach() for tensor in tensors), counts)
        grid, tiles = _grid(sequences)
        out = tensors[0].new_empty(sequences.num_cells - sequences.cell_ptr[op.past], op.width)

        def work(part: int) -> None:
            for piece in op.pieces(sequences, grid, part):
                grids = tuple(map(piece.own.scatter, own)), tuple(map(piece.seen.scatter, seen))
                out.index_copy_(0, piece.own.rows, piece.own.gather(op.step(piece, *grids, weights)))

        _run_tiles(work, tiles, sequences.device)
        ctx.op, ctx.sequences, ctx.counts = op, sequences, counts
        ctx.save_for_backward(*tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        op, sequences = ctx.op, ctx.sequences
        values = tuple(tensor.detach() for tensor in ctx.saved_tensors)
        grid, tiles = _grid(sequences)
        d_own, d_seen, d_weights = _split_groups(tuple(map(torch.zeros_like, values)), ctx.counts)
        sums = [tuple(map(torch.zeros_like, d_weights)) for _ in range(min(GROUPS, tiles))]

        def work(group: int) -> None:
            for part in range(group, tiles, len(sums)):
                for piece in op.pieces(sequences, grid, part):
                    back(piece, sums[group])

        def back(piece: Piece, into: Tensors) -> None:
            own, seen, weights = _split_groups(values, ctx.counts)
            grids = [
                *map(piece.own.scatter, own),
                *map(piece.seen.scatter, seen),
                *(weight.detach() for weight in weights),
            ]
            leaves = tuple(grid.requires_grad_() for grid in grids)
            with torch.enable_grad():
                out = op.step(piece, *_split_groups(leaves, ctx.counts))
                rows = piece.own.gather(out)
            d_rows = grads[0].index_select(0, piece.own.rows)
            d_leaves = torch.autograd.grad(rows, leaves, d_rows, materialize_grads=True)
            d_grids = _split_groups(d_leaves, ctx.counts)
            for total, grid in zip(d_own, d_grids[0], strict=True):
                total.index_copy_(0, piece.own.rows, piece.own.gather(grid))
            for total, grid in zip(d_seen, d_grids[1], strict=True):  # a cell is seen from several pieces of its tile
                total.index_add_(0, piece.seen.rows, piece.seen.gather(grid))
            for total, d_weight in zip(into, d_grids[2], strict=True):
                total += d_weight

        _run_tiles(work, len(sums), sequences.device)
        joined = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)] if sums else d_weights
        return None, None, None, *d_own, *d_seen, *joined


def _grid(sequences: Sequences) -> tuple[Grid, int]:
    """Tiles and their number, 0 without cells."""
    grid = sequences.grid(TILE_ROWS.get(sequences.device.type, TILE_ROWS["cpu"]))
    return grid, grid.num_tiles if sequences.num_cells else 0


def _split_groups(tensors: Tensors, counts: tuple[int, int]) -> tuple[Tensors, Tensors, Tensors]:
    own, seen = counts
    return tensors[:own], tensors[own : own + seen], tensors[own + seen :]


def _run_tiles(work: Callable[[int], None], count: int, device: torch.device) -> None:
    """Run tiles on all cores, or one after the other on a GPU."""
    if device.type == "cpu":
        run_parts(work, count)
        return
    with torch.no_grad():
        for part in range(count):
            work(part)


def prepend_history(x: Tensor, state: History | None, sequences: Sequences) -> tuple[Tensor, Sequences, int]:
    """Prepend past cells to a window: inputs, sequences, and the number of past snapshots."""
    if state is None:
        return x, sequences, 0
    ptr: tuple[int, ...] = state["cell_ptr"]
    joined = (*ptr[:-1], *(ptr[-1] + start for start in sequences.cell_ptr))
    always = sequences.slot is None and ptr[-1] == (len(ptr) - 1) * sequences.num_slots
    slots = None if always else np.concatenate([state["slots"].cpu().numpy(), sequences.slots.cpu().numpy()])
    both = Sequences(joined, slots, sequences.num_slots, sequences.device)
    return torch.cat([state["x"], x]), both, len(ptr) - 1


def extract_history(x: Tensor, sequences: Sequences, span: int | None) -> History:
    """Extract the history for the next window: inputs of the last ``span - 1`` snapshots (None: all)."""
    first = 0 if span is None else max(sequences.num_snapshots - span + 1, 0)
    begin = sequences.cell_ptr[first]
    recent = x[begin:].clone() if begin else x  # a copy: a view would hold the whole window in memory
    ptr = tuple(start - begin for start in sequences.cell_ptr[first:])
    return {"x": recent, "slots": sequences.slots[begin:], "cell_ptr": ptr}
