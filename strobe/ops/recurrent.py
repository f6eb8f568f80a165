"""Recurrent stages over packed sequences: a tile of nodes runs through all its snapshots while its state is in cache.

``reference`` is the obvious version, one snapshot at a time, and what runs on a GPU or without compiled kernels.
``run`` walks tiles instead. It keeps the states of all cells, which are its result, and at most the activated gates
of each; what it does not keep, backward computes again. Sequences may start late, end early and pause: a node's
state waits for its next cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.sequences import Sequences, Stretch, Tile
from strobe.ops.threads import run_parts

State = tuple[Tensor, ...]
"""What a cell carries along a sequence: (h,) or (h, c), each [slots, H]."""

GROUPS = 8
"""Sums of weight gradients are kept apart in this many groups of tiles and joined in order: the same bits always."""


class Cell(ABC):
    """The arithmetic of one recurrent cell on rows; bound to its weights, with no state of its own."""

    num_states: int
    hidden: int
    weights: tuple[Tensor, ...]

    @abstractmethod
    def step(self, x: Tensor, state: State) -> State:
        """The new state, in plain torch operations that autograd follows."""

    @abstractmethod
    def kept_columns(self) -> int:
        """Columns of activated gates to keep per cell for backward, or 0 to compute them again."""

    @abstractmethod
    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        """Working memory for tiles of up to so many rows, forward and backward."""

    @abstractmethod
    def forward(self, x: Tensor, state: State, new: State, kept: Tensor | None, scratch: tuple[Tensor, ...]) -> None:
        """Writes the new state (and the gates to keep) of a tile."""

    @abstractmethod
    def backward(self, grads: Grads, x: Tensor, old: State, new: State, kept: Tensor | None) -> None:
        """Turns the gradients of the new state into those of the old, and adds those of the weights."""


@dataclass(frozen=True)
class Grads:
    """Where a tile's gradients go: ``state`` is read and overwritten, ``weights`` are sums, ``x`` may be unwanted."""

    state: State
    weights: tuple[Tensor, ...]
    x: Tensor | None
    scratch: tuple[Tensor, ...]


