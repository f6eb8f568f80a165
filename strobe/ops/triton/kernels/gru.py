"""GRU kernels. Weights are float32, padded with zeros: [gates, in, out]; rows of any dtype.

``cell``, ``before`` and ``ends`` are the tables of ``LaneSteps``, None if all nodes are always present. Initial states
``h0`` are zeros if None. ``said`` is the optional readout, a linear map ``head`` [hp, ap] of ReLU(state).
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel
from strobe.ops.triton.kernels.gates import sigmoid, tanh, tile_mask


@kernel
def gru_forward(
    x, h0, w_ih, w_hh, b_ih, b_hh, cell, before, head, of_head, out, last, said, num_lanes, num_steps,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    answers: tl.constexpr, ap: tl.constexpr, reset_state: tl.constexpr, narrow: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """State after every cell, and its readout."""
    lane = tl.program_id(0) * rows + tl.arange(0, rows)
    col, gate = tl.arange(0, hp), hp * hp
    there = lane < num_lanes
    in_row = tile_mask(there, hidden, hp)
    square = col[:, None] * hp + col[None, :]
    u_r, u_z, u_c = tl.load(w_hh + square), tl.load(w_hh + gate + square), tl.load(w_hh + 2 * gate + square)
    h = tl.zeros([rows, hp], tl.float32)
    if cell is None and h0 is not None:
        h = tl.load(h0 + lane.to(tl.int64)[:, None] * hidden + col[None, :], in_row, 0.0).to(tl.float32)
    for step in range(num_steps):
        row, live, mask = (lane + step * num_lanes).to(tl.int64), there, in_row
        if cell is not None:
            row = tl.load(cell + row, there, -1).to(tl.int64)
            live = row >= 0
            mask = tile_mask(live, hidden, hp)
            known = tl.load(before + row, live, 0)
            begins = mask & (known < 0)[:, None]
            if h0 is None:
                h = tl.where(begins, 0.0, h)
            else:
                first = (-1 - known.to(tl.int64))[:, None] * hidden + col[None, :]
                h = tl.where(begins, tl.load(h0 + first, begins, 0.0).to(tl.float32), h)
        x_r, x_z, x_c = project_inputs(x, row, live, w_ih, b_ih, inputs, fp, hp, narrow, precision)
        _, z, c, _ = _gates(h, x_r, x_z, x_c, u_r, u_z, u_c, b_hh, hp, reset_state, precision)
        h = c + z * (h - c) if cell is None else tl.where(mask, c + z * (h - c), h)
        tl.store(out + row[:, None] * hidden + col[None, :], h, mask)
        if said is not None:
            positive = tl.maximum(h, 0.0)
            for k in tl.static_range(answers):
                value = tl.sum(positive * tl.load(head + col * ap + k)[None, :], 1) + tl.load(of_head + k)
                tl.store(said + row * answers + k, value, live)
    if cell is None:
        tl.store(last + lane.to(tl.int64)[:, None] * hidden + col[None, :], h, in_row)


@kernel
def project_inputs(
    x,
    row,
    live,
    w_ih,
    b_ih,
    inputs: tl.constexpr,
    fp: tl.constexpr,
    hp: tl.constexpr,
    narrow: tl.constexpr,
    precision: tl.constexpr,
):
    """Project inputs to three gates, with biases."""
    col, gate = tl.arange(0, hp), fp * hp
    if narrow:
        zeros = tl.zeros([row.shape[0], hp], tl.float32)
        a, b, c = (
            zeros + tl.load(b_ih + col)[None, :],
            zeros + tl.load(b_ih + hp + col)[None, :],
            zeros + tl.load(b_ih + 2 * hp + col)[None, :],
        )
        for f in tl.static_range(inputs):
            value = tl.load(x + row * inputs + f, live, 0.0).to(tl.float32)[:, None]
            a += value * tl.load(w_ih + f * hp + col)[None, :]
            b += value * tl.load(w_ih + gate + f * hp + col)[None, :]
            c += value * tl.load(w_ih + 2 * gate + f * hp + col)[None, :]
    else:
        side = tl.arange(0, fp)
        value = tl.load(x + row[:, None] * inputs + side[None, :], live[:, None] & (side < inputs)[None, :], 0.0).to(
            tl.float32
        )
        at = side[:, None] * hp + col[None, :]
        a = tl.dot(value, tl.load(w_ih + at), input_precision=precision) + tl.load(b_ih + col)[None, :]
        b = tl.dot(value, tl.load(w_ih + gate + at), input_precision=precision) + tl.load(b_ih + hp + col)[None, :]
        c = (
            tl.dot(value, tl.load(w_ih + 2 * gate + at), input_precision=precision)
            + tl.load(b_ih + 2 * hp + col)[None, :]
        )
    return a, b, c


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
    x, h0, w_ih, w_hh, b_ih, b_hh, cell, before, ends, head, out, d_out, d_said, d_last, d_x, d_h0, of_input, of_state,
    num_lanes, num_steps, num_tiles,
    rows: tl.constexpr, inputs: tl.constexpr, fp: tl.constexpr, hidden: tl.constexpr, hp: tl.constexpr,
    xp: tl.constexpr, answers: tl.constexpr, ap: tl.constexpr, reset_state: tl.constexpr, narrow: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Gradients of inputs and initial states, and per program the sums of weight gradients."""
    col, gate, side = tl.arange(0, hp), hp * hp, tl.arange(0, xp)
    square = col[:, None] * hp + col[None, :]
    turned = col[None, :] * hp + col[:, None]
    u_r, u_z, u_c = tl.load(w_hh + square), tl.load(w_hh + gate + square), tl.load(w_hh + 2 * gate + square)
    t_r, t_z, t_c = tl.load(w_hh + turned), tl.load(w_hh + gate + turned), tl.load(w_hh + 2 * gate + turned)
    s_r, s_z = tl.zeros([2 * hp, hp], tl.float32), tl.zeros([2 * hp, hp], tl.float32)
    s_c, s_h = tl.zeros([2 * hp, hp], tl.float32), tl.zeros([2 * hp, hp], tl.float32)
    i_r, i_z, i_c = tl.zeros([xp, hp], tl.float32), tl.zeros([xp, hp], tl.float32), tl.zeros([xp, hp], tl.float32)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        lane = tile * rows + tl.arange(0, rows)
        there = lane < num_lanes
        in_row = tile_mask(there, hidden, hp)
        own = lane.to(tl.int64)[:, None] * hidden + col[None, :]
        d_h = tl.zeros([rows, hp], tl.float32)
        if cell is None and d_last is not None:
            d_h = tl.load(d_last + own, in_row, 0.0).to(tl.float32)
        for back in range(num_steps):
            step = num_steps - 1 - back
            row, live, mask = (lane + step * num_lanes).to(tl.int64), there, in_row
            if cell is None:
                if step > 0:
                    h = tl.load(out + (row - num_lanes)[:, None] * hidden + col[None, :], mask, 0.0).to(tl.float32)
                elif h0 is None:
                    h = tl.zeros([rows, hp], tl.float32)
                else:
                    h = tl.load(h0 + own, mask, 0.0).to(tl.float32)
            else:
                row = tl.load(cell + row, there, -1).to(tl.int64)
                live = row >= 0
                mask = tile_mask(live, hidden, hp)
                known = tl.load(before + row, live, 0).to(tl.int64)
                begins = mask & (known < 0)[:, None]
                first = (-1 - known)[:, None] * hidden + col[None, :]
                h = tl.load(out + known[:, None] * hidden + col[None, :], mask & (known >= 0)[:, None], 0.0).to(
                    tl.float32
                )
                if h0 is not None:
                    h += tl.load(h0 + first, begins, 0.0).to(tl.float32)
                slot = tl.load(ends + row, live, -1).to(tl.int64)
                final = mask & (slot >= 0)[:, None]
                d_h = tl.where(final, 0.0, d_h)
                if d_last is not None:
                    d_h += tl.load(d_last + slot[:, None] * hidden + col[None, :], final, 0.0).to(tl.float32)
            d = d_h if cell is None else tl.where(mask, d_h, 0.0)
            if d_out is not None:
                d += tl.load(d_out + row[:, None] * hidden + col[None, :], mask, 0.0).to(tl.float32)
            x_r, x_z, x_c = project_inputs(x, row, live, w_ih, b_ih, inputs, fp, hp, narrow, precision)
            r, z, c, into = _gates(h, x_r, x_z, x_c, u_r, u_z, u_c, b_hh, hp, reset_state, precision)
            if d_said is not None:
                towards = tl.zeros([rows, hp], tl.float32)
                for k in tl.static_range(answers):
                    wanted = tl.load(d_said + row * answers + k, live, 0.0).to(tl.float32)
                    towards += wanted[:, None] * tl.load(head + col * ap + k)[None, :]
                after = c + z * (h - c)
                if out.dtype.element_ty != tl.float32:  # rounding of the stored state may change its sign
                    after = tl.load(out + row[:, None] * hidden + col[None, :], mask, 0.0).to(tl.float32)
                d += tl.where(after > 0, towards, 0.0)
            p_z = d * (h - c) * z * (1.0 - z)
            p_c = d * (1.0 - z) * (1.0 - c * c)
            beside = input_and_bias_columns(x, row, live, inputs, hp, narrow)
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
            if not narrow:
                wide = tl.load(x + row[:, None] * inputs + side[None, :], live[:, None] & (side < inputs)[None, :], 0.0)
                wide = tl.trans(wide.to(tl.float32))
                i_r = tl.dot(wide, p_r, i_r, input_precision=precision)
                i_z = tl.dot(wide, p_z, i_z, input_precision=precision)
                i_c = tl.dot(wide, p_c, i_c, input_precision=precision)
            if d_x is not None:
                wide = tl.arange(0, fp)
                at = wide[None, :] * hp + col[:, None]
                d_row = tl.dot(p_r, tl.load(w_ih + at), input_precision=precision)
                d_row = tl.dot(p_z, tl.load(w_ih + fp * hp + at), d_row, input_precision=precision)
                d_row = tl.dot(p_c, tl.load(w_ih + 2 * fp * hp + at), d_row, input_precision=precision)
                tl.store(d_x + row[:, None] * inputs + wide[None, :], d_row, live[:, None] & (wide < inputs)[None, :])
            if cell is None:
                d_h = d_new
            else:
                d_h = tl.where(mask, d_new, d_h)
                if d_h0 is not None:
                    tl.store(d_h0 + first, d_h, begins)
        if cell is None and d_h0 is not None:
            tl.store(d_h0 + own, d_h, in_row)
    program = tl.program_id(0)
    tall, put = 2 * gate, tl.arange(0, 2 * hp)[:, None] * hp + col[None, :]
    into_state = of_state + program * 4 * tall + put
    tl.store(into_state, s_r)
    tl.store(into_state + tall, s_z)
    tl.store(into_state + 2 * tall, s_c)
    tl.store(into_state + 3 * tall, s_h)
    if not narrow:
        into_input = of_input + program * 3 * xp * hp + side[:, None] * hp + col[None, :]
        tl.store(into_input, i_r)
        tl.store(into_input + xp * hp, i_z)
        tl.store(into_input + 2 * xp * hp, i_c)


@kernel
def input_and_bias_columns(x, row, live, inputs: tl.constexpr, hp: tl.constexpr, narrow: tl.constexpr):
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
