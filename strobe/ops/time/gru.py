"""Gated recurrent units over sequences of cells, in both common forms.

The reset gate acts on the state (Cho et al. 2014; T-GCN) or on the projected state (torch and cuDNN). The update is
torch's: h' = z h + (1 - z) candidate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native, triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.dense.readout import readout
from strobe.ops.runtime.buffers import empty
from strobe.ops.time.recurrent import (
    TILE_ROWS,
    State,
    check_inputs,
    run_backward,
    run_forward,
    run_in_torch,
    zeros_per_group,
)
from strobe.ops.time.sequences import Sequences


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
    """Compute the hidden states of all cells [C, H] and the final state of every slot [S, H].

    Args:
        x: inputs of the cells [C, F].
        h: initial state of every slot [S, H]; None for zeros.
        sequences: sequences of the cells.
        w_ih: weights of the inputs [3H, F], gates in the order reset, update, candidate.
        w_hh: weights of the state [3H, H].
        b_ih: bias added to the projected inputs [3H].
        b_hh: bias added to the projected state [3H].
        reset_state: the reset gate acts on the state, not on its projection.
        tile_rows: approximate cells of a tile per snapshot.

    Saves the states only: backward recomputes the gates, which costs less than storing and loading 3H numbers per cell.
    """
    check_inputs([x], w_ih, sequences)
    weights = _fill_biases(w_ih, w_hh, b_ih, b_hh)
    if _use_triton(x, h, sequences, w_hh):
        return triton.gru.gru(x, h, sequences, weights, reset_state=reset_state)
    h = x.new_zeros(sequences.num_slots, w_hh.shape[1]) if h is None else h
    if BF16 in (x.dtype, h.dtype):
        return run_in_float32(gru, x, h, sequences, *weights, reset_state=reset_state, tile_rows=tile_rows)
    if not native.usable(x, h, *weights):
        out, (last,) = run_in_torch(partial(gru_step, weights, reset_state), x, (h,), sequences)
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
    """Compute ``readout(gru(x, h, sequences, *weights), *head)`` [C, K] and the final state of every slot.

    On a GPU both are one kernel if K is small: no gradient of a state is stored.
    """
    if _use_triton(x, h, sequences, weights[1]) and triton.gru.fits_readout(len(head[0])):
        check_inputs([x], weights[0], sequences)
        return triton.gru.gru(x, h, sequences, _fill_biases(*weights), head, reset_state=reset_state)
    out, last = gru(x, h, sequences, *weights, reset_state=reset_state)
    return readout(out, *head), last


def _use_triton(x: Tensor, h: Tensor | None, sequences: Sequences, w_hh: Tensor) -> bool:
    """Whether Triton kernels run the stage."""
    if not triton.usable(x.device, x.dtype, x.dtype if h is None else h.dtype):
        return False
    return triton.gru.fits(x.shape[1], w_hh.shape[1])


def gru_step(weights: tuple[Tensor, ...], reset_state: bool, x: Tensor, state: State) -> State:
    """One step in torch: r, z = σ(W x + U h + b); candidate = tanh(W x + U (r h) + b), or with r (U h)."""
    (h,), (w_ih, w_hh, b_ih, b_hh) = state, weights
    hidden = h.shape[1]
    xr, xz, xc = torch.addmm(b_ih, x, w_ih.t()).chunk(3, 1)
    hr, hz = torch.addmm(b_hh[: 2 * hidden], h, w_hh[: 2 * hidden].t()).chunk(2, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    into, bias = w_hh[2 * hidden :].t(), b_hh[2 * hidden :]
    candidate = torch.tanh(xc + ((r * h) @ into + bias if reset_state else r * torch.addmm(bias, h, into)))
    return (candidate + z * (h - candidate),)


class _Gru(torch.autograd.Function):
    """The stage by native kernels, tile by tile."""

    @staticmethod
    def forward(
        ctx: Any, sequences: Sequences, tile_rows: int, reset_state: bool, x: Tensor, h: Tensor, *weights: Tensor
    ) -> Any:
        grid, slot = sequences.grid(tile_rows), None if sequences.slot is None else sequences.slots
        x, h = x.contiguous(), h.contiguous()
        ctx.transfer = None if sequences.transport is None else sequences.transport.start([h])
        h = h if ctx.transfer is None else h.clone()  # received states are written into it
        hidden = h.shape[1]
        bound = _transpose_weights(weights, reset_state)
        out, last = empty(x, sequences.num_cells, hidden), torch.empty_like(h)
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows)

        def walk(group: int, first: int, end: int) -> None:
            del group
            work = x.new_empty(grid.most_rows * 7 * hidden)
            flags = (x.shape[1], hidden, int(reset_state))
            arrays = (grid.edges, grid.bounds, slot, x, h, *bound)
            native.call("gru_forward", first, end, *sizes, *flags, *arrays, out, last, work)

        run_forward(grid, walk, ctx.transfer, [h], [last])
        if sequences.capture is not None:
            last = h.clone()
            sequences.capture.scatter(last, out)
            ctx.mark_non_differentiable(last)
        ctx.sequences, ctx.grid, ctx.reset_state, ctx.bound = sequences, grid, reset_state, bound
        ctx.save_for_backward(x, h, out, *weights)
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, h, out, *weights = ctx.saved_tensors
        sequences, grid, reset_state = ctx.sequences, ctx.grid, ctx.reset_state
        slot = None if sequences.slot is None else sequences.slots
        hidden = h.shape[1]
        w_ih, w_hh, b_ih, b_hh = ctx.bound
        d_out = grads[0].contiguous()
        d_state = torch.zeros_like(h) if sequences.capture else grads[1].clone(memory_format=torch.contiguous_format)
        d_x = empty(x, *x.shape) if ctx.needs_input_grad[3] else None
        sums = zeros_per_group(grid, (w_ih, w_hh, b_ih, b_hh))
        sizes = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, grid.most_slots)
        plain = tuple(weight.contiguous() for weight in weights[:2])

        def walk(group: int, first: int, end: int) -> None:
            rows = grid.most_rows * 8 + grid.most_slots + grid.most_cells
            work = x.new_empty(rows * hidden + 4 * sequences.num_snapshots)
            flags = (x.shape[1], hidden, int(reset_state))
            arrays = (grid.edges, grid.bounds, slot, x, h, w_ih, w_hh, *plain, b_ih, b_hh, out, d_out, d_state, d_x)
            native.call("gru_backward", first, end, *sizes, *flags, *arrays, *(total[group] for total in sums), work)

        run_backward(grid, walk, ctx.transfer, [d_state])
        d_w_ih, d_w_hh, d_b_ih, d_b_hh = (total.sum(0) for total in sums)
        if reset_state:
            d_b_hh = d_b_ih
        return None, None, None, d_x, d_state, d_w_ih.t(), d_w_hh.t(), d_b_ih, d_b_hh


def _fill_biases(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Replace missing biases by zeros."""
    zeros = w_hh.new_zeros(len(w_hh))
    return w_ih, w_hh, zeros if b_ih is None else b_ih, zeros if b_hh is None else b_hh


def _transpose_weights(weights: tuple[Tensor, ...] | list[Tensor], reset_state: bool) -> tuple[Tensor, ...]:
    """Transpose weights for the kernels; with ``reset_state`` both biases are added to the inputs."""
    w_ih, w_hh, b_ih, b_hh = weights
    b_ih = b_ih + b_hh if reset_state else b_ih
    return w_ih.t().contiguous(), w_hh.t().contiguous(), b_ih.contiguous(), b_hh.contiguous()
