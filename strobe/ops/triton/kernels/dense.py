"""Kernels of linear maps, feed-forward layers and readouts. Weights are [outputs, inputs]; rows of any dtype."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import tile_mask


@kernel
def linear_forward(
    x, weight, bias, y, count, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr, op: tl.constexpr,
    rows: tl.constexpr, relu: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """x Wᵀ + b of a tile of rows, with an optional ReLU."""
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    live, col, side = row < count, tl.arange(0, ip), tl.arange(0, op)
    value = tl.load(x + row[:, None] * inputs + col[None, :], tile_mask(live, inputs, ip), 0.0).to(tl.float32)
    there = (side < outputs)[None, :] & (col < inputs)[:, None]
    turned = tl.load(weight + side[None, :] * inputs + col[:, None], there, 0.0).to(tl.float32)
    out = tl.dot(value, turned, input_precision=precision)
    if bias is not None:
        out += tl.load(bias + side, side < outputs, 0.0).to(tl.float32)[None, :]
    if relu:
        out = tl.where(out < 0, 0.0, out)  # NaN stays NaN
    tl.store(y + row[:, None] * outputs + side[None, :], out, tile_mask(live, outputs, op))


@kernel
def linear_backward(
    x, weight, y, d_y, d_x, sums, count, num_tiles, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr,
    op: tl.constexpr, rows: tl.constexpr, stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Row gradients, and per program the sums of weight gradients and, in the last row, bias: [ip + 1, op].

    ``y``: output of the ReLU, None without; ``d_x`` None: not computed.
    """
    tall: tl.constexpr = ip if ip > 64 else 64  # with fewer rows every warp would compute the full sum
    col, side, long = tl.arange(0, ip), tl.arange(0, op), tl.arange(0, tall)
    of_weight, of_bias = tl.zeros([tall, op], tl.float32), tl.zeros([rows, op], tl.float32)
    there = (side < outputs)[:, None] & (col < inputs)[None, :]
    flat = tl.load(weight + side[:, None] * inputs + col[None, :], there, 0.0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=stages):
        row = (tile * rows + tl.arange(0, rows)).to(tl.int64)
        live = row < count
        at, mask = row[:, None] * outputs + side[None, :], tile_mask(live, outputs, op)
        value = tl.load(x + row[:, None] * inputs + long[None, :], tile_mask(live, inputs, tall), 0.0).to(tl.float32)
        d = tl.load(d_y + at, mask, 0.0).to(tl.float32)
        if y is not None:
            d = tl.where(tl.load(y + at, mask, 0.0).to(tl.float32) <= 0, 0.0, d)
        if d_x is not None:
            back = tl.dot(d, flat, input_precision=precision)
            tl.store(d_x + row[:, None] * inputs + col[None, :], back, tile_mask(live, inputs, ip))
        of_weight = tl.dot(tl.trans(value), d, of_weight, input_precision=precision)
        of_bias += d
    into = sums + tl.program_id(0) * (ip + 1) * op
    tl.store(into + long[:, None] * op + side[None, :], of_weight, (long < ip)[:, None])
    tl.store(into + ip * op + side, tl.sum(of_bias, 0))


@kernel
def _load_transposed(weight, bias, width: tl.constexpr, wp: tl.constexpr):
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
    place, mask = row[:, None] * width + col[None, :], tile_mask(row < count, width, wp)
    value = tl.load(y + place, mask, 0.0).to(tl.float32)
    turned, more = _load_transposed(weight, bias, width, wp)
    hidden = tl.dot(value, turned, input_precision=precision) + more
    total = value + tl.where(hidden < 0, 0.0, hidden) + tl.load(x + place, mask, 0.0).to(tl.float32)
    if shift is not None:
        total += tl.load(shift + col, col < width, 0.0).to(tl.float32)[None, :]
    tl.store(out + place, total, mask)


