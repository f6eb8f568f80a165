"""Graph attention over the entries of a sparse matrix.

``attend`` stores nothing per entry: per row and head it saves the log-sum-exp of the scores, from which backward
recomputes the weights. ``attend_reference`` stores about 2 heads × (depth + 2) numbers per entry and runs where kernels
are missing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native, triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.spmm import Sparse


def attend(matrix: Sparse, a_in: Tensor, a_out: Tensor, v: Tensor, slope: float = 0.2) -> Tensor:
    """Sum v[j] over the entries j of row i, weighted by softmax(leaky_relu(a_in[i] + a_out[j])), per head.

    Args:
        matrix: adjacency [R, S]; weights are ignored; rows without entries give zeros.
        a_in: scores of the reading rows, [R, heads].
        a_out: scores of the read rows, [S, heads].
        v: values of the read rows, [S, heads * depth].
        slope: negative slope of the leaky ReLU.
    """
    if triton.usable(v.device, a_in.dtype, a_out.dtype, v.dtype):
        return triton.attention.attend(matrix, a_in, a_out, v, slope)
    if BF16 in (a_in.dtype, a_out.dtype, v.dtype):
        return run_in_float32(attend, matrix, a_in, a_out, v, slope)
    if not native.usable(a_in, a_out, v):
        return attend_reference(matrix, a_in, a_out, v, slope)
    out: Tensor = _Attend.apply(matrix, slope, a_in, a_out, v)  # type: ignore[no-untyped-call]
    return out


def attend_reference(matrix: Sparse, a_in: Tensor, a_out: Tensor, v: Tensor, slope: float = 0.2) -> Tensor:
    """``attend`` by gathering scores and values of every entry."""
    heads, col, row = a_in.shape[1], matrix.col.long(), matrix.rows
    score = torch.nn.functional.leaky_relu(a_in[row] + a_out[col], slope)
    with torch.no_grad():  # softmax and its gradient are invariant to a shift
        at = row[:, None].expand_as(score)
        top = torch.full_like(a_in, -torch.inf).scatter_reduce(0, at, score, "amax")
    weight = torch.exp(score - top[row])
    total = torch.zeros_like(a_in).index_add(0, row, weight)
    weighed = (weight / total[row])[:, :, None] * v[col].unflatten(1, (heads, -1))
    return v.new_zeros(matrix.num_rows, v.shape[1]).index_add(0, row, weighed.flatten(1))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Sparse, slope: float, a_in: Tensor, a_out: Tensor, v: Tensor) -> Tensor:
        a_in, a_out, v = (tensor.detach().contiguous() for tensor in (a_in, a_out, v))
        out = empty(v, matrix.num_rows, v.shape[1])
        norm = torch.empty_like(a_in)
        _by_rows("attend", matrix, slope, a_in, a_out, v, out, norm)
        ctx.matrix, ctx.slope = matrix, slope
        ctx.save_for_backward(a_in, a_out, v, out, norm)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        a_in, a_out, v, out, norm = ctx.saved_tensors
        d_out = grads[0].contiguous()
        mean_grad = (d_out * out).unflatten(1, (a_in.shape[1], -1)).sum(2)
        d_in, d_a_out, d_v = torch.empty_like(a_in), torch.empty_like(a_out), empty(v, *v.shape)
        saved = (a_in, a_out, v, norm, d_out, mean_grad)
        if ctx.needs_input_grad[2]:
            _by_rows("attend_backward_in", ctx.matrix, ctx.slope, *saved, d_in)
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            _by_rows("attend_backward_out", ctx.matrix.transposed, ctx.slope, *saved, d_a_out, d_v)
        gradients = zip(ctx.needs_input_grad[2:], (d_in, d_a_out, d_v), strict=True)
        return None, None, *(gradient if wanted else None for wanted, gradient in gradients)


def _by_rows(kernel: str, matrix: Sparse, slope: float, a_in: Tensor, a_out: Tensor, v: Tensor, *rest: Tensor) -> None:
    """Run a kernel over the rows of the matrix on all cores."""
    heads = a_in.shape[1]
    depth = v.shape[1] // heads
    parts = matrix.parts

    def work(part: int) -> None:
        first, last = parts[part]
        shape = (first, last, heads, depth, float(slope), matrix.row_ptr, matrix.col)
        native.call(kernel, *shape, a_in, a_out, v, *rest)

    run_parts(work, len(parts))
