"""Rows of a matrix in any order and with repetitions, with the same gradient on any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.sparse.spmm import Sparse, spmm


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Compute ``x[rows]`` of a matrix.

    Backward multiplies by the transpose of the selection matrix: gradients of a row add up in the order of ``rows``.
    That of ``x[rows]`` on the CPU, in float32 and with several threads, adds them atomically, in any order, and takes
    1.0 to 15 times as long.

    Args:
        x: [n, F].
        rows: positions, which are not negative, [m].
    """
    if not (torch.is_grad_enabled() and x.requires_grad and native.usable(x)):
        return x.index_select(0, rows)
    return spmm(Sparse(torch.arange(len(rows) + 1), rows.to(torch.int32), None, len(x)), x)
