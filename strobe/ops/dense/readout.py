"""Readout: a linear map of ReLU(embedding)."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from strobe.errors import InputError
from strobe.ops import native, triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import even_cuts, run_parts

PARTS = 16
"""Maximum parts. Their number depends on the rows alone, so weight gradients are bit-identical on any number of
threads."""

PART_ROWS = 4096
"""Minimum rows per part."""

_known_to_ascend: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()


def readout(z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None = None) -> Tensor:
    """Compute relu(z[rows]) @ weight.T + bias, saving z only: rows and their positive parts are not copied.

    Args:
        z: embeddings [C, W].
        weight: [K, W].
        bias: [K].
        rows: selected rows, ascending and distinct, which are not changed in place later; None for all.
    """
    if z.shape[1:] != weight.shape[1:]:
        raise InputError(f"embeddings are {list(z.shape)}, the weights are for {weight.shape[1]} columns")
    on_gpu = triton.usable(z.device, z.dtype)
    if z.dtype == BF16 and not on_gpu:
        return run_in_float32(readout, z, weight, bias, rows)
    has_kernel = on_gpu or native.usable(z, weight, bias)
    if not has_kernel or (rows is not None and not _ascends(rows)):
        return readout_reference(z, weight, bias, rows)
    if on_gpu:
        if not triton.readout.fits(z.shape[1], len(weight)):
            return readout_reference(z, weight, bias, rows)
        return triton.readout.readout(z, weight, bias, rows)
    out: Tensor = _Readout.apply(z, weight, bias, rows)  # type: ignore[no-untyped-call]
    return out


def _ascends(rows: Tensor) -> bool:
    """Whether rows are ascending and distinct, found once per tensor: for a GPU's result the host waits."""
    if rows not in _known_to_ascend:
        _known_to_ascend[rows] = bool((rows.diff() > 0).all())
    return _known_to_ascend[rows]


def readout_reference(z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None = None) -> Tensor:
    """``readout`` in plain torch, with rows in any order."""
    return torch.nn.functional.linear(torch.relu(z if rows is None else z[rows]), weight, bias)


class _Readout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
        z, weight, rows = z.contiguous(), weight.contiguous(), None if rows is None else rows.contiguous()
        count = len(z) if rows is None else len(rows)
        y = z.new_empty(count, len(weight))
        cuts = _cuts(count)

        def work(part: int) -> None:
            sizes = (*cuts[part], z.shape[1], len(weight))
            native.call("readout", *sizes, rows, z, weight, bias.contiguous(), y)

        run_parts(work, len(cuts))
        ctx.save_for_backward(z, weight, rows)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, weight, rows = ctx.saved_tensors
        d_y = grads[0].contiguous()
        d_z = empty(z, *z.shape)
        if rows is not None:
            d_z.zero_()
        cuts = _cuts(len(d_y))
        d_weight = weight.new_zeros(len(cuts), *weight.shape)
        d_bias = weight.new_zeros(len(cuts), len(weight))

        def work(part: int) -> None:
            sizes = (*cuts[part], z.shape[1], len(weight))
            native.call("readout_backward", *sizes, rows, z, weight, d_y, d_z, d_weight[part], d_bias[part])

        run_parts(work, len(cuts))
        return d_z, d_weight.sum(0), d_bias.sum(0), None


def _cuts(count: int) -> tuple[tuple[int, int], ...]:
    return even_cuts(0, count, max(1, min(PARTS, count // PART_ROWS)))
