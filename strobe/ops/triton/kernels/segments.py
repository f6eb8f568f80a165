"""Kernels of answers from rows that each snapshot has multiplied with a matrix of its own. Rows are of any kind."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import whole


@kernel
def _matrix(matrices, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr, op: tl.constexpr):
    """That of this program's snapshot, [ip, op]."""
    col, side = tl.arange(0, ip)[:, None], tl.arange(0, op)[None, :]
    place = tl.program_id(1) * inputs * outputs + col * outputs + side
    return tl.load(matrices + place, (col < inputs) & (side < outputs), 0.0).to(tl.float32)


@kernel
def segment_readout_forward(
    x, matrices, weight, bias, ptr, y, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr, op: tl.constexpr,
    answers: tl.constexpr, ap: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """relu(x M) W + b of a tile of a snapshot's rows; the weights W are [op, ap], padded."""
    first, end = tl.load(ptr + tl.program_id(1)), tl.load(ptr + tl.program_id(1) + 1)
    row = first + (tl.program_id(0) * rows + tl.arange(0, rows))  # which is 64 bits wide
    live, col, side = row < end, tl.arange(0, ip), tl.arange(0, op)
    if first + tl.program_id(0) * rows < end:
        value = tl.load(x + row[:, None] * inputs + col[None, :], whole(live, inputs, ip), 0.0).to(tl.float32)
        z = tl.dot(value, _matrix(matrices, inputs, ip, outputs, op), input_precision=precision)
        positive = tl.where(z < 0, 0.0, z)  # what is no number stays that
        for k in tl.static_range(answers):
            said = tl.sum(positive * tl.load(weight + side * ap + k)[None, :], 1) + tl.load(bias + k)
            tl.store(y + row * answers + k, said, live)


@kernel
def segment_readout_backward(
    x, matrices, weight, ptr, d_y, d_x, of_matrices, of_weight, inputs: tl.constexpr, ip: tl.constexpr,
    outputs: tl.constexpr, op: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr, rows: tl.constexpr,
    stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of rows, and each program's sums of those of its snapshot's matrix [ip, op] and of W, [answers, op].

    What the product was is computed again. ``d_x`` is None where nobody asks.
    """
    tall: tl.constexpr = ip if ip > 64 else 64  # with fewer, every warp would sum all there is to sum
    col, side, long = tl.arange(0, ip), tl.arange(0, op), tl.arange(0, tall)
    first, end = tl.load(ptr + tl.program_id(1)), tl.load(ptr + tl.program_id(1) + 1)
    matrix = _matrix(matrices, inputs, ip, outputs, op)
    turned = tl.trans(matrix)
    of_matrix = tl.zeros([tall, op], tl.float32)
    s_0, s_1 = tl.zeros([rows, op], tl.float32), tl.zeros([rows, op], tl.float32)
    s_2, s_3 = tl.zeros([rows, op], tl.float32), tl.zeros([rows, op], tl.float32)
    tiles = tl.cdiv(end - first, rows).to(tl.int32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=stages):
        row = first + (tile * rows + tl.arange(0, rows))  # which is 64 bits wide
        live, told = row < end, d_y + row * answers
        place, mask = row[:, None] * inputs + col[None, :], whole(live, inputs, ip)
        z = tl.dot(tl.load(x + place, mask, 0.0).to(tl.float32), matrix, input_precision=precision)
        positive = tl.where(z < 0, 0.0, z)
        d, s_0 = _one(tl.zeros([rows, op], tl.float32), s_0, positive, told, weight, live, op, ap)
        if answers > 1:
            d, s_1 = _one(d, s_1, positive, told + 1, weight + 1, live, op, ap)
        if answers > 2:
            d, s_2 = _one(d, s_2, positive, told + 2, weight + 2, live, op, ap)
        if answers > 3:
            d, s_3 = _one(d, s_3, positive, told + 3, weight + 3, live, op, ap)
        d = tl.where(z <= 0, 0.0, d)
        if d_x is not None:
            tl.store(d_x + place, tl.dot(d, turned, input_precision=precision), mask)
        value = tl.load(x + row[:, None] * inputs + long[None, :], whole(live, inputs, tall), 0.0).to(tl.float32)
        of_matrix = tl.dot(tl.trans(value), d, of_matrix, input_precision=precision)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(of_matrices + program * ip * op + long[:, None] * op + side[None, :], of_matrix, (long < ip)[:, None])
    into = of_weight + program * answers * op + side
    tl.store(into, tl.sum(s_0, 0))
    if answers > 1:
        tl.store(into + op, tl.sum(s_1, 0))
    if answers > 2:
        tl.store(into + 2 * op, tl.sum(s_2, 0))
    if answers > 3:
        tl.store(into + 3 * op, tl.sum(s_3, 0))


@kernel
def _one(d, summed, positive, told, weight, live, op: tl.constexpr, ap: tl.constexpr):
    """Gradients with what one answer adds to them: of what is positive, and of its weights, row by row."""
    asked = tl.load(told, live, 0.0).to(tl.float32)[:, None]
    return d + asked * tl.load(weight + tl.arange(0, op) * ap)[None, :], summed + asked * positive
