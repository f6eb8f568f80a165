"""Long short-term memory over packed sequences, as torch defines it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native
from strobe.ops.memory import empty
from strobe.ops.recurrent import TILE_ROWS, State, each_group, reference, sums_like
from strobe.ops.sequences import Sequences


def lstm(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Hidden states of all cells [C, H] and the last (h, c) of every slot, [S, H] each.

    Args:
        x: inputs of the cells [C, F].
        state: first (h, c) of every slot.
        sequences: whose cells they are.
        w_ih: weights of the inputs [4H, F], gates in the order input, forget, candidate, output.
        w_hh: weights of the state [4H, H].
        b_ih: bias [4H].
        b_hh: bias [4H].
        keep_gates: store 4H numbers a cell while training, or compute them again in backward: a little slower where
            memory is fast enough, for a third of the memory.
        tile_rows: cells a tile has per snapshot, about.
    """
    zeros = x.new_zeros(w_hh.shape[0])
    bias = (zeros if b_ih is None else b_ih) + (zeros if b_hh is None else b_hh)
    if not native.usable(x, *state, w_ih, w_hh, bias):
        out, (h, c) = reference(partial(lstm_step, (w_ih, w_hh, bias)), x, state, sequences)
        return out, (h, c)
    keep = keep_gates and torch.is_grad_enabled()
    out, h, c = _Lstm.apply(sequences, tile_rows, keep, x, *state, w_ih, w_hh, bias)  # type: ignore[no-untyped-call]
    return out, (h, c)


def lstm_step(weights: tuple[Tensor, ...], x: Tensor, state: State) -> State:
    """One step in plain torch: c' = f c + i u, h' = o tanh(c')."""
    (h, c), (w_ih, w_hh, bias) = state, weights
    i, f, u, o = (torch.addmm(bias, x, w_ih.t()) + h @ w_hh.t()).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
    return torch.sigmoid(o) * torch.tanh(c), c


class _Lstm(torch.autograd.Function):
    """The stage through kernels, tile by tile."""

    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        tile_rows: int,
        keep_gates: bool,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        *weights: Tensor,
    ) -> Any:
        grid, slot = sequences.grid(tile_rows), None if sequences.slot is None else sequences.slots
        x, h, c = x.contiguous(), h.contiguous(), c.contiguous()
        hidden, cells = h.shape[1], sequences.num_cells
        w_ih, w_hh, bias = _bound(weights)
        out, states = empty(x, cells, hidden), empty(x, cells, hidden)
        gates = empty(x, cells, 4 * hidden) if keep_gates and any(ctx.needs_input_grad) else None
        h_last, c_last = torch.empty_like(h), torch.empty_like(c)
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, x.shape[1], hidden)
        arrays = (grid.edges, grid.bounds, slot, x, h, c, w_ih, w_hh, bias, out, states, gates, h_last, c_last)

        def walk(group: int, first: int, end: int) -> None:
            del group
            native.call("lstm_forward", first, end, *sizes, *arrays, x.new_empty(grid.most_rows * 6 * hidden))

        each_group(grid, walk)
        ctx.sequences, ctx.grid = sequences, grid
        ctx.save_for_backward(x, h, c, out, states, gates, *weights)
        return out, h_last, c_last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, h, c, out, states, gates, *weights = ctx.saved_tensors
        sequences, grid = ctx.sequences, ctx.grid
        slot = None if sequences.slot is None else sequences.slots
        hidden = h.shape[1]
        w_ih, w_hh, bias = _bound(weights)
        plain = tuple(weight.contiguous() for weight in weights[:2])
        d_out = grads[0].contiguous()
        d_h, d_c = (grad.clone(memory_format=torch.contiguous_format) for grad in grads[1:])
        d_x = empty(x, *x.shape) if ctx.needs_input_grad[3] else None
        sums = sums_like(grid, (w_ih, w_hh, bias))
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, grid.most_slots, x.shape[1], hidden)
        arrays = (
            grid.edges,
            grid.bounds,
            slot,
            x,
            h,
            c,
            w_ih,
            w_hh,
            *plain,
            bias,
            out,
            states,
            gates,
            d_out,
            d_h,
            d_c,
            d_x,
        )

        def walk(group: int, first: int, end: int) -> None:
            rows = grid.most_rows * 10 + grid.most_slots + 2 * grid.most_cells
            work = x.new_empty(rows * hidden + 4 * sequences.num_snapshots)  # a pointer is two numbers, at most
            native.call("lstm_backward", first, end, *sizes, *arrays, *(total[group] for total in sums), work)

        each_group(grid, walk)
        d_w_ih, d_w_hh, d_bias = (total.sum(0) for total in sums)
        return None, None, None, d_x, d_h, d_c, d_w_ih.t(), d_w_hh.t(), d_bias


def _bound(weights: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, ...]:
    """Weights as kernels want them: transposed."""
    w_ih, w_hh, bias = weights
    return w_ih.t().contiguous(), w_hh.t().contiguous(), bias.contiguous()
