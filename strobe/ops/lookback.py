"""Functions of a node's recent past, computed on grids of nodes by cells, a small piece at a time.

The cells of some nodes are laid out as a dense array, a node's cells one after the other in a row: then a time stage
without recurrence is plain batched torch on any device. Nodes with about equally many cells share a grid, so that
little of it is empty however short and scattered sequences are. Only one piece exists at a time on each core:
backward lays it out and computes it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.sequences import Sequences, Tile
from strobe.ops.threads import run_parts

TILE_ROWS = {"cpu": 1024, "cuda": 65_536}
"""Cells a snapshot in a tile: work for one core, or enough for a GPU to outlast the planning of its pieces."""

GROUPS = 8
"""Sums of weight gradients are kept apart in this many groups of tiles and joined in order: the same bits always."""

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

    @cached_property
    def present(self) -> Tensor:
        """Who is there, [slots, columns]."""
        mask = torch.zeros(self.slots * self.columns, dtype=torch.bool, device=self.at.device)
        mask[self.at] = True
        return mask.view(self.slots, self.columns)


@dataclass(frozen=True)
class Piece:
    """Some nodes, a row each: *own* cells are computed, *seen* ones are those and some before.

    Column i of the own grid is column i + before of the seen one. ``time`` is the snapshot of each seen cell,
    arbitrary where nobody is; ``number`` tells pieces apart.
    """

    own: Places
    seen: Places
    time: Tensor
    before: int
    number: int

    @cached_property
    def distance(self) -> Tensor:
        """How many snapshots a seen cell lies before an own one, [nodes, own, seen]; arbitrary where nobody is."""
        return self.time[:, self.before :, None] - self.time[:, None, :]

    def hidden(self, span: int | None) -> Tensor:
        """Which seen cells an own cell must not read, [nodes, own, seen]: absent ones, later ones, those too far back.

        A cell reads itself even where it is absent, so that no average is over nothing; its output does not count.
        """
        seen, own = (torch.arange(n, device=self.time.device) for n in (self.seen.columns, self.own.columns))
        ahead = seen - own[:, None] - self.before
        hidden = (ahead > 0) | (~self.seen.present[:, None, :] & (ahead != 0))
        return hidden if span is None else hidden | (self.distance >= span)


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
        """The pieces of a tile: nodes with most cells first, a node's cells from left to right."""
        cells = _TileCells.of(sequences, tile, self.past)
        low = 0
        while low < len(cells.own_counts):
            longest = cells.own_counts[low]
            columns = min(self.stride, longest)
            high = min(low + self._rows(columns, cells.deepest + longest), len(cells.own_counts))
            for first in range(0, longest, columns):
                here = cells.with_more_than(first, low, high)
                begin = -cells.deepest if self.span is None else max(first - self.span + 1, -cells.deepest)
                yield cells.piece(low, here, begin, first, min(first + columns, longest), number)
                number += 1
            low = high

    def _rows(self, columns: int, longest: int) -> int:
        seen = longest if self.span is None else min(longest, columns + self.span)
        return max(1, self.pairs // (columns * seen))


@dataclass(frozen=True)
class _TileCells:
    """The cells of a tile sequence by sequence, those with most own cells first; no node without any.

    ``turn`` counts a node's cells from its first own one on, so that past ones have negative turns. Lists are by
    sequence: the number of its own cells, and where its cells begin; ``deepest`` is the most past cells one has.
    """

    row: Tensor
    sequence: Tensor
    turn: Tensor
    t: Tensor
    own_counts: list[int]
    ptr: list[int]
    deepest: int
    own_start: int

    @classmethod
    def of(cls, sequences: Sequences, tile: Tile, past: int) -> _TileCells:
        row, slot, t = _t_major(sequences, tile)
        own = torch.bincount(slot[t >= past], minlength=tile.num_slots)
        order = torch.argsort(own, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        busy = own[slot] > 0
        row, sequence, t = row[busy], rank[slot[busy]], t[busy]
        by_sequence = torch.argsort(sequence, stable=True)
        row, sequence, t = row[by_sequence], sequence[by_sequence], t[by_sequence]
        own = own[order][: int((own > 0).sum())]
        counts = torch.bincount(sequence, minlength=len(own))
        ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        turn = torch.arange(len(row), device=row.device) - (ptr[1:] - own)[sequence]
        deepest = int((counts - own).max()) if len(own) else 0
        return cls(row, sequence, turn, t, own.tolist(), ptr.tolist(), deepest, sequences.cell_ptr[past])

    def with_more_than(self, count: int, low: int, high: int) -> int:
        """The end of those sequences from ``low`` on, before ``high``, that have more own cells than that."""
        return bisect_left(self.own_counts, -count, low, high, key=lambda own: -own)

    def piece(self, low: int, high: int, begin: int, first: int, last: int, number: int) -> Piece:
        """Sequences ``low:high``: own cells ``first:last`` of each, seen ones from ``begin`` on, counted in turns."""
        cut = slice(self.ptr[low], self.ptr[high])
        row, sequence, turn, t = self.row[cut], self.sequence[cut] - low, self.turn[cut], self.t[cut]
        seen, own = _inside(turn, begin, last), _inside(turn, first, last)
        columns = last - begin
        at = sequence[seen] * columns + turn[seen] - begin
        time = t.new_zeros((high - low) * columns).index_copy_(0, at, t[seen]).view(high - low, columns)
        own_at = sequence[own] * (last - first) + turn[own] - first
        own_places = Places(row[own] - self.own_start, own_at, high - low, last - first)
        return Piece(own_places, Places(row[seen], at, high - low, columns), time, first - begin, number)


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


def _inside(values: Tensor, first: int, last: int) -> Tensor:
    return torch.nonzero((values >= first) & (values < last)).squeeze(1)


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
