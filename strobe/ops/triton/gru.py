"""GRU: a tile of lanes runs all its steps with the state on chip.

Forward stores the states, which are the result; backward recomputes the gates of each step. Weight gradients are summed
on chip: each of a fixed number of programs sums its tiles in order, so results are deterministic.

With a readout of few outputs, forward computes it together with the states, and backward reads the gradients of the
outputs: gradients of the states are never stored.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from strobe.ops.time.sequences import Sequences
from strobe.ops.triton import Precision, precision
from strobe.ops.triton import readout as readout_kernels
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.gru import gru_backward, gru_forward
from strobe.ops.triton.sequence_tables import LaneSteps

NARROW = 4
"""Maximum input columns projected without tensor cores."""

MAX_HIDDEN, MAX_INPUTS = 64, 128
"""Maximum columns for which weights and their gradients stay on chip."""


ROWS, WARPS, PROGRAMS = 64, 4, 2
"""Lanes and warps of a tile, and programs per multiprocessor in backward."""


def fits(inputs: int, hidden: int) -> bool:
    """Whether kernels support this many columns."""
    return hidden <= MAX_HIDDEN and inputs <= MAX_INPUTS


def fits_readout(outputs: int) -> bool:
    """Whether kernels compute a readout of this many outputs together with the states."""
    return outputs <= readout_kernels.FEW


def gru(
    x: Tensor,
    h: Tensor | None,
    sequences: Sequences,
    weights: tuple[Tensor, ...],
    head: tuple[Tensor, Tensor] | None = None,
    *,
    reset_state: bool,
) -> tuple[Tensor, Tensor]:
    """``strobe.ops.time.gru.gru`` on a GPU, with weights (w_ih, w_hh, b_ih, b_hh); with a ``head`` ``gru_readout``."""
    stage: tuple[Tensor, Tensor] = _Gru.apply(
        sequences, reset_state, precision(), x, h, *(head or (None, None)), *weights
    )  # type: ignore[no-untyped-call]
    return stage


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        reset_state: bool,
        exact: Precision,
        x: Tensor,
        h: Tensor | None,
        head: Tensor | None,
        head_bias: Tensor | None,
        *weights: Tensor,
    ) -> Any:
        ctx.set_materialize_grads(False)
        walk, transport, hidden = LaneSteps.of(sequences), sequences.transport, weights[1].shape[1]
        x, h = x.contiguous(), None if h is None else h.contiguous()
        transfer = None
        if transport is not None:
            # Received states are written into it.
            h = x.new_zeros(sequences.num_slots, hidden) if h is None else h.clone()
            transfer = transport.start([h])
        padded = pad_weights(weights, 3, reset_state)
        padded_head: tuple[Tensor | None, Tensor | None] = (None, None)
        if head is not None and head_bias is not None:
            padded_head = readout_kernels.pad_weights(head, head_bias)
        out = x.new_empty(sequences.num_cells, hidden)
        y = None if head is None else x.new_empty(sequences.num_cells, len(head))
        first = partial(x.new_zeros, sequences.num_slots, hidden) if h is None else h.clone
        last = first() if walk.packed else x.new_empty(sequences.num_slots, hidden)  # all slots, or those with cells
        options = _options(x, hidden, head, reset_state, exact) | {"packed": walk.packed}
        for stage, lanes in walk.in_order:
            if transfer is not None and h is not None:
                transfer.recv(stage, [h])
                if walk.packed:  # kernels write those of slots that have cells
                    last[lanes.slots] = h[lanes.slots]
            if lanes.num_lanes:
                gru_forward[(triton.cdiv(lanes.num_lanes, ROWS),)](
                    x, h, *padded, lanes.cell, walk.before, walk.ends, *padded_head, out, last, y,
                    lanes.first, lanes.end, lanes.stride, lanes.num_steps, rows=ROWS, num_warps=WARPS, **options,
                )  # fmt: skip
            if transfer is not None:
                transfer.send(stage, [last])
        if sequences.capture is not None:
            last = first()
            sequences.capture.scatter(last, out)
            ctx.mark_non_differentiable(last)
        ctx.walk, ctx.options, ctx.transfer, ctx.captures = walk, options, transfer, sequences.capture is not None
        ctx.dtypes = [weight.dtype for weight in weights]
        ctx.save_for_backward(x, h, out, head, head_bias, padded_head[0], *padded)
        return out if y is None else y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, h, out, head, head_bias, padded_head, *padded = ctx.saved_tensors
        walk, transfer, (hp, hidden) = ctx.walk, ctx.transfer, (ctx.options["hp"], ctx.options["hidden"])
        d_first = None if grads[0] is None else grads[0].contiguous()
        d_out, d_y = (d_first, None) if head is None else (None, d_first)
        d_last = None if grads[1] is None or ctx.captures else grads[1].contiguous()
        if transfer is not None:  # gradients of sent states are added to it
            d_last = torch.zeros_like(h) if d_last is None else d_last.clone()
        d_x = torch.empty_like(x) if ctx.needs_input_grad[3] else None
        d_h = None
        if h is not None and (ctx.needs_input_grad[4] or transfer is not None):
            d_h = torch.zeros_like(h) if d_last is None else d_last.clone()  # slots without cells pass it on
        programs = PROGRAMS * num_multiprocessors(x.device)
        programs = max(1, min(max(triton.cdiv(lanes.num_lanes, ROWS) for lanes in walk.stages), programs))
        xp = padded_width(x.shape[1])
        of_state, of_input = _sums(x, programs, 4, 2 * hp, hp), None
        if not ctx.options["narrow"]:
            of_input = _sums(x, programs, 3, xp, hp)
        if transfer is not None:
            transfer.begin_backward()
        for stage, lanes in reversed(walk.in_order):
            if transfer is not None:
                transfer.recv_grad(stage, [d_last])
                if walk.packed and d_h is not None and d_last is not None:
                    d_h[lanes.slots] = d_last[lanes.slots]
            gru_backward[(programs,)](
                x, h, *padded, lanes.cell, walk.before, walk.ends, padded_head, out, d_out, d_y, d_last, d_x, d_h,
                of_input, of_state, lanes.first, lanes.end, lanes.stride, lanes.num_steps,
                triton.cdiv(lanes.num_lanes, ROWS), rows=ROWS, num_warps=WARPS, num_stages=1, xp=xp, **ctx.options,
            )  # fmt: skip
            if transfer is not None:
                transfer.send_grad(stage, [d_h])
        d_head = (None, None) if d_y is None else readout_kernels.weight_gradients(out, head, head_bias, d_y)
        gradients = _weight_gradients(of_input, of_state, x.shape[1], hidden, ctx.options["reset_state"])
        d_weights = (each.to(dtype) for each, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, None, None, d_x, d_h if ctx.needs_input_grad[4] else None, *d_head, *d_weights


def pad_weights(weights: tuple[Tensor, ...] | list[Tensor], gates: int, sum_biases: bool) -> tuple[Tensor, ...]:
    """Convert weights to float32 and pad them with zeros: [gates, in, out] twice, biases [gates, out] twice.

    ``sum_biases``: both biases are added to the inputs.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    hidden = w_hh.shape[1]
    wide = [_pad_matrices(weight.float().view(gates, hidden, -1).transpose(1, 2)) for weight in (w_ih, w_hh)]
    flat = [bias.float().view(gates, hidden) for bias in (b_ih + b_hh if sum_biases else b_ih, b_hh)]
    return *wide, *(pad(bias, (0, padded_width(hidden) - hidden)) for bias in flat)


