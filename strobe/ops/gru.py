"""Gated recurrent units over packed sequences, in the two forms that are in use.

They differ in where the reset gate acts: on the state (Cho et al. 2014; T-GCN), or on the projected state (torch
and cuDNN). Update as in torch: h' = z h + (1 - z) candidate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native, triton
from strobe.ops.memory import empty
from strobe.ops.narrow import in_float32, is_narrow
from strobe.ops.readout import readout
from strobe.ops.recurrent import TILE_ROWS, State, check_inputs, go_back, go_through, in_torch, sums_like
from strobe.ops.sequences import Sequences


def gru(
    x: Tensor,
    h: Tensor | None,
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    reset_state: bool = False,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, Tensor]:
    """Hidden states of all cells [C, H] and the last state of every slot [S, H].

    Args:
        x: inputs of the cells [C, F].
        h: first state of every slot [S, H]; None for zeros.
        sequences: whose cells they are.
        w_ih: weights of the inputs [3H, F], gates in the order reset, update, candidate.
        w_hh: weights of the state [3H, H].
        b_ih: bias added to the projected inputs [3H].
        b_hh: bias added to the projected state [3H].
        reset_state: the reset gate acts on the state, not on its projection.
        tile_rows: cells a tile has per snapshot, about.

    Keeps nothing but the states: backward computes the gates again, which costs less than to store and load 3H
    numbers a cell.
    """
    check_inputs([x], w_ih, sequences)
    weights = _with_zeros(w_ih, w_hh, b_ih, b_hh)
    if _on_chip(x, h, sequences, w_hh):
        from strobe.ops.triton import gru as kernels

        return kernels.gru(x, h, sequences, weights, reset_state=reset_state)
    h = x.new_zeros(sequences.num_slots, w_hh.shape[1]) if h is None else h
    if is_narrow(x, h):
        return in_float32(gru, x, h, sequences, *weights, reset_state=reset_state, tile_rows=tile_rows)
    if not native.usable(x, h, *weights):
        out, (last,) = in_torch(partial(gru_step, weights, reset_state), x, (h,), sequences)
        return out, last
    stage: tuple[Tensor, Tensor] = _Gru.apply(sequences, tile_rows, reset_state, x, h, *weights)  # type: ignore[no-untyped-call]
    return stage


def gru_readout(
    x: Tensor,
    h: Tensor | None,
    sequences: Sequences,
    weights: tuple[Tensor, Tensor, Tensor],
    head: tuple[Tensor, Tensor],
    *,
    reset_state: bool = False,
) -> tuple[Tensor, Tensor]:
    """``readout(out, *head)`` of the states ``out`` that ``gru`` gives with weights (w_ih, w_hh, b_ih), [C, K], and the
    last state of every slot.

    For a few answers on a GPU the two are one: no gradient of a state is ever stored.
    """
    if _on_chip(x, h, sequences, weights[1]):
        from strobe.ops.triton import gru as kernels

        if kernels.answers_fit(len(head[0])):
            check_inputs([x], weights[0], sequences)
            return kernels.gru(x, h, sequences, _with_zeros(*weights), head, reset_state=reset_state)
    out, last = gru(x, h, sequences, *weights, reset_state=reset_state)
    return readout(out, *head), last


def _on_chip(x: Tensor, h: Tensor | None, sequences: Sequences, w_hh: Tensor) -> bool:
    """Whether the kernels for a GPU run the stage."""
    if not triton.usable(x, *([] if h is None else [h])) or sequences.hand is not None:
        return False
    from strobe.ops.triton import gru as kernels

    return kernels.fits(x.shape[1], w_hh.shape[1])


def gru_step(weights: tuple[Tensor, ...], reset_state: bool, x: Tensor, state: State) -> State:
    """One step in plain torch: r, z = σ(W x + U h + b); candidate = tanh(W x + U (r h) + b), or r (U h) there."""
    (h,), (w_ih, w_hh, b_ih, b_hh) = state, weights
    hidden = h.shape[1]
    xr, xz, xc = torch.addmm(b_ih, x, w_ih.t()).chunk(3, 1)
    hr, hz = torch.addmm(b_hh[: 2 * hidden], h, w_hh[: 2 * hidden].t()).chunk(2, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    into, bias = w_hh[2 * hidden :].t(), b_hh[2 * hidden :]
    candidate = torch.tanh(xc + ((r * h) @ into + bias if reset_state else r * torch.addmm(bias, h, into)))
    return (candidate + z * (h - candidate),)


class _Gru(torch.autograd.Function):
    """The stage through kernels, tile by tile."""

    @staticmethod
    def forward(
        ctx: Any, sequences: Sequences, tile_rows: int, reset_state: bool, x: Tensor, h: Tensor, *weights: Tensor
    ) -> Any:
        grid, slot = sequences.grid(tile_rows), None if sequences.slot is None else sequences.slots
        x, h = x.contiguous(), h.contiguous()
        ctx.errand = None if sequences.hand is None else sequences.hand.send_out([h])
        h = h if ctx.errand is None else h.clone()  # what comes from elsewhere is written into it
        hidden = h.shape[1]
        bound = _bound(weights, reset_state)
        out, last = empty(x, sequences.num_cells, hidden), torch.empty_like(h)
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows)

        def walk(group: int, first: int, end: int) -> None:
            del group
            work = x.new_empty(grid.most_rows * 7 * hidden)
            flags = (x.shape[1], hidden, int(reset_state))
            arrays = (grid.edges, grid.bounds, slot, x, h, *bound)
            native.call("gru_forward", first, end, *sizes, *flags, *arrays, out, last, work)

        go_through(grid, walk, ctx.errand, [h], [last])
        if sequences.leaving is not None:
            last = h.clone()
            sequences.leaving.put_all(last, out)
            ctx.mark_non_differentiable(last)
        ctx.sequences, ctx.grid, ctx.reset_state = sequences, grid, reset_state
        ctx.save_for_backward(x, h, out, *weights)
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, h, out, *weights = ctx.saved_tensors
        sequences, grid, reset_state = ctx.sequences, ctx.grid, ctx.reset_state
        slot = None if sequences.slot is None else sequences.slots
        hidden = h.shape[1]
        w_ih, w_hh, b_ih, b_hh = _bound(weights, reset_state)
        d_out = grads[0].contiguous()
        d_state = torch.zeros_like(h) if sequences.leaving else grads[1].clone(memory_format=torch.contiguous_format)
        d_x = empty(x, *x.shape) if ctx.needs_input_grad[3] else None
        sums = sums_like(grid, (w_ih, w_hh, b_ih, b_hh))
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, grid.most_slots)
        plain = tuple(weight.contiguous() for weight in weights[:2])

        def walk(group: int, first: int, end: int) -> None:
            rows = grid.most_rows * 8 + grid.most_slots + grid.most_cells
            work = x.new_empty(rows * hidden + 4 * sequences.num_snapshots)  # a place of rows is four numbers, at most
            flags = (x.shape[1], hidden, int(reset_state))
            arrays = (grid.edges, grid.bounds, slot, x, h, w_ih, w_hh, *plain, b_ih, b_hh, out, d_out, d_state, d_x)
            native.call("gru_backward", first, end, *sizes, *flags, *arrays, *(total[group] for total in sums), work)

        go_back(grid, walk, ctx.errand, [d_state])
        d_w_ih, d_w_hh, d_b_ih, d_b_hh = (total.sum(0) for total in sums)
        if reset_state:
            d_b_hh = d_b_ih
        return None, None, None, d_x, d_state, d_w_ih.t(), d_w_hh.t(), d_b_ih, d_b_hh


def _with_zeros(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Weights, with biases of zeros where there are none."""
    zeros = w_hh.new_zeros(len(w_hh))
    return w_ih, w_hh, zeros if b_ih is None else b_ih, zeros if b_hh is None else b_hh


def _bound(weights: tuple[Tensor, ...] | list[Tensor], reset_state: bool) -> tuple[Tensor, ...]:
    """Weights as kernels want them: transposed; where reset acts on the state, both biases are added to the inputs."""
    w_ih, w_hh, b_ih, b_hh = weights
    b_ih = b_ih + b_hh if reset_state else b_ih
    return w_ih.t().contiguous(), w_hh.t().contiguous(), b_ih.contiguous(), b_hh.contiguous()
