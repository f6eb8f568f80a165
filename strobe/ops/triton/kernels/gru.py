"""GRU kernels. Weights are float32, padded with zeros: [gates, in, out]; rows of any dtype.

Lanes ``first_lane`` to ``end_lane`` are a ``LaneRange`` with its ``stride`` and ``cell``; ``before`` and ``ends`` are
the tables of ``LaneSteps``, None if all nodes are always present. Lanes are slots unless they are ``packed``. Initial
states ``h0`` are zeros if None. ``y`` is the optional readout, a linear map ``head`` [hp, ap] of ReLU(state).
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import (
    final_gradient,
    linked_state,
    load_rows,
    load_sums,
    sigmoid,
    state_before,
    step_rows,
    store_rows,
    store_sums,
    tanh,
    tile_mask,
)


@kernel
def gru_forward(
    x, h0, w_ih, w_hh, b_ih, b_hh, cell, before, ends, head, of_head, out, last, y,
    first_lane, end_lane, stride, num_steps, packed: tl.constexpr,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    answers: tl.constexpr, ap: tl.constexpr, reset_state: tl.constexpr, narrow: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """State after every cell, and its readout."""
    lane = first_lane + tl.program_id(0) * rows + tl.arange(0, rows)
    col, gate = tl.arange(0, hp), hp * hp
    valid = lane < end_lane
    in_row = tile_mask(valid, hidden, hp)
    square = col[:, None] * hp + col[None, :]
    u_r, u_z, u_c = tl.load(w_hh + square), tl.load(w_hh + gate + square), tl.load(w_hh + 2 * gate + square)
    h = tl.zeros([rows, hp], tl.float32)
    if h0 is not None and not packed:
        h = load_rows(h0, lane.to(tl.int64), in_row, hidden, hp)
    for step in range(num_steps):
        row, live, mask = step_rows(cell, lane, valid, in_row, step, stride, hidden, hp)
        if packed:
            known = tl.load(before + row, live, 0).to(tl.int64)
            begins = mask & (known < 0)[:, None]
            if h0 is None:
                h = tl.where(begins, 0.0, h)
            else:
                h = tl.where(begins, load_rows(h0, -1 - known, begins, hidden, hp), h)
        x_r, x_z, x_c = _project_inputs(x, row, live, w_ih, b_ih, inputs, fp, hp, narrow, precision)
        _, z, c, _ = _gates(h, x_r, x_z, x_c, u_r, u_z, u_c, b_hh, hp, reset_state, precision)
        h = c + z * (h - c) if cell is None else tl.where(mask, c + z * (h - c), h)
        store_rows(out, row, h, mask, hidden, hp)
        if packed:
            slot = tl.load(ends + row, live, -1).to(tl.int64)
            store_rows(last, slot, h, mask & (slot >= 0)[:, None], hidden, hp)
        if y is not None:
            positive = tl.maximum(h, 0.0)
            for k in tl.static_range(answers):
                value = tl.sum(positive * tl.load(head + col * ap + k)[None, :], 1) + tl.load(of_head + k)
                tl.store(y + row * answers + k, value, live)
    if not packed:
        store_rows(last, lane.to(tl.int64), h, in_row, hidden, hp)


@kernel
def _project_inputs(
    x, row, live, w_ih, b_ih, inputs: tl.constexpr, fp: tl.constexpr, hp: tl.constexpr, narrow: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Project inputs to three gates, with biases."""
    col, gate = tl.arange(0, hp), fp * hp
    b_r, b_z = tl.load(b_ih + col)[None, :], tl.load(b_ih + hp + col)[None, :]
    b_c = tl.load(b_ih + 2 * hp + col)[None, :]
    if narrow:
        zeros = tl.zeros([row.shape[0], hp], tl.float32)
        r, z, c = zeros + b_r, zeros + b_z, zeros + b_c
        for f in tl.static_range(inputs):
            value = tl.load(x + row * inputs + f, live, 0.0).to(tl.float32)[:, None]
            r += value * tl.load(w_ih + f * hp + col)[None, :]
            z += value * tl.load(w_ih + gate + f * hp + col)[None, :]
            c += value * tl.load(w_ih + 2 * gate + f * hp + col)[None, :]
    else:
        side = tl.arange(0, fp)
        value = load_rows(x, row, live[:, None] & (side < inputs)[None, :], inputs, fp)
        at = side[:, None] * hp + col[None, :]
        r = tl.dot(value, tl.load(w_ih + at), input_precision=precision) + b_r
        z = tl.dot(value, tl.load(w_ih + gate + at), input_precision=precision) + b_z
        c = tl.dot(value, tl.load(w_ih + 2 * gate + at), input_precision=precision) + b_c
    return r, z, c


