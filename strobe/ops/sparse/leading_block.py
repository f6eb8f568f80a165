"""Leading blocks of sparse matrices as views, alone and block-diagonal.

Columns ascend in each row, so the entries of a leading block are a prefix of each of its rows: a view needs row ends
only, no copy and no renumbering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops import native, triton
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.csr import Csr, FloatArray, row_pointers
from strobe.ops.sparse.csr_kernels import row_ends
from strobe.ops.sparse.spmm import Sparse


@dataclass(frozen=True, eq=False)
class LeadingBlock:
    """The first ``num_rows`` rows and ``num_cols`` columns of a matrix whose columns ascend.

    Entry (i, j) is scaled by ``row_scale[i] * col_scale[j]``; None: 1.
    """

    matrix: Sparse
    num_rows: int
    num_cols: int
    col_scale: Tensor | None = None  # [num_cols]
    row_scale: Tensor | None = None  # [num_rows]

    @property
    def has_all_columns(self) -> bool:
        """Whether the block has all columns of the matrix."""
        return self.num_cols == self.matrix.num_cols

    @cached_property
    def ends(self) -> Tensor:
        """End of the entries of each row, [R]."""
        row_ptr, col = self.matrix.row_ptr, self.matrix.col
        if self.has_all_columns:
            return row_ptr[1 : self.num_rows + 1]
        if row_ptr.is_cuda:
            return self._ends_on_device()
        first, columns = row_ptr.cpu().numpy(), col.cpu().numpy()
        return torch.from_numpy(row_ends(first, columns, self.num_rows, self.num_cols)).to(row_ptr.device)

    def _ends_on_device(self) -> Tensor:
        """``ends`` on a GPU."""
        inside = self.matrix.row_ptr.new_zeros(self.matrix.num_entries + 1)
        inside[1:] = (self.matrix.col < self.num_cols).cumsum(0)
        first, last = self.matrix.row_ptr[: self.num_rows], self.matrix.row_ptr[1 : self.num_rows + 1]
        return first + inside[last] - inside[first]

    @cached_property
    def transposed(self) -> LeadingBlock:
        if self.is_symmetric:
            return self
        return LeadingBlock(self.matrix.transposed, self.num_cols, self.num_rows, self.row_scale, self.col_scale)

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """Cached kernel plans by type."""
        return {}

    @property
    def is_symmetric(self) -> bool:
        return self.matrix.symmetric and self.num_rows == self.num_cols and self.col_scale is self.row_scale

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Row ranges for threads."""
        cut = [(first, min(last, self.num_rows)) for first, last in self.matrix.parts if first < self.num_rows]
        return [(first, last) for first, last in cut if first < last]

    def to_csr(self) -> Csr:
        """Copy to a CSR matrix."""
        starts, ends = (each.cpu().numpy() for each in (self.matrix.row_ptr[: self.num_rows], self.ends))
        length = ends - starts
        row_ptr = row_pointers(length)
        at = np.repeat(starts - row_ptr[:-1], length) + np.arange(int(row_ptr[-1]))
        col = self.matrix.col.cpu().numpy()[at]
        weight: FloatArray | None = None if self.matrix.weight is None else self.matrix.weight.cpu().numpy()[at]
        for scale, where in ((self.col_scale, col), (self.row_scale, np.repeat(np.arange(self.num_rows), length))):
            if scale is not None:
                times = scale.cpu().numpy()[where]
                weight = times if weight is None else weight * times
        return row_ptr, col, weight


@dataclass(frozen=True, eq=False)
class LeadingBlocks:
    """Block-diagonal matrix of leading blocks."""

    blocks: tuple[LeadingBlock, ...]

    @cached_property
    def num_rows(self) -> int:
        return sum(block.num_rows for block in self.blocks)

    @cached_property
    def num_cols(self) -> int:
        return sum(block.num_cols for block in self.blocks)

    @cached_property
    def transposed(self) -> LeadingBlocks:
        return LeadingBlocks(tuple(block.transposed for block in self.blocks))

    def times(self, x: Tensor) -> Tensor:
        weights = [block.matrix.weight for block in self.blocks if block.matrix.weight is not None]
        if triton.usable(x.device, x.dtype, *(weight.dtype for weight in weights)):
            return triton.spmm.diagonal_product(self.blocks, x)
        if not native.usable(x, *weights):
            return self.to_sparse(x).times(x)
        out = empty(x, self.num_rows, x.shape[1])
        parts = list(self._parts(x, out))

        def work(part: int) -> None:
            native.call("spmm", *parts[part])

        run_parts(work, len(parts))
        return out

    def to_sparse(self, like: Tensor) -> Sparse:
        """Copy to one sparse matrix."""
        blocks = [block.to_csr() for block in self.blocks]
        columns = np.cumsum([0, *(block.num_cols for block in self.blocks)]).tolist()
        shifted = [(ptr, col + first, weight) for (ptr, col, weight), first in zip(blocks, columns, strict=False)]
        symmetric = all(block.is_symmetric for block in self.blocks)
        return Sparse.vstack(shifted, columns[-1], dtype=like.dtype, device=like.device, symmetric=symmetric)

    def _parts(self, x: Tensor, out: Tensor) -> Sequence[tuple[object, ...]]:
        """Kernel arguments of each part of each block."""
        arguments: list[tuple[object, ...]] = []
        row = column = 0
        for block in self.blocks:
            entries = (
                block.matrix.row_ptr,
                block.ends,
                block.matrix.col,
                block.matrix.weight,
                block.col_scale,
                block.row_scale,
            )
            rows = x[column : column + block.num_cols], out[row : row + block.num_rows]
            arguments += [(*part, x.shape[1], *entries, *rows) for part in block.parts]
            row, column = row + block.num_rows, column + block.num_cols
        return arguments
