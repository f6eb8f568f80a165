"""Long short-term memory, one layer: a tile of lanes goes through all its steps with both states on chip.

Forward stores both states of every cell; backward computes the gates of a step again, and keeps the sums of weight
gradients on chip as the gated recurrent units do.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.sequences import Sequences
from strobe.ops.triton import Precision, precision
from strobe.ops.triton.gru import Shape, bound
from strobe.ops.triton.kernel import multiprocessors, padded
from strobe.ops.triton.kernels.lstm import lstm_backward, lstm_forward
from strobe.ops.triton.walk import Walk

MOST_HIDDEN, MOST_INPUTS = 32, 64
"""Columns up to which weights and the sums of their gradients stay on chip."""

SHAPES = {"tf32": Shape(64, 4, 128, 8, 1), "tf32x3": Shape(64, 4, 64, 4, 1)}


def fits(inputs: int, hidden: int) -> bool:
    """Whether the kernels are made for this many columns."""
    return hidden <= MOST_HIDDEN and inputs <= MOST_INPUTS


def lstm(
    x: Tensor, state: tuple[Tensor, Tensor], sequences: Sequences, weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The same as one layer of ``strobe.ops.lstm.lstm_stack``."""
    out, h, c = _Lstm.apply(sequences, precision(), SHAPES[precision()], x, *state, *weights)  # type: ignore[no-untyped-call]
    return out, (h, c)


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        exact: Precision,
        shape: Shape,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        *weights: Tensor,
    ) -> Any:
        ctx.set_materialize_grads(False)
        x, h, c, walk = x.contiguous(), h.contiguous(), c.contiguous(), Walk.of(sequences)
        out, states = (x.new_empty(sequences.num_cells, h.shape[1]) for _ in range(2))
        lasts = [torch.empty_like(h), torch.empty_like(c)] if walk.cell is None else [None, None]
        sizes = {"inputs": x.shape[1], "fp": padded(x.shape[1]), "hidden": h.shape[1], "hp": padded(h.shape[1])}
        options = {"precision": exact, **sizes}
        tiles = triton.cdiv(walk.num_lanes, shape.forward_rows)
        if tiles:
            lstm_forward[(tiles,)](
                x, h, c, *_bound(weights), walk.cell, walk.before, out, states, *lasts, walk.num_lanes, walk.num_steps,
                rows=shape.forward_rows, num_warps=shape.forward_warps, **options,
            )  # fmt: skip
        if walk.cell is not None:
            lasts = [walk.last(h, out), walk.last(c, states)]
        if sequences.leaving is not None:
            lasts = [h.clone(), c.clone()]
            for last, after in zip(lasts, (out, states), strict=True):
                sequences.leaving.put_all(last, after)
            ctx.mark_non_differentiable(*lasts)
        ctx.walk, ctx.options, ctx.shape, ctx.leaves = walk, options, shape, sequences.leaving is not None
        ctx.save_for_backward(x, h, c, out, states, *weights)
        return out, *lasts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, h, c, out, states, *weights = ctx.saved_tensors
        walk, shape, sizes = ctx.walk, ctx.shape, ctx.options
        d_out = None if grads[0] is None else grads[0].contiguous()
        d_lasts = [None if grad is None or ctx.leaves else grad.contiguous() for grad in grads[1:]]
        d_h, d_c = (torch.zeros_like(h) if grad is None else grad.clone() for grad in d_lasts)
        d_x = torch.empty_like(x) if ctx.needs_input_grad[3] else None
        tiles = triton.cdiv(walk.num_lanes, shape.backward_rows)
        programs = max(1, min(tiles, shape.programs * multiprocessors(x.device)))
        of_input = x.new_zeros(programs, 4, sizes["fp"], sizes["hp"], dtype=torch.float32)
        of_state = x.new_zeros(programs, 4, 2 * sizes["hp"], sizes["hp"], dtype=torch.float32)
        lstm_backward[(programs,)](
            x, h, c, *_bound(weights), walk.cell, walk.before, walk.ends, out, states, d_out, *d_lasts, d_x, d_h, d_c,
            of_input, of_state, walk.num_lanes, walk.num_steps, tiles,
            rows=shape.backward_rows, num_warps=shape.backward_warps, num_stages=shape.stages, **ctx.options,
        )  # fmt: skip
        found = _unbound(of_input, of_state, x.shape[1], h.shape[1])
        kinds = [weight.dtype for weight in weights]
        return None, None, None, d_x, d_h, d_c, *(each.to(kind) for each, kind in zip(found, kinds, strict=True))


def _bound(weights: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, ...]:
    w_ih, w_hh, bias = weights
    return bound((w_ih, w_hh, bias, torch.zeros_like(bias)), 4, joined=False)[:3]


def _unbound(of_input: Tensor, of_state: Tensor, inputs: int, hidden: int) -> tuple[Tensor, ...]:
    """Gradients of the weights and the bias from the sums of all programs."""
    state = of_state.sum(0, dtype=torch.float64).float()[:, :, :hidden]
    of_inputs = of_input.sum(0, dtype=torch.float64).float()[:, :inputs, :hidden]
    d_w_hh = state[:, 0 : 2 * hidden : 2].transpose(1, 2).reshape(-1, hidden)
    return of_inputs.transpose(1, 2).reshape(-1, inputs), d_w_hh, state[:, 1].flatten()
