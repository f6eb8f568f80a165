"""LSTM, one layer: a tile of lanes runs all its steps with both states on chip.

Forward stores both states of every cell; backward recomputes the gates and stores their gradients for some lanes at a
time, from which a second kernel sums the weight gradients: they do not fit on chip together with the states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.time.sequences import Sequences
from strobe.ops.triton import Precision, precision
from strobe.ops.triton.gru import pad_weights
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.lstm import lstm_backward, lstm_forward, lstm_weight_gradients
from strobe.ops.triton.sequence_tables import LaneSteps

MAX_HIDDEN, MAX_INPUTS = 32, 64
"""Maximum columns for which weights and their gradients stay on chip."""

ROWS, WARPS = 64, 4
"""Lanes and warps of a tile."""

PROGRAMS = 2
"""Programs per multiprocessor that sum weight gradients."""

CHUNK_BYTES = 1 << 29
"""Approximate size of the gate gradients stored at a time."""


def fits(inputs: int, hidden: int) -> bool:
    """Whether kernels support this many columns."""
    return hidden <= MAX_HIDDEN and inputs <= MAX_INPUTS


def lstm(
    x: Tensor, state: tuple[Tensor, Tensor], sequences: Sequences, weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer of ``strobe.ops.time.lstm.lstm_stack`` on a GPU."""
    out, h, c = _Lstm.apply(sequences, precision(), x, *state, *weights)  # type: ignore[no-untyped-call]
    return out, (h, c)


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        exact: Precision,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        *weights: Tensor,
    ) -> Any:
        ctx.set_materialize_grads(False)
        x, h, c, walk = x.contiguous(), h.contiguous(), c.contiguous(), LaneSteps.of(sequences)
        out, states = (x.new_empty(sequences.num_cells, h.shape[1]) for _ in range(2))
        lasts = [torch.empty_like(h), torch.empty_like(c)] if walk.cell is None else [None, None]
        sizes = {
            "inputs": x.shape[1],
            "fp": padded_width(x.shape[1]),
            "hidden": h.shape[1],
            "hp": padded_width(h.shape[1]),
        }
        options = {"precision": exact, "rows": ROWS, "num_warps": WARPS, "num_stages": 1, **sizes}
        tiles = triton.cdiv(walk.num_lanes, ROWS)
        if tiles:
            lstm_forward[(tiles,)](
                x, h, c, *_pad_weights(weights), walk.cell, walk.before, out, states, *lasts,
                walk.num_lanes, walk.num_steps,
                **options,
            )  # fmt: skip
        if walk.cell is not None:
            lasts = [walk.last_states(h, out), walk.last_states(c, states)]
        if sequences.capture is not None:
            lasts = [h.clone(), c.clone()]
            for last, after in zip(lasts, (out, states), strict=True):
                sequences.capture.scatter(last, after)
            ctx.mark_non_differentiable(*lasts)
        ctx.walk, ctx.options, ctx.captures = walk, options, sequences.capture is not None
        ctx.save_for_backward(x, h, c, out, states, *weights)
        return out, *lasts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, h, c, out, states, *weights = ctx.saved_tensors
        walk, options = ctx.walk, ctx.options
        d_out = None if grads[0] is None else grads[0].contiguous()
        d_lasts = [None if grad is None or ctx.captures else grad.contiguous() for grad in grads[1:]]
        d_h = d_c = None
        if any(ctx.needs_input_grad[3:5]):
            d_h, d_c = (torch.zeros_like(h) if grad is None else grad.clone() for grad in d_lasts)
        d_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        hp, programs = options["hp"], PROGRAMS * num_multiprocessors(x.device)
        of_input = x.new_zeros(programs, 4, options["fp"], hp, dtype=torch.float32)
        of_state = x.new_zeros(programs, 4, 2 * hp, hp, dtype=torch.float32)
        tables, padded = (walk.cell, walk.before, walk.ends), _pad_weights(weights)
        for first, last in _chunks(walk, 4 * h.shape[1] * x.element_size()):
            count = len(x) if walk.cell is not None else walk.num_steps * (last - first)
            d_gates = x.new_empty(count, 4 * h.shape[1])
            lstm_backward[(triton.cdiv(last - first, ROWS),)](
                x, h, c, *padded, *tables, out, states, d_out, *d_lasts, d_h, d_c, d_gates,
                walk.num_lanes, walk.num_steps, first, last, **options,
            )  # fmt: skip
            lstm_weight_gradients[(programs,)](
                x, h, walk.before, out, d_gates, of_input, of_state, walk.num_lanes, first, last, count,
                triton.cdiv(count, ROWS), **options,
            )  # fmt: skip
            if d_x is not None:
                _write_input_gradients(d_x, d_gates, weights[0], walk, first, last)
            del d_gates
        gradients = _weight_gradients(of_input, of_state, x.shape[1], h.shape[1])
        d_weights = (each.to(weight.dtype) for each, weight in zip(gradients, weights, strict=True))
        return None, None, d_x, d_h, d_c, *d_weights


def _chunks(walk: LaneSteps, bytes_per_cell: int) -> Iterator[tuple[int, int]]:
    """Ranges of lanes: all lanes if there are tables, whose cells are scattered."""
    if walk.cell is not None:
        if walk.num_lanes:
            yield 0, walk.num_lanes
        return
    lanes = max(ROWS, CHUNK_BYTES // max(1, bytes_per_cell * walk.num_steps) // ROWS * ROWS)
    for first in range(0, walk.num_lanes, lanes):
        yield first, min(first + lanes, walk.num_lanes)


def _write_input_gradients(d_x: Tensor, d_gates: Tensor, w_ih: Tensor, walk: LaneSteps, first: int, last: int) -> None:
    """Write the input gradients of the cells of a chunk."""
    weight = w_ih.to(d_gates.dtype)
    if walk.cell is not None:
        torch.mm(d_gates, weight, out=d_x)
        return
    for step, rows in enumerate(d_gates.split(last - first)):
        begin = step * walk.num_lanes
        torch.mm(rows, weight, out=d_x[begin + first : begin + last])


def _pad_weights(weights: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, ...]:
    w_ih, w_hh, bias = weights
    return pad_weights((w_ih, w_hh, bias, torch.zeros_like(bias)), 4, sum_biases=False)[:3]


def _weight_gradients(of_input: Tensor, of_state: Tensor, inputs: int, hidden: int) -> tuple[Tensor, ...]:
    """Gradients of the weights and the bias from the sums of all programs."""
    state = of_state.sum(0, dtype=torch.float64).float()[:, :, :hidden]
    of_inputs = of_input.sum(0, dtype=torch.float64).float()[:, :inputs, :hidden]
    d_w_hh = state[:, 0 : 2 * hidden : 2].transpose(1, 2).reshape(-1, hidden)
    return of_inputs.transpose(1, 2).reshape(-1, inputs), d_w_hh, state[:, 1].flatten()