def reference(cell: Cell, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Hidden states of all cells and the final states, snapshot by snapshot."""
    outputs = []
    for stretch in sequences.stretches():
        rows = x[stretch.start : stretch.stop]
        at = stretch.at
        if at is None:
            state = cell.step(rows, state)
            outputs.append(state[0])
        elif at.numel():
            new = cell.step(rows, tuple(old[at] for old in state))
            state = tuple(old.index_copy(0, at, fresh) for old, fresh in zip(state, new, strict=True))
            outputs.append(new[0])
    return torch.cat(outputs) if outputs else x.new_zeros(0, cell.hidden), state


def run(
    make: Callable[..., Cell],
    x: Tensor,
    state: State,
    sequences: Sequences,
    weights: tuple[Tensor, ...],
    tile_rows: int,
) -> tuple[Tensor, State]:
    """The same, tile by tile on the CPU where kernels are built; ``make(*weights)`` binds the cell to its weights."""
    if not native.usable(x, *state, *weights):
        return reference(make(*weights), x, state, sequences)
    out, *final = _Stage.apply(make, sequences, tile_rows, len(state), x, *state, *weights)  # type: ignore[no-untyped-call]
    return out, tuple(final)


class _Stage(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, make: Any, sequences: Sequences, tile_rows: int, num_states: int, x: Tensor, *rest: Tensor
    ) -> Any:
        first = tuple(tensor.detach().contiguous() for tensor in rest[:num_states])
        cell: Cell = make(*(weight.detach() for weight in rest[num_states:]))
        x = x.detach().contiguous()
        cells = sequences.num_cells
        training = any(ctx.needs_input_grad)
        kept = x.new_empty(cells, cell.kept_columns()) if training and cell.kept_columns() else None
        new = tuple(x.new_empty(cells, cell.hidden) for _ in range(cell.num_states))
        final = tuple(torch.empty_like(old) for old in first)
        tiles = sequences.tiles(tile_rows)

        def walk(part: int) -> None:
            tile = tiles[part]
            scratch = cell.scratch(tile.widest)
            current = _Current(tuple(old[tile.start : tile.stop] for old in first))
            for stretch in tile.stretches:
                rows = slice(stretch.start, stretch.stop)
                here = tuple(array[rows] for array in new)
                cell.forward(x[rows], current.before(stretch), here, None if kept is None else kept[rows], scratch)
                current.after(stretch, here)
            for end, last in zip(final, current.state, strict=True):
                end[tile.start : tile.stop] = last

        run_parts(walk, len(tiles))
        ctx.make, ctx.tiles, ctx.num_states, ctx.num_weights = make, tiles, num_states, len(rest) - num_states
        ctx.save_for_backward(x, *rest[:num_states], *rest[num_states:], *new, *([] if kept is None else [kept]))
        return (new[0], *final)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        cell, x, first, new, kept = _saved(ctx)
        tiles: tuple[Tile, ...] = ctx.tiles
        d_out, *d_final = grads
        d_x = torch.empty_like(x) if ctx.needs_input_grad[4] else None
        d_first = tuple(torch.zeros_like(old) for old in first)
        sums = [tuple(torch.zeros_like(weight) for weight in cell.weights) for _ in range(min(GROUPS, len(tiles)))]
        d_out = None if d_out is None else d_out.contiguous()

        def walk(group: int) -> None:
            for tile in tiles[group :: len(sums)]:
                back(tile, sums[group])

        def back(tile: Tile, d_weights: tuple[Tensor, ...]) -> None:
            current = _Current(tuple(old[tile.start : tile.stop] for old in first))
            olds = []
            for stretch in tile.stretches:
                olds.append(current.before(stretch))
                current.after(stretch, tuple(array[stretch.start : stretch.stop] for array in new))
            running = tuple(grad[tile.start : tile.stop] for grad in d_first)
            for grad, last in zip(running, d_final, strict=True):
                if last is not None:
                    grad.copy_(last[tile.start : tile.stop])
            scratch = cell.scratch(tile.widest)
            for stretch, old in zip(reversed(tile.stretches), reversed(olds), strict=True):
                rows = slice(stretch.start, stretch.stop)
                here = running if stretch.at is None else tuple(grad[stretch.at] for grad in running)
                if d_out is not None:
                    here[0].add_(d_out[rows])
                into = Grads(here, d_weights, None if d_x is None else d_x[rows], scratch)
                cell.backward(
                    into, x[rows], old, tuple(array[rows] for array in new), None if kept is None else kept[rows]
                )
                if stretch.at is not None:
                    for grad, part in zip(running, here, strict=True):
                        grad[stretch.at] = part

        run_parts(walk, len(sums))
        d_weights = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)] or [
            torch.zeros_like(weight) for weight in cell.weights
        ]
        return None, None, None, None, d_x, *d_first, *d_weights


class _Current:
    """The state of a tile as it walks: a slice of the results while everybody is present, else a copy of its own."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._own = False

    def before(self, stretch: Stretch) -> State:
        return self.state if stretch.at is None else tuple(old[stretch.at] for old in self.state)

    def after(self, stretch: Stretch, new: State) -> None:
        if stretch.at is None:
            self.state, self._own = new, False
            return
        if not self._own:
            self.state, self._own = tuple(old.clone() for old in self.state), True
        for old, fresh in zip(self.state, new, strict=True):
            old[stretch.at] = fresh


def _saved(ctx: Any) -> tuple[Cell, Tensor, State, State, Tensor | None]:
    x, *rest = ctx.saved_tensors
    parts = []
    for count in (ctx.num_states, ctx.num_weights, ctx.num_states):
        parts.append(tuple(rest[:count]))
        rest = rest[count:]
    first, weights, new = parts
    return ctx.make(*weights), x, first, new, rest[0] if rest else None
