"""Kernels of a feed-forward layer whose input, and rows beside it, are added to its result. Rows are of any kind."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import whole


@kernel
def _turned(weight, bias, width: tl.constexpr, wp: tl.constexpr):
    """Wᵀ [wp, wp] and b [1, wp]."""
    col, side = tl.arange(0, wp)[:, None], tl.arange(0, wp)[None, :]
    turned = tl.load(weight + side * width + col, (side < width) & (col < width), 0.0).to(tl.float32)
    return turned, tl.load(bias + side, side < width, 0.0).to(tl.float32)


@kernel
def feed_forward_forward(
    y, x, weight, bias, shift, out, count, width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """y + relu(y Wᵀ + b) + x + shift of a tile of rows."""
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    col = tl.arange(0, wp)
    place, mask = row[:, None] * width + col[None, :], whole(row < count, width, wp)
    value = tl.load(y + place, mask, 0.0).to(tl.float32)
    turned, more = _turned(weight, bias, width, wp)
    said = tl.dot(value, turned, input_precision=precision) + more
    total = value + tl.where(said < 0, 0.0, said) + tl.load(x + place, mask, 0.0).to(tl.float32)
    if shift is not None:
        total += tl.load(shift + col, col < width, 0.0).to(tl.float32)[None, :]
    tl.store(out + place, total, mask)


@kernel
def feed_forward_backward(
    y, weight, bias, d_out, d_y, sums, count, num_tiles, width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr,
    stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of y, and each program's sums of those of weights and, in two rows more, bias and shift: [wp + 2, wp].

    What the layer said is computed again: only its sign is wanted.
    """
    tall: tl.constexpr = wp if wp > 64 else 64  # with fewer, every warp would sum all there is to sum
    col, long = tl.arange(0, wp), tl.arange(0, tall)
    of_weight, of_bias = tl.zeros([tall, wp], tl.float32), tl.zeros([rows, wp], tl.float32)
    of_shift = tl.zeros([rows, wp], tl.float32)
    turned, more = _turned(weight, bias, width, wp)
    there = (col < width)[:, None] & (col < width)[None, :]
    flat = tl.load(weight + col[:, None] * width + col[None, :], there, 0.0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=stages):
        row = (tile * rows + tl.arange(0, rows)).to(tl.int64)
        live = row < count
        place, mask = row[:, None] * width + col[None, :], whole(live, width, wp)
        d = tl.load(d_out + place, mask, 0.0).to(tl.float32)
        said = tl.dot(tl.load(y + place, mask, 0.0).to(tl.float32), turned, input_precision=precision) + more
        passed = tl.where(said <= 0, 0.0, d)
        tl.store(d_y + place, tl.dot(passed, flat, d, input_precision=precision), mask)
        value = tl.load(y + row[:, None] * width + long[None, :], whole(live, width, tall), 0.0).to(tl.float32)
        of_weight = tl.dot(tl.trans(value), passed, of_weight, input_precision=precision)
        of_bias += passed
        of_shift += d
    into = sums + tl.program_id(0) * (wp + 2) * wp
    tl.store(into + long[:, None] * wp + col[None, :], of_weight, (long < wp)[:, None])
    tl.store(into + wp * wp + col, tl.sum(of_bias, 0))
    tl.store(into + (wp + 1) * wp + col, tl.sum(of_shift, 0))
