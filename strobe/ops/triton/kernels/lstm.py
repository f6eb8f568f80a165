"""LSTM kernels. Weights are float32, padded with zeros: [gates, in, out]; rows of any dtype.

``cell``, ``before`` and ``ends`` are the tables of ``LaneSteps``, None if all nodes are always present.
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import sigmoid, tanh, tile_mask


@kernel
def lstm_forward(
    x, h0, c0, w_ih, w_hh, bias, cell, before, out, states, h_last, c_last, num_lanes, num_steps,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Both states after every cell."""
    lane = tl.program_id(0) * rows + tl.arange(0, rows)
    col, side = tl.arange(0, hp), tl.arange(0, fp)
    there = lane < num_lanes
    in_row = tile_mask(there, hidden, hp)
    own = lane.to(tl.int64)[:, None] * hidden + col[None, :]
    u_i, u_f, u_g, u_o = _load_gates(w_hh, hp, hp)
    w_i, w_f, w_g, w_o = _load_gates(w_ih, fp, hp)
    h, c = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp], tl.float32)
    if cell is None:
        h = tl.load(h0 + own, in_row, 0.0).to(tl.float32)
        c = tl.load(c0 + own, in_row, 0.0).to(tl.float32)
    for step in range(num_steps):
        row, live, mask = (lane + step * num_lanes).to(tl.int64), there, in_row
        if cell is not None:
            row = tl.load(cell + row, there, -1).to(tl.int64)
            live = row >= 0
            mask = tile_mask(live, hidden, hp)
            known = tl.load(before + row, live, 0).to(tl.int64)
            begins = mask & (known < 0)[:, None]
            first = (-1 - known)[:, None] * hidden + col[None, :]
            h = tl.where(begins, tl.load(h0 + first, begins, 0.0).to(tl.float32), h)
            c = tl.where(begins, tl.load(c0 + first, begins, 0.0).to(tl.float32), c)
        value = tl.load(x + row[:, None] * inputs + side[None, :], tile_mask(live, inputs, fp), 0.0).to(tl.float32)
        i = sigmoid(_gate(value, w_i, h, u_i, bias + col, precision))
        g = tanh(_gate(value, w_g, h, u_g, bias + 2 * hp + col, precision))
        f = sigmoid(_gate(value, w_f, h, u_f, bias + hp + col, precision))
        o = sigmoid(_gate(value, w_o, h, u_o, bias + 3 * hp + col, precision))
        new = f * c + i * g
        if cell is None:
            c, h = new, o * tanh(new)
        else:
            c, h = tl.where(mask, new, c), tl.where(mask, o * tanh(new), h)
        at = row[:, None] * hidden + col[None, :]
        tl.store(out + at, h, mask)
        tl.store(states + at, c, mask)
    if cell is None:
        tl.store(h_last + own, h, in_row)
        tl.store(c_last + own, c, in_row)


@kernel
def _load_gates(weights, height: tl.constexpr, width: tl.constexpr):
    """Matrices of the four gates."""
    at, gate = tl.arange(0, height)[:, None] * width + tl.arange(0, width)[None, :], height * width
    first, second = tl.load(weights + at), tl.load(weights + gate + at)
    return first, second, tl.load(weights + 2 * gate + at), tl.load(weights + 3 * gate + at)


@kernel
def _load_gates_transposed(weights, height: tl.constexpr, width: tl.constexpr):
    """Transposed matrices of the four gates."""
    at, gate = tl.arange(0, height)[None, :] * width + tl.arange(0, width)[:, None], height * width
    first, second = tl.load(weights + at), tl.load(weights + gate + at)
    return first, second, tl.load(weights + 2 * gate + at), tl.load(weights + 3 * gate + at)


@kernel
def _gate(x, w, h, u, bias, precision: tl.constexpr):
    """Pre-activation of a gate."""
    from_x = tl.dot(x, w, input_precision=precision)
    return tl.dot(h, u, from_x, input_precision=precision) + tl.load(bias)[None, :]


