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
