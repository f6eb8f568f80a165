"""LSTM kernels. Weights are float32, padded with zeros: [gates, in, out]; rows of any dtype.

Lanes ``first_lane`` to ``end_lane`` are a ``LaneRange`` with its ``stride`` and ``cell``; ``before`` and ``ends`` are
the tables of ``LaneSteps``, None if all nodes are always present. Lanes are slots unless they are ``packed``.
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import (
    final_gradient,
    linked_state,
    load_rows,
    sigmoid,
    state_before,
    step_rows,
    store_rows,
    store_sums,
    tanh,
    tile_mask,
)


@kernel
def lstm_forward(
    x, h0, c0, w_ih, w_hh, bias, cell, before, ends, out, states, h_last, c_last,
    first_lane, end_lane, stride, num_steps, packed: tl.constexpr,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Both states after every cell."""
    lane = first_lane + tl.program_id(0) * rows + tl.arange(0, rows)
    valid, own = lane < end_lane, lane.to(tl.int64)
    in_row = tile_mask(valid, hidden, hp)
    u_i, u_f, u_g, u_o = _load_gates(w_hh, hp, hp)
    w_i, w_f, w_g, w_o = _load_gates(w_ih, fp, hp)
    h, c = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp], tl.float32)
    if not packed:
        h, c = load_rows(h0, own, in_row, hidden, hp), load_rows(c0, own, in_row, hidden, hp)
    for step in range(num_steps):
        row, live, mask = step_rows(cell, lane, valid, in_row, step, stride, hidden, hp)
        if packed:
            known = tl.load(before + row, live, 0).to(tl.int64)
            begins = mask & (known < 0)[:, None]
            h = tl.where(begins, load_rows(h0, -1 - known, begins, hidden, hp), h)
            c = tl.where(begins, load_rows(c0, -1 - known, begins, hidden, hp), c)
        value = load_rows(x, row, tile_mask(live, inputs, fp), inputs, fp)
        i, f, g, o = _gates(value, h, w_i, w_f, w_g, w_o, u_i, u_f, u_g, u_o, bias, hp, precision)
        new = f * c + i * g
        if cell is None:
            c, h = new, o * tanh(new)
        else:
            c, h = tl.where(mask, new, c), tl.where(mask, o * tanh(new), h)
        store_rows(out, row, h, mask, hidden, hp)
        store_rows(states, row, c, mask, hidden, hp)
        if packed:
            slot = tl.load(ends + row, live, -1).to(tl.int64)
            store_rows(h_last, slot, h, mask & (slot >= 0)[:, None], hidden, hp)
            store_rows(c_last, slot, c, mask & (slot >= 0)[:, None], hidden, hp)
    if not packed:
        store_rows(h_last, own, h, in_row, hidden, hp)
        store_rows(c_last, own, c, in_row, hidden, hp)


@kernel
def _load_gates(weights, height: tl.constexpr, width: tl.constexpr, transposed: tl.constexpr = False):
    """Matrices of the four gates, [height, width] or transposed."""
    row, col, gate = tl.arange(0, height), tl.arange(0, width), height * width
    at = row[None, :] * width + col[:, None] if transposed else row[:, None] * width + col[None, :]
    first, second = tl.load(weights + at), tl.load(weights + gate + at)
    return first, second, tl.load(weights + 2 * gate + at), tl.load(weights + 3 * gate + at)


@kernel
def _gates(x, h, w_i, w_f, w_g, w_o, u_i, u_f, u_g, u_o, bias, hp: tl.constexpr, precision: tl.constexpr):
    """Input, forget, candidate and output gate of a step."""
    at = bias + tl.arange(0, hp)
    i = sigmoid(_gate(x, w_i, h, u_i, at, precision))
    g = tanh(_gate(x, w_g, h, u_g, at + 2 * hp, precision))
    f = sigmoid(_gate(x, w_f, h, u_f, at + hp, precision))
    o = sigmoid(_gate(x, w_o, h, u_o, at + 3 * hp, precision))
    return i, f, g, o


@kernel
def _gate(x, w, h, u, bias, precision: tl.constexpr):
    """Pre-activation of a gate."""
    from_x = tl.dot(x, w, input_precision=precision)
    return tl.dot(h, u, from_x, input_precision=precision) + tl.load(bias)[None, :]


