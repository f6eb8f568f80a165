"""Gated recurrent units: a tile of lanes goes through all its steps with the state on chip.

Forward stores the states, which are the result; backward computes the gates of a step from the state before it again.
Sums of weight gradients stay on chip, too: each of a fixed number of programs goes through its share of the tiles, in
order, and writes one sum at the end; the same bits always.

Where a few answers are all that is made of the states, forward gives them along with the states, and backward reads
their gradients: those of the states, as many numbers as there are states, are never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from strobe.ops.sequences import Sequences
from strobe.ops.triton import Precision, precision
from strobe.ops.triton import readout as answering
from strobe.ops.triton.kernel import multiprocessors, padded
from strobe.ops.triton.kernels.gru import gru_backward, gru_forward
from strobe.ops.triton.walk import Walk

NARROW = 4
"""Inputs of up to so many columns are projected by plain arithmetic, wider ones by the matrix units."""

MOST_HIDDEN, MOST_INPUTS = 64, 128
"""Columns up to which weights and the sums of their gradients stay on chip."""


@dataclass(frozen=True)
class Shape:
    """How a stage is cut: lanes of a tile and warps that run it, on the way there and back; on the way
    back also programs a multiprocessor."""

    forward_rows: int = 64
    forward_warps: int = 4
    backward_rows: int = 64
    backward_warps: int = 4
    programs: int = 2


def fits(inputs: int, hidden: int) -> bool:
    """Whether the kernels are made for this many columns."""
    return hidden <= MOST_HIDDEN and inputs <= MOST_INPUTS


def answers_fit(answers: int) -> bool:
    """Whether the kernels give this many answers along with the states."""
    return answers <= answering.FEW


def gru(
    x: Tensor,
    h: Tensor | None,
    sequences: Sequences,
    weights: tuple[Tensor, ...],
    head: tuple[Tensor, Tensor] | None = None,
    *,
    reset_state: bool,
) -> tuple[Tensor, Tensor]:
    """The same as ``strobe.ops.gru.gru``; weights are (w_ih, w_hh, b_ih, b_hh). With the weight and bias of a ``head``
    the same as ``strobe.ops.gru.gru_readout``."""
    stage: tuple[Tensor, Tensor] = _Gru.apply(
        sequences, reset_state, precision(), Shape(), x, h, *(head or (None, None)), *weights
    )  # type: ignore[no-untyped-call]
    return stage


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        reset_state: bool,
        exact: Precision,
        shape: Shape,
        x: Tensor,
        h: Tensor | None,
        head: Tensor | None,
        of_head: Tensor | None,
        *weights: Tensor,
    ) -> Any:
        ctx.set_materialize_grads(False)
        x, h, walk = x.contiguous(), None if h is None else h.contiguous(), Walk.of(sequences)
        given, hidden = bound(weights, 3, reset_state), weights[1].shape[1]
        of_answers = (None, None) if head is None or of_head is None else answering.bound(head, of_head)
        out = x.new_empty(sequences.num_cells, hidden)
        said = None if head is None else x.new_empty(sequences.num_cells, len(head))
        last = x.new_empty(sequences.num_slots, hidden) if walk.cell is None else None
        options = _options(x, hidden, head, reset_state, exact)
        tiles = triton.cdiv(walk.num_lanes, shape.forward_rows)
        if tiles:
            gru_forward[(tiles,)](
                x, h, *given, walk.cell, walk.before, *of_answers, out, last, said,
                walk.num_lanes, walk.num_steps, rows=shape.forward_rows, num_warps=shape.forward_warps, **options,
            )  # fmt: skip
        if last is None or sequences.leaving is not None:
            first = x.new_zeros(sequences.num_slots, hidden) if h is None else h
            last = walk.last(first, out) if sequences.leaving is None else first.clone()
        if sequences.leaving is not None:
            sequences.leaving.put_all(last, out)
            ctx.mark_non_differentiable(last)
        ctx.walk, ctx.options, ctx.shape, ctx.leaves = walk, options, shape, sequences.leaving is not None
        ctx.kinds = [weight.dtype for weight in weights]
        ctx.save_for_backward(x, h, out, head, of_head, of_answers[0], *given)
        return out if said is None else said, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, h, out, head, of_head, bound_head, *given = ctx.saved_tensors
        walk, shape, (hp, hidden) = ctx.walk, ctx.shape, (ctx.options["hp"], ctx.options["hidden"])
        d_first = None if grads[0] is None else grads[0].contiguous()
        d_out, d_said = (d_first, None) if head is None else (None, d_first)
        d_last = None if grads[1] is None or ctx.leaves else grads[1].contiguous()
        d_x = torch.empty_like(x) if ctx.needs_input_grad[4] else None
        d_h = None
        if h is not None and ctx.needs_input_grad[5]:
            d_h = torch.zeros_like(h) if d_last is None else d_last.clone()  # who has no cell hands it on as it is
        tiles = triton.cdiv(walk.num_lanes, shape.backward_rows)
        programs = max(1, min(tiles, shape.programs * multiprocessors(x.device)))
        xp = padded(x.shape[1])
        of_state, of_input = _sums(x, programs, 4, 2 * hp, hp), None
        if not ctx.options["narrow"]:
            of_input = _sums(x, programs, 3, xp, hp)
        gru_backward[(programs,)](
            x, h, *given, walk.cell, walk.before, walk.ends, bound_head, out, d_out, d_said, d_last, d_x, d_h, of_input,
            of_state, walk.num_lanes, walk.num_steps, tiles,
            rows=shape.backward_rows, num_warps=shape.backward_warps, num_stages=1, xp=xp,
            **ctx.options,
        )  # fmt: skip
        of_answers = (None, None) if d_said is None else answering.weight_gradients(out, head, of_head, d_said)
        found = _unbound(of_input, of_state, x.shape[1], hidden, ctx.options["reset_state"])
        d_weights = (each.to(kind) for each, kind in zip(found, ctx.kinds, strict=True))
        return None, None, None, None, d_x, d_h, *of_answers, *d_weights


def bound(weights: tuple[Tensor, ...] | list[Tensor], gates: int, joined: bool) -> tuple[Tensor, ...]:
    """Weights as kernels want them, float32 and padded with zeros: [gates, in, out] twice, biases [gates, out] twice.

    ``joined``: both biases are added to the inputs.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    hidden = w_hh.shape[1]
    wide = [_padded(weight.float().view(gates, hidden, -1).transpose(1, 2)) for weight in (w_ih, w_hh)]
    flat = [bias.float().view(gates, hidden) for bias in (b_ih + b_hh if joined else b_ih, b_hh)]
    return *wide, *(pad(bias, (0, padded(hidden) - hidden)) for bias in flat)