@kernel
def lstm_backward(
    x, h0, c0, w_ih, w_hh, bias, cell, before, ends, out, states, d_out, d_h_last, d_c_last, d_h0, d_c0, d_gates,
    num_lanes, num_steps, first_lane, last_lane,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Gradients of initial states and of pre-activations: [steps, lanes first:last, 4H], or [C, 4H] with tables."""
    col, side = tl.arange(0, hp), tl.arange(0, fp)
    u_i, u_f, u_g, u_o = _load_gates(w_hh, hp, hp)
    t_i, t_f, t_g, t_o = _load_gates_transposed(w_hh, hp, hp)
    w_i, w_f, w_g, w_o = _load_gates(w_ih, fp, hp)
    lane = first_lane + tl.program_id(0) * rows + tl.arange(0, rows)
    there = lane < last_lane
    in_row = tile_mask(there, hidden, hp)
    own = lane.to(tl.int64)[:, None] * hidden + col[None, :]
    d_h, d_c = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp], tl.float32)
    if cell is None:
        if d_h_last is not None:
            d_h = tl.load(d_h_last + own, in_row, 0.0).to(tl.float32)
        if d_c_last is not None:
            d_c = tl.load(d_c_last + own, in_row, 0.0).to(tl.float32)
    for back in range(num_steps):
        step = num_steps - 1 - back
        row, live, mask = (lane + step * num_lanes).to(tl.int64), there, in_row
        if cell is None:
            into = (lane - first_lane + step * (last_lane - first_lane)).to(tl.int64)
            if step > 0:
                at = (row - num_lanes)[:, None] * hidden + col[None, :]
                h, c = tl.load(out + at, mask, 0.0).to(tl.float32), tl.load(states + at, mask, 0.0).to(tl.float32)
            else:
                h, c = tl.load(h0 + own, mask, 0.0).to(tl.float32), tl.load(c0 + own, mask, 0.0).to(tl.float32)
        else:
            row = tl.load(cell + row, there, -1).to(tl.int64)
            live, into = row >= 0, row
            mask = tile_mask(live, hidden, hp)
            known = tl.load(before + row, live, 0).to(tl.int64)
            begins, goes_on = mask & (known < 0)[:, None], mask & (known >= 0)[:, None]
            first, at = (-1 - known)[:, None] * hidden + col[None, :], known[:, None] * hidden + col[None, :]
            h = tl.load(out + at, goes_on, 0.0).to(tl.float32) + tl.load(h0 + first, begins, 0.0).to(tl.float32)
            c = tl.load(states + at, goes_on, 0.0).to(tl.float32) + tl.load(c0 + first, begins, 0.0).to(tl.float32)
            slot = tl.load(ends + row, live, -1).to(tl.int64)
            final = mask & (slot >= 0)[:, None]
            of_slot = slot[:, None] * hidden + col[None, :]
            d_h, d_c = tl.where(final, 0.0, d_h), tl.where(final, 0.0, d_c)
            if d_h_last is not None:
                d_h += tl.load(d_h_last + of_slot, final, 0.0).to(tl.float32)
            if d_c_last is not None:
                d_c += tl.load(d_c_last + of_slot, final, 0.0).to(tl.float32)
        d, d_new = d_h, d_c
        if d_out is not None:
            d += tl.load(d_out + row[:, None] * hidden + col[None, :], mask, 0.0).to(tl.float32)
        value = tl.load(x + row[:, None] * inputs + side[None, :], tile_mask(live, inputs, fp), 0.0).to(tl.float32)
        put = d_gates + into[:, None] * (4 * hidden) + col[None, :]
        i = sigmoid(_gate(value, w_i, h, u_i, bias + col, precision))
        g = tanh(_gate(value, w_g, h, u_g, bias + 2 * hp + col, precision))
        f = sigmoid(_gate(value, w_f, h, u_f, bias + hp + col, precision))
        o = sigmoid(_gate(value, w_o, h, u_o, bias + 3 * hp + col, precision))
        after = tanh(f * c + i * g)
        p = d * after * o * (1.0 - o)
        tl.store(put + 3 * hidden, p, mask)
        new_h = tl.dot(p, t_o, input_precision=precision)
        d_new += d * o * (1.0 - after * after)
        p = d_new * g * i * (1.0 - i)
        tl.store(put, p, mask)
        new_h = tl.dot(p, t_i, new_h, input_precision=precision)
        p = d_new * i * (1.0 - g * g)
        tl.store(put + 2 * hidden, p, mask)
        new_h = tl.dot(p, t_g, new_h, input_precision=precision)
        p = d_new * c * f * (1.0 - f)
        tl.store(put + hidden, p, mask)
        new_h = tl.dot(p, t_f, new_h, input_precision=precision)
        if cell is None:
            d_h, d_c = new_h, d_new * f
        else:
            d_h, d_c = tl.where(mask, new_h, d_h), tl.where(mask, d_new * f, d_c)
            if d_h0 is not None:
                tl.store(d_h0 + first, d_h, begins)
                tl.store(d_c0 + first, d_c, begins)
    if cell is None and d_h0 is not None:
        tl.store(d_h0 + own, d_h, in_row)
        tl.store(d_c0 + own, d_c, in_row)


@kernel
def lstm_weight_gradients(
    x, h0, before, out, d_gates, of_input, of_state, num_lanes, first_lane, last_lane, count, num_tiles,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Sum weight gradients per program; bias gradients are in odd rows of the state's sums."""
    col, side, tall = tl.arange(0, hp), tl.arange(0, fp), tl.arange(0, 2 * hp)
    program, high, wide = tl.program_id(0), 2 * hp * hp, fp * hp
    into_h = of_state + program * 4 * high + tall[:, None] * hp + col[None, :]
    into_x = of_input + program * 4 * wide + side[:, None] * hp + col[None, :]
    h_i, h_f, h_g, h_o = tl.load(into_h), tl.load(into_h + high), tl.load(into_h + 2 * high), tl.load(into_h + 3 * high)
    x_i, x_f, x_g, x_o = tl.load(into_x), tl.load(into_x + wide), tl.load(into_x + 2 * wide), tl.load(into_x + 3 * wide)
    one = tl.zeros([rows, hp], tl.float32) + (col == 0).to(tl.float32)[None, :]
    for tile in range(program, num_tiles, tl.num_programs(0)):
        at = tile * rows + tl.arange(0, rows)
        live = at < count
        mask = tile_mask(live, hidden, hp)
        if before is None:
            lanes = last_lane - first_lane
            step, lane = at // lanes, first_lane + at % lanes
            row = step.to(tl.int64) * num_lanes + lane
            known = tl.where(step > 0, row - num_lanes, -1 - lane.to(tl.int64))
        else:
            row = at.to(tl.int64)
            known = tl.load(before + row, live, 0).to(tl.int64)
        goes_on, begins = mask & (known >= 0)[:, None], mask & (known < 0)[:, None]
        p = d_gates + at.to(tl.int64)[:, None] * (4 * hidden) + col[None, :]
        p_i, p_f = tl.load(p, mask, 0.0).to(tl.float32), tl.load(p + hidden, mask, 0.0).to(tl.float32)
        p_g, p_o = tl.load(p + 2 * hidden, mask, 0.0).to(tl.float32), tl.load(p + 3 * hidden, mask, 0.0).to(tl.float32)
        h = tl.load(out + known[:, None] * hidden + col[None, :], goes_on, 0.0).to(tl.float32)
        h += tl.load(h0 + (-1 - known)[:, None] * hidden + col[None, :], begins, 0.0).to(tl.float32)
        value = tl.load(x + row[:, None] * inputs + side[None, :], tile_mask(live, inputs, fp), 0.0).to(tl.float32)
        with_h, with_x = tl.trans(tl.interleave(h, one)), tl.trans(value)
        h_i = tl.dot(with_h, p_i, h_i, input_precision=precision)
        x_i = tl.dot(with_x, p_i, x_i, input_precision=precision)
        h_f = tl.dot(with_h, p_f, h_f, input_precision=precision)
        x_f = tl.dot(with_x, p_f, x_f, input_precision=precision)
        h_g = tl.dot(with_h, p_g, h_g, input_precision=precision)
        x_g = tl.dot(with_x, p_g, x_g, input_precision=precision)
        h_o = tl.dot(with_h, p_o, h_o, input_precision=precision)
        x_o = tl.dot(with_x, p_o, x_o, input_precision=precision)
    tl.store(into_h, h_i)
    tl.store(into_h + high, h_f)
    tl.store(into_h + 2 * high, h_g)
    tl.store(into_h + 3 * high, h_o)
    tl.store(into_x, x_i)
    tl.store(into_x + wide, x_f)
    tl.store(into_x + 2 * wide, x_g)
    tl.store(into_x + 3 * wide, x_o)