def _pad_matrices(weights: Tensor) -> Tensor:
    """Pad [gates, in, out] to tile sizes."""
    _, rows, columns = weights.shape
    return pad(weights, (0, padded_width(columns) - columns, 0, padded_width(rows) - rows)).contiguous()


def _sums(x: Tensor, *shape: int) -> Tensor:
    return x.new_zeros(*shape, dtype=torch.float32)


def _options(x: Tensor, hidden: int, head: Tensor | None, reset_state: bool, exact: Precision) -> dict[str, Any]:
    inputs, answers = x.shape[1], 0 if head is None else len(head)
    sizes = {"inputs": inputs, "fp": padded_width(inputs), "hidden": hidden, "hp": padded_width(hidden)}
    sizes |= {"answers": answers, "ap": padded_width(max(answers, 1))}
    return {"reset_state": reset_state, "narrow": inputs <= NARROW, "precision": exact, **sizes}


def _weight_gradients(
    of_input: Tensor | None, of_state: Tensor, inputs: int, hidden: int, reset_state: bool
) -> tuple[Tensor, ...]:
    """Gradients of the four weights from the sums of all programs, in which rows of the state alternate with those of
    inputs and bias."""
    total = of_state.sum(0, dtype=torch.float64).float()[:, :, :hidden]
    state, others = total[:, 0 : 2 * hidden : 2], total[:, 1::2]
    if of_input is None:
        of_inputs, ones = others[:, :inputs], others[:, inputs]
    else:
        of_inputs, ones = of_input.sum(0, dtype=torch.float64).float()[:, :inputs, :hidden], others[:, 0]
    d_w_ih = of_inputs[:3].transpose(1, 2).reshape(-1, inputs)
    of_projected = [slice(3)] if reset_state else [slice(2), slice(3, 4)]  # not a list index, which synchronizes
    d_w_hh, d_b_hh = (torch.cat([each[part] for part in of_projected]) for each in (state, ones))
    return d_w_ih, d_w_hh.transpose(1, 2).reshape(-1, hidden), ones[:3].flatten(), d_b_hh.flatten()
