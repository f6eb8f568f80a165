"""LSTM, one layer: a tile of lanes runs all its steps with both states on chip.

Forward stores both states of every cell; backward recomputes the gates and stores their gradients for some lanes at a
time, from which a second kernel sums the weight gradients: they do not fit on chip together with the states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from strobe.ops.triton.sequence_tables import LaneRange, LaneSteps

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
        transfer = None
        if sequences.transport is not None:
            h, c = h.clone(), c.clone()  # received states are written into them
            transfer = sequences.transport.start([h, c])
        out, states = (x.new_empty(sequences.num_cells, h.shape[1]) for _ in range(2))
        lasts = [each.clone() if walk.packed else torch.empty_like(each) for each in (h, c)]
        sizes = {
            "inputs": x.shape[1],
            "fp": padded_width(x.shape[1]),
            "hidden": h.shape[1],
            "hp": padded_width(h.shape[1]),
        }
        options = {"precision": exact, "rows": ROWS, "num_warps": WARPS, "num_stages": 1, **sizes}
        padded = _pad_weights(weights)
        for stage, lanes in walk.in_order:
            if transfer is not None:
                transfer.recv(stage, [h, c])
                _copy_slots(walk, lanes, lasts, [h, c])
            if lanes.num_lanes:
                lstm_forward[(triton.cdiv(lanes.num_lanes, ROWS),)](
                    x, h, c, *padded, lanes.cell, walk.before, walk.ends, out, states, *lasts,
                    lanes.first, lanes.end, lanes.stride, lanes.num_steps, packed=walk.packed, **options,
                )  # fmt: skip
            if transfer is not None:
                transfer.send(stage, lasts)
        if sequences.capture is not None:
            lasts = [h.clone(), c.clone()]
            for last, after in zip(lasts, (out, states), strict=True):
                sequences.capture.scatter(last, after)
            ctx.mark_non_differentiable(*lasts)
        ctx.walk, ctx.options, ctx.transfer, ctx.captures = walk, options, transfer, sequences.capture is not None
        ctx.save_for_backward(x, h, c, out, states, *weights)
        return out, *lasts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, h, c, out, states, *weights = ctx.saved_tensors
        walk, transfer, options = ctx.walk, ctx.transfer, ctx.options
        d_out = None if grads[0] is None else grads[0].contiguous()
        d_lasts: list[Any] = [None if grad is None or ctx.captures else grad.contiguous() for grad in grads[1:]]
        if transfer is not None:  # gradients of sent states are added to them
            d_lasts = [torch.zeros_like(h) if grad is None else grad.clone() for grad in d_lasts]
            transfer.begin_backward()
        d_firsts: list[Any] = [None, None]
        if any(ctx.needs_input_grad[3:5]) or transfer is not None:
            d_firsts = [torch.zeros_like(h) if grad is None else grad.clone() for grad in d_lasts]
        d_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        padded, sums = _pad_weights(weights), _GateGradients(x, h, out, weights[0], d_x, walk, options)
        for stage, lanes in reversed(walk.in_order):
            if transfer is not None:
                transfer.recv_grad(stage, d_lasts)
                _copy_slots(walk, lanes, d_firsts, d_lasts)
            for first, end in _chunks(lanes, 4 * h.shape[1] * x.element_size()):
                d_gates = sums.begin(lanes, first, end)
                lstm_backward[(triton.cdiv(end - first, ROWS),)](
                    x, h, c, *padded, lanes.cell, walk.before, walk.ends, out, states, d_out, *d_lasts, *d_firsts,
                    d_gates, first, end, lanes.stride, lanes.num_steps, packed=walk.packed, **options,
                )  # fmt: skip
                if transfer is not None and end == lanes.end:  # before the sums, for which no rank waits
                    transfer.send_grad(stage, d_firsts)
                sums.add(lanes, first, end)
            if transfer is not None and not lanes.num_lanes:
                transfer.send_grad(stage, d_firsts)
        d_weights = (each.to(weight.dtype) for each, weight in zip(sums.finish(), weights, strict=True))
        return None, None, d_x, *(d_firsts if any(ctx.needs_input_grad[3:5]) else (None, None)), *d_weights


class _GateGradients:
    """Gradients of the pre-activations of the gates, and what is summed from them: gradients of weights and inputs.

    Without tables the lanes of a launch are stored and summed at a time. With tables their cells are scattered: all
    cells are stored, and summed once.
    """

    def __init__(
        self, x: Tensor, h: Tensor, out: Tensor, w_ih: Tensor, d_x: Tensor | None, walk: LaneSteps, options: Any
    ) -> None:
        self._inputs, self._w_ih, self._d_x, self._options = (x, h, walk.before, out), w_ih, d_x, options
        self._columns, self._fp, self._hp = 4 * h.shape[1], options["fp"], options["hp"]
        programs = PROGRAMS * num_multiprocessors(x.device)
        self._of_input = x.new_zeros(programs, 4, self._fp, self._hp, dtype=torch.float32)
        self._of_state = x.new_zeros(programs, 4, 2 * self._hp, self._hp, dtype=torch.float32)
        self._has_table = walk.before is not None
        self._rows = x.new_empty(len(x) if self._has_table else 0, self._columns)

    def begin(self, lanes: LaneRange, first: int, end: int) -> Tensor:
        """Memory for the gradients of some lanes."""
        if not self._has_table:
            self._rows = self._rows.new_empty(0)  # free the last ones first
            self._rows = self._rows.new_empty(lanes.num_steps * (end - first), self._columns)
        return self._rows

    def add(self, lanes: LaneRange, first: int, end: int) -> None:
        """Sum the gradients of some lanes."""
        if self._has_table:
            return
        self._sum(lanes.stride, first, end)
        if self._d_x is None:
            return
        for step, rows in enumerate(self._rows.split(end - first)):
            begin = step * lanes.stride
            torch.mm(rows, self._w_ih.to(rows.dtype), out=self._d_x[begin + first : begin + end])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of both weights and the bias; those of inputs are in their tensor."""
        if self._has_table:
            self._sum(0, 0, 0)
            if self._d_x is not None:
                torch.mm(self._rows, self._w_ih.to(self._rows.dtype), out=self._d_x)
        inputs, hidden = self._inputs[0].shape[1], self._columns // 4
        state = self._of_state.sum(0, dtype=torch.float64).float()[:, :, :hidden]
        of_inputs = self._of_input.sum(0, dtype=torch.float64).float()[:, :inputs, :hidden]
        d_w_hh = state[:, 0 : 2 * hidden : 2].transpose(1, 2).reshape(-1, hidden)
        return of_inputs.transpose(1, 2).reshape(-1, inputs), d_w_hh, state[:, 1].flatten()

    def _sum(self, stride: int, first: int, end: int) -> None:
        count = len(self._rows)
        lstm_weight_gradients[(len(self._of_state),)](
            *self._inputs, self._rows, self._of_input, self._of_state, first, end, stride, count,
            triton.cdiv(count, ROWS), **self._options,
        )  # fmt: skip


def _chunks(lanes: LaneRange, bytes_per_cell: int) -> Iterator[tuple[int, int]]:
    """Ranges of lanes whose gate gradients are stored at a time: all lanes if there is a table."""
    count = max(lanes.num_lanes, 1)
    if lanes.cell is None:
        count = max(ROWS, CHUNK_BYTES // max(1, bytes_per_cell * lanes.num_steps) // ROWS * ROWS)
    for first in range(lanes.first, lanes.end, count):
        yield first, min(first + count, lanes.end)


def _copy_slots(walk: LaneSteps, lanes: LaneRange, into: Sequence[Tensor], states: Sequence[Tensor]) -> None:
    """Copy the states of a stage, of which kernels with packed lanes write those of slots that have cells."""
    if walk.packed:
        for each, state in zip(into, states, strict=True):
            each[lanes.slots] = state[lanes.slots]


def _pad_weights(weights: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, ...]:
    w_ih, w_hh, bias = weights
    return pad_weights((w_ih, w_hh, bias, torch.zeros_like(bias)), 4, sum_biases=False)[:3]