@kernel
def feed_forward_backward(
    y, weight, bias, d_out, d_y, sums, count, num_tiles, width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr,
    stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of y, and per program the sums of those of weights, bias and shift: [wp + 2, wp].

    The pre-activation is recomputed for its sign.
    """
    tall: tl.constexpr = wp if wp > 64 else 64  # with fewer rows every warp would compute the full sum
    col, long = tl.arange(0, wp), tl.arange(0, tall)
    of_weight, of_bias = tl.zeros([tall, wp], tl.float32), tl.zeros([rows, wp], tl.float32)
    of_shift = tl.zeros([rows, wp], tl.float32)
    turned, more = _load_transposed(weight, bias, width, wp)
    there = (col < width)[:, None] & (col < width)[None, :]
    flat = tl.load(weight + col[:, None] * width + col[None, :], there, 0.0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=stages):
        row = (tile * rows + tl.arange(0, rows)).to(tl.int64)
        live = row < count
        place, mask = row[:, None] * width + col[None, :], tile_mask(live, width, wp)
        d = tl.load(d_out + place, mask, 0.0).to(tl.float32)
        hidden = tl.dot(tl.load(y + place, mask, 0.0).to(tl.float32), turned, input_precision=precision) + more
        passed = tl.where(hidden <= 0, 0.0, d)
        tl.store(d_y + place, tl.dot(passed, flat, d, input_precision=precision), mask)
        value = tl.load(y + row[:, None] * width + long[None, :], tile_mask(live, width, tall), 0.0).to(tl.float32)
        of_weight = tl.dot(tl.trans(value), passed, of_weight, input_precision=precision)
        of_bias += passed
        of_shift += d
    into = sums + tl.program_id(0) * (wp + 2) * wp
    tl.store(into + long[:, None] * wp + col[None, :], of_weight, (long < wp)[:, None])
    tl.store(into + wp * wp + col, tl.sum(of_bias, 0))
    tl.store(into + (wp + 1) * wp + col, tl.sum(of_shift, 0))


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
    value = tl.load(z + row[:, None] * width + col[None, :], tile_mask(live, width, wp), 0.0).to(tl.float32)
    value = tl.maximum(value, 0.0)
    if few:
        for k in tl.static_range(answers):
            out = tl.sum(value * tl.load(weight + col * ap + k)[None, :], 1) + tl.load(bias + k)
            tl.store(y + at.to(tl.int64) * answers + k, out, live)
    else:
        out = tl.dot(value, tl.load(weight + col[:, None] * ap + side[None, :]), input_precision=precision)
        out += tl.load(bias + side)[None, :]
        place = at.to(tl.int64)[:, None] * answers + side[None, :]
        tl.store(y + place, out, live[:, None] & (side < answers)[None, :])


@kernel
def readout_backward(
    z, weight, chosen, d_y, d_z, sums, count, num_tiles, width: tl.constexpr, wp: tl.constexpr, answers: tl.constexpr,
    ap: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of the selected rows, and per program the sums of weight gradients and, in the last row, bias."""
    col, side = tl.arange(0, wp), tl.arange(0, ap)
    turned = tl.load(weight + col[None, :] * ap + side[:, None])
    of_weight, of_bias = tl.zeros([wp, ap], tl.float32), tl.zeros([rows, ap], tl.float32)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        at = tile * rows + tl.arange(0, rows)
        live = at < count
        row = at.to(tl.int64) if chosen is None else tl.load(chosen + at, live, 0)
        place, mask = row[:, None] * width + col[None, :], tile_mask(live, width, wp)
        value = tl.load(z + place, mask, 0.0).to(tl.float32)
        in_outputs = live[:, None] & (side < answers)[None, :]
        d = tl.load(d_y + at.to(tl.int64)[:, None] * answers + side[None, :], in_outputs, 0.0).to(tl.float32)
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
    """``readout_backward`` for up to four outputs; tile rows are summed at the end. ``d_z`` None: sums only."""
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
        place, mask = row[:, None] * width + col[None, :], tile_mask(live, width, wp)
        value = tl.load(z + place, mask, 0.0).to(tl.float32)
        relu, grad = tl.maximum(value, 0.0), d_y + at.to(tl.int64) * answers
        d, s_0, d_out = _add_output_gradient(tl.zeros([rows, wp], tl.float32), s_0, relu, grad, w_0, live)
        b_0 += d_out
        if answers > 1:
            d, s_1, d_out = _add_output_gradient(d, s_1, relu, grad + 1, w_1, live)
            b_1 += d_out
        if answers > 2:
            d, s_2, d_out = _add_output_gradient(d, s_2, relu, grad + 2, w_2, live)
            b_2 += d_out
        if answers > 3:
            d, s_3, d_out = _add_output_gradient(d, s_3, relu, grad + 3, w_3, live)
            b_3 += d_out
        if d_z is not None:
            tl.store(d_z + place, tl.where(value > 0, d, 0.0), mask)
    into = sums + tl.program_id(0) * (wp + 1) * ap
    _store_sum(into, s_0, b_0, wp, ap)
    if answers > 1:
        _store_sum(into + 1, s_1, b_1, wp, ap)
    if answers > 2:
        _store_sum(into + 2, s_2, b_2, wp, ap)
    if answers > 3:
        _store_sum(into + 3, s_3, b_3, wp, ap)


@kernel
def _add_output_gradient(d, total, relu, d_y, weight, live):
    """Add one output's gradient to those of the activations and of its weights, row by row; also return it."""
    grad = tl.load(d_y, live, 0.0).to(tl.float32)
    return d + grad[:, None] * weight[None, :], total + grad[:, None] * relu, grad


@kernel
def _store_sum(into, of_weight, of_bias, wp: tl.constexpr, ap: tl.constexpr):
    tl.store(into + tl.arange(0, wp) * ap, tl.sum(of_weight, 0))
    tl.store(into + wp * ap, tl.sum(of_bias, 0))


@kernel
def _load_matrix(matrices, inputs: tl.constexpr, ip: tl.constexpr, outputs: tl.constexpr, op: tl.constexpr):
    """Matrix of this program's snapshot, [ip, op]."""
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
    row = first + (tl.program_id(0) * rows + tl.arange(0, rows))  # 64-bit
    live, col, side = row < end, tl.arange(0, ip), tl.arange(0, op)
    if first + tl.program_id(0) * rows < end:
        value = tl.load(x + row[:, None] * inputs + col[None, :], tile_mask(live, inputs, ip), 0.0).to(tl.float32)
        z = tl.dot(value, _load_matrix(matrices, inputs, ip, outputs, op), input_precision=precision)
        positive = tl.where(z < 0, 0.0, z)  # NaN stays NaN
        for k in tl.static_range(answers):
            out = tl.sum(positive * tl.load(weight + side * ap + k)[None, :], 1) + tl.load(bias + k)
            tl.store(y + row * answers + k, out, live)


@kernel
def segment_readout_backward(
    x, matrices, weight, ptr, d_y, d_x, of_matrices, of_weight, inputs: tl.constexpr, ip: tl.constexpr,
    outputs: tl.constexpr, op: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr, rows: tl.constexpr,
    stages: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Row gradients, and per program the sums of gradients of its snapshot's matrix [ip, op] and of W, [answers, op].

    The product is recomputed. ``d_x`` None: not computed.
    """
    tall: tl.constexpr = ip if ip > 64 else 64  # with fewer rows every warp would compute the full sum
    col, side, long = tl.arange(0, ip), tl.arange(0, op), tl.arange(0, tall)
    first, end = tl.load(ptr + tl.program_id(1)), tl.load(ptr + tl.program_id(1) + 1)
    matrix = _load_matrix(matrices, inputs, ip, outputs, op)
    turned = tl.trans(matrix)
    of_matrix = tl.zeros([tall, op], tl.float32)
    s_0, s_1 = tl.zeros([rows, op], tl.float32), tl.zeros([rows, op], tl.float32)
    s_2, s_3 = tl.zeros([rows, op], tl.float32), tl.zeros([rows, op], tl.float32)
    tiles = tl.cdiv(end - first, rows).to(tl.int32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=stages):
        row = first + (tile * rows + tl.arange(0, rows))  # 64-bit
        live, grad, w = row < end, d_y + row * answers, weight + side * ap
        place, mask = row[:, None] * inputs + col[None, :], tile_mask(live, inputs, ip)
        z = tl.dot(tl.load(x + place, mask, 0.0).to(tl.float32), matrix, input_precision=precision)
        relu = tl.where(z < 0, 0.0, z)
        d, s_0, _ = _add_output_gradient(tl.zeros([rows, op], tl.float32), s_0, relu, grad, tl.load(w), live)
        if answers > 1:
            d, s_1, _ = _add_output_gradient(d, s_1, relu, grad + 1, tl.load(w + 1), live)
        if answers > 2:
            d, s_2, _ = _add_output_gradient(d, s_2, relu, grad + 2, tl.load(w + 2), live)
        if answers > 3:
            d, s_3, _ = _add_output_gradient(d, s_3, relu, grad + 3, tl.load(w + 3), live)
        d = tl.where(z <= 0, 0.0, d)
        if d_x is not None:
            tl.store(d_x + place, tl.dot(d, turned, input_precision=precision), mask)
        value = tl.load(x + row[:, None] * inputs + long[None, :], tile_mask(live, inputs, tall), 0.0).to(tl.float32)
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
