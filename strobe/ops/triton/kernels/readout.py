"""Kernels of the last step of an answer: a linear map of what is positive in rows."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import whole


@kernel
def readout_forward(
    z, weight, bias, chosen, y, count, width: tl.constexpr, wp: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr,
    rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """relu(z) W + b; the weights are [wp, ap], padded."""
    at = tl.program_id(0) * rows + tl.arange(0, rows)
    live = at < count
    row = at.to(tl.int64) if chosen is None else tl.load(chosen + at, live, 0)
    col, side = tl.arange(0, wp), tl.arange(0, ap)
    value = tl.load(z + row[:, None] * width + col[None, :], whole(live, width, wp), 0.0).to(tl.float32)
    said = tl.dot(tl.maximum(value, 0.0), tl.load(weight + col[:, None] * ap + side[None, :]), input_precision=precision)
    said += tl.load(bias + side)[None, :]
    tl.store(y + at.to(tl.int64)[:, None] * answers + side[None, :], said, live[:, None] & (side < answers)[None, :])


@kernel
def readout_backward(
    z, weight, chosen, d_y, d_z, sums, count, num_tiles, width: tl.constexpr, wp: tl.constexpr, answers: tl.constexpr,
    ap: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of the rows that were asked, and each program's sums of those of weights and, in a row more, bias."""
    col, side = tl.arange(0, wp), tl.arange(0, ap)
    turned = tl.load(weight + col[None, :] * ap + side[:, None])
    of_weight, of_bias = tl.zeros([wp, ap], tl.float32), tl.zeros([rows, ap], tl.float32)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        at = tile * rows + tl.arange(0, rows)
        live = at < count
        row = at.to(tl.int64) if chosen is None else tl.load(chosen + at, live, 0)
        place, mask = row[:, None] * width + col[None, :], whole(live, width, wp)
        value = tl.load(z + place, mask, 0.0).to(tl.float32)
        asked = live[:, None] & (side < answers)[None, :]
        d = tl.load(d_y + at.to(tl.int64)[:, None] * answers + side[None, :], asked, 0.0).to(tl.float32)
        tl.store(d_z + place, tl.where(value > 0, tl.dot(d, turned, input_precision=precision), 0.0), mask)
        of_weight = tl.dot(tl.trans(tl.maximum(value, 0.0)), d, of_weight, input_precision=precision)
        of_bias += d
    into = sums + tl.program_id(0) * (wp + 1) * ap
    tl.store(into + col[:, None] * ap + side[None, :], of_weight)
    tl.store(into + wp * ap + side, tl.sum(of_bias, 0))
