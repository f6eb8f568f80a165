"""Kernels of the last step of an answer: a linear map of what is positive in rows.

Few answers are plain arithmetic at the speed of memory; many are products of matrices.
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import whole


@kernel
def readout_forward(
    z, weight, bias, chosen, y, count, width: tl.constexpr, wp: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr,
    rows: tl.constexpr, few: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """relu(z) W + b; the weights are [wp, ap], padded."""
    at = tl.program_id(0) * rows + tl.arange(0, rows)
    live = at < count
    row = at.to(tl.int64) if chosen is None else tl.load(chosen + at, live, 0)
    col, side = tl.arange(0, wp), tl.arange(0, ap)
    value = tl.load(z + row[:, None] * width + col[None, :], whole(live, width, wp), 0.0).to(tl.float32)
    value = tl.maximum(value, 0.0)
    if few:
        for k in tl.static_range(answers):
            said = tl.sum(value * tl.load(weight + col * ap + k)[None, :], 1) + tl.load(bias + k)
            tl.store(y + at.to(tl.int64) * answers + k, said, live)
    else:
        said = tl.dot(value, tl.load(weight + col[:, None] * ap + side[None, :]), input_precision=precision)
        said += tl.load(bias + side)[None, :]
        place = at.to(tl.int64)[:, None] * answers + side[None, :]
        tl.store(y + place, said, live[:, None] & (side < answers)[None, :])


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


@kernel
def readout_backward_few(
    z, weight, chosen, d_y, d_z, sums, count, num_tiles, width: tl.constexpr, wp: tl.constexpr, answers: tl.constexpr,
    ap: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The same for up to four answers; sums of all rows of tiles are kept apart until the end. Without ``d_z`` nothing
    but those sums is wanted."""
    col = tl.arange(0, wp)
    w_0, w_1 = tl.load(weight + col * ap), tl.load(weight + col * ap + 1)
    w_2, w_3 = tl.load(weight + col * ap + 2), tl.load(weight + col * ap + 3)
    s_0, s_1 = tl.zeros([rows, wp], tl.float32), tl.zeros([rows, wp], tl.float32)
    s_2, s_3 = tl.zeros([rows, wp], tl.float32), tl.zeros([rows, wp], tl.float32)
    b_0, b_1 = tl.zeros([rows], tl.float32), tl.zeros([rows], tl.float32)
    b_2, b_3 = tl.zeros([rows], tl.float32), tl.zeros([rows], tl.float32)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        at = tile * rows + tl.arange(0, rows)
        live = at < count
        row = at.to(tl.int64) if chosen is None else tl.load(chosen + at, live, 0)
        place, mask = row[:, None] * width + col[None, :], whole(live, width, wp)
        value = tl.load(z + place, mask, 0.0).to(tl.float32)
        positive = tl.maximum(value, 0.0)
        told = d_y + at.to(tl.int64) * answers
        d = tl.load(told, live, 0.0).to(tl.float32)
        back = d[:, None] * w_0[None, :]
        s_0 += d[:, None] * positive
        b_0 += d
        if answers > 1:
            d = tl.load(told + 1, live, 0.0).to(tl.float32)
            back += d[:, None] * w_1[None, :]
            s_1 += d[:, None] * positive
            b_1 += d
        if answers > 2:
            d = tl.load(told + 2, live, 0.0).to(tl.float32)
            back += d[:, None] * w_2[None, :]
            s_2 += d[:, None] * positive
            b_2 += d
        if answers > 3:
            d = tl.load(told + 3, live, 0.0).to(tl.float32)
            back += d[:, None] * w_3[None, :]
            s_3 += d[:, None] * positive
            b_3 += d
        if d_z is not None:
            tl.store(d_z + place, tl.where(value > 0, back, 0.0), mask)
    into = sums + tl.program_id(0) * (wp + 1) * ap
    _put_sum(into, s_0, b_0, wp, ap)
    if answers > 1:
        _put_sum(into + 1, s_1, b_1, wp, ap)
    if answers > 2:
        _put_sum(into + 2, s_2, b_2, wp, ap)
    if answers > 3:
        _put_sum(into + 3, s_3, b_3, wp, ap)


@kernel
def _put_sum(into, of_weight, of_bias, wp: tl.constexpr, ap: tl.constexpr):
    tl.store(into + tl.arange(0, wp) * ap, tl.sum(of_weight, 0))
    tl.store(into + wp * ap, tl.sum(of_bias, 0))