def _padded(weights: Tensor) -> Tensor:
    """[gates, in, out] with room for tiles in both."""
    _, rows, columns = weights.shape
    return pad(weights, (0, padded(columns) - columns, 0, padded(rows) - rows)).contiguous()


def _sums(x: Tensor, *shape: int) -> Tensor:
    return x.new_zeros(*shape, dtype=torch.float32)


def _options(x: Tensor, hidden: int, head: Tensor | None, reset_state: bool, exact: Precision) -> dict[str, Any]:
    inputs, answers = x.shape[1], 0 if head is None else len(head)
    sizes = {"inputs": inputs, "fp": padded(inputs), "hidden": hidden, "hp": padded(hidden)}
    sizes |= {"answers": answers, "ap": padded(max(answers, 1))}
    return {"reset_state": reset_state, "narrow": inputs <= NARROW, "precision": exact, **sizes}


def _unbound(
    of_input: Tensor | None, of_state: Tensor, inputs: int, hidden: int, reset_state: bool
) -> tuple[Tensor, ...]:
    """Gradients of the four weights from the sums of all programs, in which rows of the state and what stood beside it
    alternate."""
    total = of_state.sum(0, dtype=torch.float64).float()[:, :, :hidden]
    state, beside = total[:, 0 : 2 * hidden : 2], total[:, 1::2]
    if of_input is None:
        of_inputs, ones = beside[:, :inputs], beside[:, inputs]
    else:
        of_inputs, ones = of_input.sum(0, dtype=torch.float64).float()[:, :inputs, :hidden], beside[:, 0]
    d_w_ih = of_inputs[:3].transpose(1, 2).reshape(-1, inputs)
    of_projected = [slice(3)] if reset_state else [slice(2), slice(3, 4)]  # not by a list, which the GPU waits for
    d_w_hh, d_b_hh = (torch.cat([each[part] for part in of_projected]) for each in (state, ones))
    return d_w_ih, d_w_hh.transpose(1, 2).reshape(-1, hidden), ones[:3].flatten(), d_b_hh.flatten()
