"""Functions of a node's recent past, computed on grids of nodes by cells, a small piece at a time.

The cells of some nodes are laid out as a dense array, a node's cells one after the other in a row: then a time stage
without recurrence is plain batched torch on any device. Nodes with about equally many cells share a grid, so that
little of it is empty however short and scattered sequences are; where too few are alike to make a grid worth its while,
short ones stand end to end in a row, and none sees the others (temporal fusion, Chen and Li 2023, section 5.1.2).
Only one piece exists at a time on each core: backward lays it out and computes it again.
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

from strobe.ops.csr import IntArray, stable_argsort
from strobe.ops.lanes import pack
from strobe.ops.sequences import Sequences, Tile
from strobe.ops.threads import run_parts

TILE_ROWS = {"cpu": 1024, "cuda": 65_536}
"""Cells a snapshot in a tile: work for one core, or enough for a GPU to outlast the planning of its pieces."""

GROUPS = 8
"""Sums of weight gradients are kept apart in this many groups of tiles and joined in order: the same bits always."""

WORTH = 8
"""A piece that fills one in this many of the rows it has room for is worth its while."""

FEWER_ROWS = 0.9
"""Stretches stand end to end where no more than this share of rows is left: else each has its own."""

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Places:
    """Cells and where they stand on a grid [slots, columns]: cell ``rows[i]`` at ``at[i]``, counted row by row."""

    rows: Tensor
    at: Tensor
    slots: int
    columns: int

    def lay(self, x: Tensor) -> Tensor:
        """Rows of the cells on the grid, [slots, columns, width], zeros where nobody is."""
        grid = x.new_zeros(self.slots * self.columns, x.shape[1])
        return grid.index_copy_(0, self.at, x.index_select(0, self.rows)).view(self.slots, self.columns, -1)

    def pick(self, grid: Tensor) -> Tensor:
        """The way back: what stands at the places of the cells."""
        return grid.flatten(0, 1).index_select(0, self.at)


@dataclass(frozen=True)
class Piece:
    """Some stretches of sequences, in rows: *own* cells are computed, *seen* ones are those and some before.

    Clocks tell when cells are, every stretch in an age of its own: where two meet in a row, that is their seam, and
    more than ``horizon`` snapshots lie between them, further than anybody sees. An absent cell's clock is ahead of all
    where it is seen, arbitrary where it is own. ``number`` tells pieces apart.
    """

    own: Places
    seen: Places
    own_clock: Tensor
    seen_clock: Tensor
    horizon: int
    number: int

    @cached_property
    def distance(self) -> Tensor:
        """How many snapshots a seen cell lies before an own one, [rows, own, seen]; arbitrary where it is hidden."""
        return self.own_clock[:, :, None] - self.seen_clock[:, None, :]

    def hidden(self, span: int | None) -> Tensor:
        """Which seen cells an own cell must not read, [rows, own, seen].

        Later ones, those too far back, absent ones, those of other sequences; all, maybe, where nobody reads.
        """
        far = self.horizon if span is None else min(span, self.horizon)
        return (self.distance < 0) | (self.distance >= far)


Step = Callable[[Piece, Tensors, Tensors, Tensors], Tensor]
"""(piece, grids of own inputs, grids of seen inputs, weights) -> outputs on the own grid, in operations that autograd
follows. Outputs of absent cells do not count but must be finite. Called from several threads at once."""


@dataclass(frozen=True, kw_only=True)
class Lookback:
    """A step and how its work is cut.

    Args:
        width: columns of its outputs.
        past: so many snapshots at the beginning are seen but not computed.
        span: no more than so many cells are seen from a cell, itself included; None for all.
        stride: own columns of a piece, at most; pairs: about how many (own, seen) pairs of cells a piece may have.
    """

    step: Step
    width: int
    past: int = 0
    span: int | None = None
    stride: int = 32
    pairs: int

    def run(self, own: Tensors, seen: Tensors, weights: Tensors, sequences: Sequences) -> Tensor:
        """Outputs of the cells after the past, [C, width].

        ``sequences`` are those of all cells; ``seen`` has the rows of all, ``own`` of those after the past.
        """
        out: Tensor = _Pieces.apply(self, sequences, (len(own), len(seen)), *own, *seen, *weights)  # type: ignore[no-untyped-call]
        return out

    def pieces(self, sequences: Sequences, tile: Tile, number: int) -> Iterator[Piece]:
        """The pieces of a tile: a node's cells from left to right, longest stretches first."""
        cells = _TileCells.of(sequences, tile, self.past)
        for first in range(0, cells.longest, self.stride):
            reach = None if self.span is None else first - self.span + 1
            stretches = cells.stretches(first, first + self.stride, reach)
            low = 0
            while low < len(stretches.own):
                high = self._end(stretches, low)
                yield cells.piece(stretches[low:high], number)
                low, number = high, number + 1

    def _end(self, stretches: _Stretches, low: int) -> int:
        """Where a piece that begins with the stretch ``low`` ends: full, or before stretches of half its length.

        A piece that has hardly begun goes on with those: more of them fit, end to end in its rows.
        """
        columns, longest = int(stretches.widest[low]), int(stretches.seen[low])
        rows = max(1, self.pairs // (columns * longest))
        half = stretches.first_within(longest // 2)
        if half - low >= max(1, rows // WORTH):
            return min(half, low + rows)
        room = np.cumsum(stretches[low:].sizes(columns, longest))
        return low + max(1, int(np.searchsorted(room, rows * longest, "right")))


@dataclass(frozen=True)
class _Stretches:
    """Stretches of sequences, those that see most first: the last ``own`` of the ``seen`` cells before ``end``."""

    end: IntArray
    own: IntArray
    seen: IntArray

    def __getitem__(self, cut: slice) -> _Stretches:
        return _Stretches(self.end[cut], self.own[cut], self.seen[cut])

    @cached_property
    def widest(self) -> IntArray:
        """The most own cells of each stretch and those after it."""
        return np.maximum.accumulate(self.own[::-1])[::-1]

    @cached_property
    def _fewest(self) -> IntArray:
        return -self.seen

    def first_within(self, seen: int) -> int:
        """The first stretch that sees no more than so many cells."""
        return int(np.searchsorted(self._fewest, -seen))

    def sizes(self, columns: int, longest: int) -> IntArray:
        """Room they take in a row of ``longest`` seen and ``columns`` own places, in seen ones."""
        return np.maximum(self.seen, -(-self.own * longest // columns))

    def rows(self) -> tuple[IntArray, IntArray, IntArray]:
        """The row of each and its first own and seen place there: end to end where that leaves fewer rows."""
        count = len(self.own)
        columns, longest = int(self.own.max()), int(self.seen[0])
        sizes = self.sizes(columns, longest)
        if int(sizes.sum()) > FEWER_ROWS * count * longest:
            start = np.zeros(count, np.int64)
            return np.arange(count), start, start
        row, _ = pack(sizes, longest)
        return row, _before(self.own, row), _before(self.seen, row)


@dataclass(frozen=True)
class _TileCells:
    """The cells of a tile sequence by sequence.

    Arrays are by sequence: how many of its cells are own ones and how many past, and where its own ones begin.
    """

    row: Tensor
    t: Tensor
    own: IntArray
    past: IntArray
    begin: IntArray
    num_snapshots: int
    own_start: int

    @classmethod
    def of(cls, sequences: Sequences, tile: Tile, past: int) -> _TileCells:
        row, slot, t = _t_major(sequences, tile)
        own = torch.bincount(slot[t >= past], minlength=tile.num_slots).cpu().numpy()
        counts = torch.bincount(slot, minlength=tile.num_slots).cpu().numpy()
        by_sequence = torch.argsort(slot, stable=True)
        begin = np.cumsum(counts) - own
        start = sequences.cell_ptr[past]
        return cls(row[by_sequence], t[by_sequence], own, counts - own, begin, sequences.num_snapshots, start)

    @property
    def longest(self) -> int:
        """The most own cells of a sequence."""
        return int(self.own.max(initial=0))

    def stretches(self, first: int, last: int, reach: int | None) -> _Stretches:
        """Own cells ``first:last`` of all sequences that have them; seen ones begin with ``reach``, or with the first.

        Cells are counted from a sequence's first own one on, so that past ones have negative numbers.
        """
        who = np.flatnonzero(self.own > first)
        end = np.minimum(self.own[who], last)
        seen = end + (self.past[who] if reach is None else np.minimum(self.past[who], -reach))
        order = stable_argsort(int(seen.max(initial=0)) - seen)
        who, end, seen = who[order], end[order], seen[order]
        return _Stretches(self.begin[who] + end, end - first, seen)

    def piece(self, stretches: _Stretches, number: int) -> Piece:
        """Stretches laid out in rows."""
        row, own_at, seen_at = stretches.rows()
        rows, device = int(row.max()) + 1, self.row.device
        columns, longest = int(stretches.own.max()), int(stretches.seen[0])
        which, cells, at = _places(stretches.end, stretches.seen, row * longest + seen_at, device)
        apart = 2 * self.num_snapshots
        seen = Places(self.row[cells], at, rows, longest)
        beyond = torch.full((rows * longest,), apart * (len(row) + 1), device=device)
        seen_clock = beyond.index_copy_(0, at, which * apart + self.t[cells]).view(rows, longest)
        which, cells, at = _places(stretches.end, stretches.own, row * columns + own_at, device)
        own = Places(self.row[cells] - self.own_start, at, rows, columns)
        own_clock = at.new_zeros(rows * columns).index_copy_(0, at, which * apart + self.t[cells]).view(rows, columns)
        return Piece(own, seen, own_clock, seen_clock, self.num_snapshots, number)


def _before(sizes: IntArray, row: IntArray) -> IntArray:
    """The sum of the sizes of those that come before each in its row."""
    order = stable_argsort(row)
    total = np.cumsum(sizes[order]) - sizes[order]
    begins = np.flatnonzero(np.diff(row[order], prepend=-1))
    before = np.empty_like(sizes)
    before[order] = total - np.repeat(total[begins], np.diff(begins, append=len(row)))
    return before


def _places(end: IntArray, count: IntArray, at: IntArray, device: torch.device) -> Tensors:
    """Stretch, number and place of all cells of stretches: ``count`` before ``end``, from place ``at`` on."""
    total = int(count.sum())
    ahead = np.cumsum(count)
    begin = torch.from_numpy(np.stack([end - ahead, at + count - ahead, count])).to(device)
    which = torch.repeat_interleave(torch.arange(len(count), device=device), begin[2], output_size=total)
    each = torch.arange(total, device=device)
    return which, begin[0][which] + each, begin[1][which] + each


def _t_major(sequences: Sequences, tile: Tile) -> Tensors:
    """Row, place in the tile and snapshot of every cell of a tile."""
    everyone = torch.arange(tile.num_slots, device=sequences.device)
    rows, slots, counts = [everyone[:0]], [everyone[:0]], [0] * sequences.num_snapshots
    for stretch in tile.stretches:
        counts[stretch.t] = stretch.stop - stretch.start
        rows.append(torch.arange(stretch.start, stretch.stop, device=sequences.device))
        slots.append(everyone if stretch.at is None else stretch.at)
    t = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
    return torch.cat(rows), torch.cat(slots), t.to(sequences.device)


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, look: Lookback, sequences: Sequences, counts: tuple[int, int], *tensors: Tensor) -> Tensor:
        own, seen, weights = _parts_of(tuple(tensor.detach() for tensor in tensors), counts)
        tiles = _tiles(sequences)
        out = tensors[0].new_empty(sequences.num_cells - sequences.cell_ptr[look.past], look.width)

        def work(part: int) -> None:
            for piece in look.pieces(sequences, tiles[part], part << 32):
                grids = tuple(map(piece.own.lay, own)), tuple(map(piece.seen.lay, seen))
                out.index_copy_(0, piece.own.rows, piece.own.pick(look.step(piece, *grids, weights)))

        _share_out(work, len(tiles), sequences.device)
        ctx.look, ctx.sequences, ctx.counts = look, sequences, counts
        ctx.save_for_backward(*tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        look, sequences = ctx.look, ctx.sequences
        values = tuple(tensor.detach() for tensor in ctx.saved_tensors)
        tiles = _tiles(sequences)
        d_own, d_seen, d_weights = _parts_of(tuple(map(torch.zeros_like, values)), ctx.counts)
        sums = [tuple(map(torch.zeros_like, d_weights)) for _ in range(min(GROUPS, len(tiles)))]

        def work(group: int) -> None:
            for part in range(group, len(tiles), len(sums)):
                for piece in look.pieces(sequences, tiles[part], part << 32):
                    back(piece, sums[group])

        def back(piece: Piece, into: Tensors) -> None:
            own, seen, weights = _parts_of(values, ctx.counts)
            grids = [*map(piece.own.lay, own), *map(piece.seen.lay, seen), *(weight.detach() for weight in weights)]
            leaves = tuple(grid.requires_grad_() for grid in grids)
            with torch.enable_grad():
                out = look.step(piece, *_parts_of(leaves, ctx.counts))
                picked = piece.own.pick(out)
            found = torch.autograd.grad(
                picked, leaves, grads[0].index_select(0, piece.own.rows), materialize_grads=True
            )
            d_grids = _parts_of(found, ctx.counts)
            for total, grid in zip(d_own, d_grids[0], strict=True):
                total.index_copy_(0, piece.own.rows, piece.own.pick(grid))
            for total, grid in zip(d_seen, d_grids[1], strict=True):  # a cell is seen from several pieces of its tile
                total.index_add_(0, piece.seen.rows, piece.seen.pick(grid))
            for total, found_here in zip(into, d_grids[2], strict=True):
                total += found_here

        _share_out(work, len(sums), sequences.device)
        joined = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)] if sums else d_weights
        return None, None, None, *d_own, *d_seen, *joined


def _tiles(sequences: Sequences) -> tuple[Tile, ...]:
    return sequences.tiles(TILE_ROWS.get(sequences.device.type, TILE_ROWS["cpu"])) if sequences.num_cells else ()


def _parts_of(tensors: Tensors, counts: tuple[int, int]) -> tuple[Tensors, Tensors, Tensors]:
    own, seen = counts
    return tensors[:own], tensors[own : own + seen], tensors[own + seen :]


def _share_out(work: Callable[[int], None], count: int, device: torch.device) -> None:
    """Over the cores; on another device one after the other, each with all of it."""
    if device.type == "cpu":
        run_parts(work, count)
        return
    with torch.no_grad():
        for part in range(count):
            work(part)