@kernel
def _gates(h, x_r, x_z, x_c, u_r, u_z, u_c, b_hh, hp: tl.constexpr, reset_state: tl.constexpr, precision: tl.constexpr):
    """Reset, update and candidate of a step, and the projected state if reset acts on it."""
    col = tl.arange(0, hp)
    if reset_state:
        r = sigmoid(tl.dot(h, u_r, x_r, input_precision=precision))
        z = sigmoid(tl.dot(h, u_z, x_z, input_precision=precision))
        into = h
        c = tanh(tl.dot(r * h, u_c, x_c, input_precision=precision))
    else:
        r = sigmoid(tl.dot(h, u_r, x_r, input_precision=precision) + tl.load(b_hh + col)[None, :])
        z = sigmoid(tl.dot(h, u_z, x_z, input_precision=precision) + tl.load(b_hh + hp + col)[None, :])
        into = tl.dot(h, u_c, input_precision=precision) + tl.load(b_hh + 2 * hp + col)[None, :]
        c = tanh(x_c + r * into)
    return r, z, c, into


@kernel
def gru_backward(
    x, h0, w_ih, w_hh, b_ih, b_hh, cell, before, ends, head, out, d_out, d_y, d_last, d_x, d_h0, of_input, of_state,
    first_lane, end_lane, stride, num_steps, num_tiles, packed: tl.constexpr,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    xp: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr, reset_state: tl.constexpr, narrow: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Gradients of inputs and initial states, and per program the sums of weight gradients, added to earlier ones."""
    col, gate = tl.arange(0, hp), hp * hp
    square, turned = col[:, None] * hp + col[None, :], col[None, :] * hp + col[:, None]
    u_r, u_z, u_c = tl.load(w_hh + square), tl.load(w_hh + gate + square), tl.load(w_hh + 2 * gate + square)
    t_r, t_z, t_c = tl.load(w_hh + turned), tl.load(w_hh + gate + turned), tl.load(w_hh + 2 * gate + turned)
    s_r, s_z = load_sums(of_state, 4, 0, 2 * hp, hp), load_sums(of_state, 4, 1, 2 * hp, hp)
    s_c, s_h = load_sums(of_state, 4, 2, 2 * hp, hp), load_sums(of_state, 4, 3, 2 * hp, hp)
    if not narrow:
        i_r, i_z = load_sums(of_input, 3, 0, xp, hp), load_sums(of_input, 3, 1, xp, hp)
        i_c = load_sums(of_input, 3, 2, xp, hp)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        lane = first_lane + tile * rows + tl.arange(0, rows)
        valid = lane < end_lane
        in_row = tile_mask(valid, hidden, hp)
        d_h = tl.zeros([rows, hp], tl.float32)
        if d_last is not None and not packed:
            d_h = load_rows(d_last, lane.to(tl.int64), in_row, hidden, hp)
        for back in range(num_steps):
            step = num_steps - 1 - back
            row, live, mask = step_rows(cell, lane, valid, in_row, step, stride, hidden, hp)
            if cell is None:
                h = state_before(out, h0, row, lane, step, stride, mask, hidden, hp)
            else:
                known = tl.load(before + row, live, 0).to(tl.int64)
                h = linked_state(out, h0, known, mask, hidden, hp)
            if packed:
                d_h = final_gradient(d_h, d_last, tl.load(ends + row, live, -1).to(tl.int64), mask, hidden, hp)
            d = d_h if cell is None else tl.where(mask, d_h, 0.0)
            if d_out is not None:
                d += load_rows(d_out, row, mask, hidden, hp)
            x_r, x_z, x_c = _project_inputs(x, row, live, w_ih, b_ih, inputs, fp, hp, narrow, precision)
            r, z, c, into = _gates(h, x_r, x_z, x_c, u_r, u_z, u_c, b_hh, hp, reset_state, precision)
            if d_y is not None:
                d += _readout_gradient(h, z, c, d_y, head, out, row, live, mask, answers, ap, hidden, hp)
            beside = _input_and_bias_columns(x, row, live, inputs, hp, narrow)
            d_new, p_r, p_z, p_c, s_r, s_z, s_c, s_h = _gate_gradients(
                d, h, r, z, c, into, beside, t_r, t_z, t_c, s_r, s_z, s_c, s_h, reset_state, precision
            )
            if not narrow:
                wide = tl.trans(load_rows(x, row, tile_mask(live, inputs, xp), inputs, xp))
                i_r = tl.dot(wide, p_r, i_r, input_precision=precision)
                i_z = tl.dot(wide, p_z, i_z, input_precision=precision)
                i_c = tl.dot(wide, p_c, i_c, input_precision=precision)
            if d_x is not None:
                _store_input_gradient(d_x, row, live, p_r, p_z, p_c, w_ih, inputs, fp, hp, precision)
            d_h = d_new if cell is None else tl.where(mask, d_new, d_h)
            if packed and d_h0 is not None:
                store_rows(d_h0, -1 - known, d_h, mask & (known < 0)[:, None], hidden, hp)
        if d_h0 is not None and not packed:
            store_rows(d_h0, lane.to(tl.int64), d_h, in_row, hidden, hp)
    store_sums(of_state, 4, s_r, s_z, s_c, s_h, 2 * hp, hp)
    if not narrow:
        store_sums(of_input, 3, i_r, i_z, i_c, None, xp, hp)


@kernel
def _readout_gradient(
    h, z, c, d_y, head, out, row, live, mask, answers: tl.constexpr, ap: tl.constexpr, hidden: tl.constexpr,
    hp: tl.constexpr,
):  # fmt: skip
    """Gradient of the states after a step from that of their readout."""
    grad = tl.zeros([row.shape[0], hp], tl.float32)
    for k in tl.static_range(answers):
        d_output = tl.load(d_y + row * answers + k, live, 0.0).to(tl.float32)
        grad += d_output[:, None] * tl.load(head + tl.arange(0, hp) * ap + k)[None, :]
    after = c + z * (h - c)
    if out.dtype.element_ty != tl.float32:  # rounding of the stored state may change its sign
        after = load_rows(out, row, mask, hidden, hp)
    return tl.where(after > 0, grad, 0.0)


@kernel
def _gate_gradients(
    d, h, r, z, c, into, beside, t_r, t_z, t_c, s_r, s_z, s_c, s_h, reset_state: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of the state before a step and of the gates, and the sums of weight gradients with this step's."""
    p_z = d * (h - c) * z * (1.0 - z)
    p_c = d * (1.0 - z) * (1.0 - c * c)
    if reset_state:
        s_c = tl.dot(tl.trans(tl.interleave(r * h, beside)), p_c, s_c, input_precision=precision)
        d_into = tl.dot(p_c, t_c, input_precision=precision)
        p_r = d_into * h * r * (1.0 - r)
        d_new = d * z + d_into * r
        with_h = tl.trans(tl.interleave(h, beside))
    else:
        with_h = tl.trans(tl.interleave(h, beside))
        p_r = p_c * into * r * (1.0 - r)
        p_h = p_c * r
        d_new = tl.dot(p_h, t_c, d * z, input_precision=precision)
        s_c = tl.dot(with_h, p_c, s_c, input_precision=precision)
        s_h = tl.dot(with_h, p_h, s_h, input_precision=precision)
    s_r = tl.dot(with_h, p_r, s_r, input_precision=precision)
    s_z = tl.dot(with_h, p_z, s_z, input_precision=precision)
    d_new = tl.dot(p_r, t_r, d_new, input_precision=precision)
    d_new = tl.dot(p_z, t_z, d_new, input_precision=precision)
    return d_new, p_r, p_z, p_c, s_r, s_z, s_c, s_h


@kernel
def _store_input_gradient(
    d_x, row, live, p_r, p_z, p_c, w_ih, inputs: tl.constexpr, fp: tl.constexpr, hp: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    at, gate = tl.arange(0, fp)[None, :] * hp + tl.arange(0, hp)[:, None], fp * hp
    grad = tl.dot(p_r, tl.load(w_ih + at), input_precision=precision)
    grad = tl.dot(p_z, tl.load(w_ih + gate + at), grad, input_precision=precision)
    grad = tl.dot(p_c, tl.load(w_ih + 2 * gate + at), grad, input_precision=precision)
    store_rows(d_x, row, grad, tile_mask(live, inputs, fp), inputs, fp)


@kernel
def _input_and_bias_columns(x, row, live, inputs: tl.constexpr, hp: tl.constexpr, narrow: tl.constexpr):
    """Columns next to the state in the sums of weight gradients: narrow inputs, then a one for the bias."""
    col = tl.arange(0, hp)
    if narrow:
        beside = tl.zeros([row.shape[0], hp], tl.float32) + (col == inputs).to(tl.float32)[None, :]
        for f in tl.static_range(inputs):
            value = tl.load(x + row * inputs + f, live, 0.0).to(tl.float32)
            beside = tl.where((col == f)[None, :], value[:, None], beside)
    else:
        beside = tl.zeros([row.shape[0], hp], tl.float32) + (col == 0).to(tl.float32)[None, :]
    return beside
