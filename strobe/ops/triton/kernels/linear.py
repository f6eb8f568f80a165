"""Kernels of linear maps of many rows. Weights are [outputs, inputs] as torch has them; rows are of any kind."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import whole


@kernel
def linear_forward(
    x, weight, bias, y, count, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr, op: tl.constexpr,
    rows: tl.constexpr, relu: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """x Wᵀ + b of a tile of rows, or what is positive of it."""
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    live, col, side = row < count, tl.arange(0, ip), tl.arange(0, op)
    value = tl.load(x + row[:, None] * inputs + col[None, :], whole(live, inputs, ip), 0.0).to(tl.float32)
    there = (side < outputs)[None, :] & (col < inputs)[:, None]
    turned = tl.load(weight + side[None, :] * inputs + col[:, None], there, 0.0).to(tl.float32)
    said = tl.dot(value, turned, input_precision=precision)
    if bias is not None:
        said += tl.load(bias + side, side < outputs, 0.0).to(tl.float32)[None, :]
    if relu:
        said = tl.where(said < 0, 0.0, said)  # what is no number stays that
    tl.store(y + row[:, None] * outputs + side[None, :], said, whole(live, outputs, op))


@kernel
def linear_backward(
    x, weight, y, d_y, d_x, sums, count, num_tiles, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr,
    op: tl.constexpr, rows: tl.constexpr, stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of rows, and each program's sums of those of weights and, in a row more, bias: [ip + 1, op].

    ``y`` is what came out, where only what is positive did; ``d_x`` is None where nobody asks.
    """
    tall: tl.constexpr = ip if ip > 64 else 64  # with fewer, every warp would sum all there is to sum
    col, side, long = tl.arange(0, ip), tl.arange(0, op), tl.arange(0, tall)
    of_weight, of_bias = tl.zeros([tall, op], tl.float32), tl.zeros([rows, op], tl.float32)
    there = (side < outputs)[:, None] & (col < inputs)[None, :]
    flat = tl.load(weight + side[:, None] * inputs + col[None, :], there, 0.0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=stages):
        row = (tile * rows + tl.arange(0, rows)).to(tl.int64)
        live = row < count
        said, asked = row[:, None] * outputs + side[None, :], whole(live, outputs, op)
        value = tl.load(x + row[:, None] * inputs + long[None, :], whole(live, inputs, tall), 0.0).to(tl.float32)
        d = tl.load(d_y + said, asked, 0.0).to(tl.float32)
        if y is not None:
            d = tl.where(tl.load(y + said, asked, 0.0).to(tl.float32) <= 0, 0.0, d)
        if d_x is not None:
            back = tl.dot(d, flat, input_precision=precision)
            tl.store(d_x + row[:, None] * inputs + col[None, :], back, whole(live, inputs, ip))
        of_weight = tl.dot(tl.trans(value), d, of_weight, input_precision=precision)
        of_bias += d
    into = sums + tl.program_id(0) * (ip + 1) * op
    tl.store(into + long[:, None] * op + side[None, :], of_weight, (long < ip)[:, None])
    tl.store(into + ip * op + side, tl.sum(of_bias, 0))
