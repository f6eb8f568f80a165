"""Functions of gates, and masks of tiles."""

from __future__ import annotations

import os

import triton.language as tl

from strobe.ops.triton.kernel import kernel

if os.environ.get("TRITON_INTERPRET") == "1":  # the interpreter does not support inline assembly

    @kernel
    def _exp2(x):
        return tl.exp2(x)

    @kernel
    def _inverse(x):
        return 1.0 / x

else:

    @kernel
    def _exp2(x):
        """2^x in one instruction, to 2 ulp; flushes denormals to 0."""
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    @kernel
    def _inverse(x):
        """1 / x in one instruction, to 1 ulp."""
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@kernel
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return _inverse(1.0 + _exp2(-1.4426950408889634 * x))


@kernel
def tanh(x):
    """2 σ(2x) - 1."""
    return 2.0 * _inverse(1.0 + _exp2(-2.8853900817779268 * x)) - 1.0


@kernel
def tile_mask(live, width: tl.constexpr, padded: tl.constexpr):
    """Mask of the valid rows and columns of a tile."""
    mask = live[:, None]
    if width != padded:
        mask = mask & (tl.arange(0, padded) < width)[None, :]
    return mask


@kernel
def load_rows(x, row, mask, width: tl.constexpr, padded: tl.constexpr):
    """Rows of a matrix in float32, [rows, padded], zeros where masked."""
    return tl.load(x + row[:, None] * width + tl.arange(0, padded)[None, :], mask, 0.0).to(tl.float32)


@kernel
def store_rows(x, row, value, mask, width: tl.constexpr, padded: tl.constexpr):
    """Write rows of a matrix."""
    tl.store(x + row[:, None] * width + tl.arange(0, padded)[None, :], value, mask)


@kernel
def step_rows(cell, lane, valid, in_row, step, stride, hidden: tl.constexpr, hp: tl.constexpr):
    """Cell of each lane at a step, whether there is one, and the mask of its state."""
    row, live, mask = (lane + step * stride).to(tl.int64), valid, in_row
    if cell is not None:
        row = tl.load(cell + row, valid, -1).to(tl.int64)
        live = row >= 0
        mask = tile_mask(live, hidden, hp)
    return row, live, mask


@kernel
def state_before(after, first, row, lane, step, stride, mask, hidden: tl.constexpr, hp: tl.constexpr):
    """State before a step of lanes without tables; ``first`` holds initial states, None for zeros."""
    if step > 0:
        state = load_rows(after, row - stride, mask, hidden, hp)
    elif first is None:
        state = tl.zeros([row.shape[0], hp], tl.float32)
    else:
        state = load_rows(first, lane.to(tl.int64), mask, hidden, hp)
    return state


@kernel
def linked_state(after, first, known, mask, hidden: tl.constexpr, hp: tl.constexpr):
    """State after the cell ``known``, or the initial state of slot ``-1 - known`` if that is negative."""
    state = load_rows(after, known, mask & (known >= 0)[:, None], hidden, hp)
    if first is not None:
        state += load_rows(first, -1 - known, mask & (known < 0)[:, None], hidden, hp)
    return state


@kernel
def final_gradient(d, d_last, slot, mask, hidden: tl.constexpr, hp: tl.constexpr):
    """Replace the gradient of the states after last cells, those with a slot, by that of the final states."""
    final = mask & (slot >= 0)[:, None]
    d = tl.where(final, 0.0, d)
    if d_last is not None:
        d += load_rows(d_last, slot, final, hidden, hp)
    return d


@kernel
def load_sums(sums, number: tl.constexpr, index: tl.constexpr, height: tl.constexpr, width: tl.constexpr):
    """One of this program's sums, [height, width], to add to."""
    at = tl.arange(0, height)[:, None] * width + tl.arange(0, width)[None, :]
    return tl.load(sums + (tl.program_id(0) * number + index) * height * width + at)


@kernel
def store_sums(sums, number: tl.constexpr, first, second, third, fourth, height: tl.constexpr, width: tl.constexpr):
    """Store this program's sums, [number, height, width]."""
    at = tl.arange(0, height)[:, None] * width + tl.arange(0, width)[None, :]
    into, size = sums + tl.program_id(0) * number * height * width + at, height * width
    tl.store(into, first)
    tl.store(into + size, second)
    tl.store(into + 2 * size, third)
    if fourth is not None:
        tl.store(into + 3 * size, fourth)