@kernel
def lstm_backward(
    x, h0, c0, w_ih, w_hh, bias, cell, before, ends, out, states, d_out, d_h_last, d_c_last, d_h0, d_c0, d_gates,
    first_lane, end_lane, stride, num_steps, packed: tl.constexpr,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Gradients of initial states and of pre-activations: [steps, lanes first:end, 4H], or [C, 4H] with tables."""
    u_i, u_f, u_g, u_o = _load_gates(w_hh, hp, hp)
    t_i, t_f, t_g, t_o = _load_gates(w_hh, hp, hp, transposed=True)
    w_i, w_f, w_g, w_o = _load_gates(w_ih, fp, hp)
    lane = first_lane + tl.program_id(0) * rows + tl.arange(0, rows)
    valid, own = lane < end_lane, lane.to(tl.int64)
    in_row = tile_mask(valid, hidden, hp)
    d_h, d_c = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp], tl.float32)
    if not packed:
        if d_h_last is not None:
            d_h = load_rows(d_h_last, own, in_row, hidden, hp)
        if d_c_last is not None:
            d_c = load_rows(d_c_last, own, in_row, hidden, hp)
    for back in range(num_steps):
        step = num_steps - 1 - back
        row, live, mask = step_rows(cell, lane, valid, in_row, step, stride, hidden, hp)
        if cell is None:
            into = (lane - first_lane + step * (end_lane - first_lane)).to(tl.int64)
            h = state_before(out, h0, row, lane, step, stride, mask, hidden, hp)
            c = state_before(states, c0, row, lane, step, stride, mask, hidden, hp)
        else:
            into, known = row, tl.load(before + row, live, 0).to(tl.int64)
            h, c = linked_state(out, h0, known, mask, hidden, hp), linked_state(states, c0, known, mask, hidden, hp)
        if packed:
            slot = tl.load(ends + row, live, -1).to(tl.int64)
            d_h = final_gradient(d_h, d_h_last, slot, mask, hidden, hp)
            d_c = final_gradient(d_c, d_c_last, slot, mask, hidden, hp)
        d = d_h
        if d_out is not None:
            d += load_rows(d_out, row, mask, hidden, hp)
        value = load_rows(x, row, tile_mask(live, inputs, fp), inputs, fp)
        i, f, g, o = _gates(value, h, w_i, w_f, w_g, w_o, u_i, u_f, u_g, u_o, bias, hp, precision)
        put = d_gates + into[:, None] * (4 * hidden) + tl.arange(0, hp)[None, :]
        new_h, new_c = _gate_gradients(d, d_c, c, i, f, g, o, t_i, t_f, t_g, t_o, put, mask, hidden, precision)
        if cell is None:
            d_h, d_c = new_h, new_c
        else:
            d_h, d_c = tl.where(mask, new_h, d_h), tl.where(mask, new_c, d_c)
        if packed and d_h0 is not None:
            store_rows(d_h0, -1 - known, d_h, mask & (known < 0)[:, None], hidden, hp)
            store_rows(d_c0, -1 - known, d_c, mask & (known < 0)[:, None], hidden, hp)
    if d_h0 is not None and not packed:
        store_rows(d_h0, own, d_h, in_row, hidden, hp)
        store_rows(d_c0, own, d_c, in_row, hidden, hp)


@kernel
def _gate_gradients(
    d, d_c, c, i, f, g, o, t_i, t_f, t_g, t_o, put, mask, hidden: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of both states before a step; stores those of the pre-activations."""
    after = tanh(f * c + i * g)
    p = d * after * o * (1.0 - o)
    tl.store(put + 3 * hidden, p, mask)
    new_h = tl.dot(p, t_o, input_precision=precision)
    d_c += d * o * (1.0 - after * after)
    p = d_c * g * i * (1.0 - i)
    tl.store(put, p, mask)
    new_h = tl.dot(p, t_i, new_h, input_precision=precision)
    p = d_c * i * (1.0 - g * g)
    tl.store(put + 2 * hidden, p, mask)
    new_h = tl.dot(p, t_g, new_h, input_precision=precision)
    p = d_c * c * f * (1.0 - f)
    tl.store(put + hidden, p, mask)
    new_h = tl.dot(p, t_f, new_h, input_precision=precision)
    return new_h, d_c * f


@kernel
def lstm_weight_gradients(
    x, h0, before, out, d_gates, of_input, of_state, first_lane, end_lane, stride, count, num_tiles,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Sum weight gradients per program; bias gradients are in odd rows of the state's sums."""
    col, program = tl.arange(0, hp), tl.program_id(0)
    h_i, h_f, h_g, h_o = _load_gates(of_state + program * 4 * 2 * hp * hp, 2 * hp, hp)
    x_i, x_f, x_g, x_o = _load_gates(of_input + program * 4 * fp * hp, fp, hp)
    one = tl.zeros([rows, hp], tl.float32) + (col == 0).to(tl.float32)[None, :]
    for tile in range(program, num_tiles, tl.num_programs(0)):
        at = tile * rows + tl.arange(0, rows)
        live = at < count
        mask = tile_mask(live, hidden, hp)
        if before is None:
            lanes = end_lane - first_lane
            step, lane = at // lanes, first_lane + at % lanes
            row = step.to(tl.int64) * stride + lane
            known = tl.where(step > 0, row - stride, -1 - lane.to(tl.int64))
        else:
            row = at.to(tl.int64)
            known = tl.load(before + row, live, 0).to(tl.int64)
        p = d_gates + at.to(tl.int64)[:, None] * (4 * hidden) + col[None, :]
        p_i, p_f = tl.load(p, mask, 0.0).to(tl.float32), tl.load(p + hidden, mask, 0.0).to(tl.float32)
        p_g, p_o = tl.load(p + 2 * hidden, mask, 0.0).to(tl.float32), tl.load(p + 3 * hidden, mask, 0.0).to(tl.float32)
        h = linked_state(out, h0, known, mask, hidden, hp)
        value = load_rows(x, row, tile_mask(live, inputs, fp), inputs, fp)
        with_h, with_x = tl.trans(tl.interleave(h, one)), tl.trans(value)
        h_i = tl.dot(with_h, p_i, h_i, input_precision=precision)
        x_i = tl.dot(with_x, p_i, x_i, input_precision=precision)
        h_f = tl.dot(with_h, p_f, h_f, input_precision=precision)
        x_f = tl.dot(with_x, p_f, x_f, input_precision=precision)
        h_g = tl.dot(with_h, p_g, h_g, input_precision=precision)
        x_g = tl.dot(with_x, p_g, x_g, input_precision=precision)
        h_o = tl.dot(with_h, p_o, h_o, input_precision=precision)
        x_o = tl.dot(with_x, p_o, x_o, input_precision=precision)
    store_sums(of_state, 4, h_i, h_f, h_g, h_o, 2 * hp, hp)
    store_sums(of_input, 4, x_i, x_f, x_g, x_o, fp, hp)
