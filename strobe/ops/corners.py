"""Top left corners of sparse matrices, and many of them along a diagonal: views, nothing is copied or renumbered.

Columns ascend in each row, so the entries of a corner are the first ones of its first rows: all it takes is to know
where they end.
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
from strobe.ops.csr import FloatArray, row_pointers
from strobe.ops.memory import empty
from strobe.ops.normalise import Csr
from strobe.ops.rows import row_ends
from strobe.ops.sparse import Sparse
from strobe.ops.threads import run_parts


@dataclass(frozen=True, eq=False)
class Corner:
    """The first ``num_rows`` rows and ``num_cols`` columns of a matrix whose columns ascend.

    Entry (i, j) counts ``gives[i] * reads[j]`` times; None: once.
    """

    matrix: Sparse
    num_rows: int
    num_cols: int
    reads: Tensor | None = None  # [num_cols]
    gives: Tensor | None = None  # [num_rows]

    @property
    def is_whole(self) -> bool:
        """Whether no column is missing."""
        return self.num_cols == self.matrix.num_cols

    @cached_property
    def ends(self) -> Tensor:
        """Where the entries of each row end, [R]."""
        row_ptr, col = self.matrix.row_ptr, self.matrix.col
        if self.is_whole:
            return row_ptr[1 : self.num_rows + 1]
        if row_ptr.is_cuda:
            return self._ends_there()
        first, columns = row_ptr.cpu().numpy(), col.cpu().numpy()
        return torch.from_numpy(row_ends(first, columns, self.num_rows, self.num_cols)).to(row_ptr.device)

    def _ends_there(self) -> Tensor:
        """The same, found on the GPU."""
        inside = self.matrix.row_ptr.new_zeros(self.matrix.num_entries + 1)
        inside[1:] = (self.matrix.col < self.num_cols).cumsum(0)
        first, last = self.matrix.row_ptr[: self.num_rows], self.matrix.row_ptr[1 : self.num_rows + 1]
        return first + inside[last] - inside[first]

    @cached_property
    def transposed(self) -> Corner:
        if self.is_symmetric:
            return self
        return Corner(self.matrix.transposed, self.num_cols, self.num_rows, self.gives, self.reads)

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """How kernels go through its rows, by kind, each made once."""
        return {}

    @property
    def is_symmetric(self) -> bool:
        return self.matrix.symmetric and self.num_rows == self.num_cols and self.reads is self.gives

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Ranges of rows for threads to share."""
        cut = [(first, min(last, self.num_rows)) for first, last in self.matrix.parts if first < self.num_rows]
        return [(first, last) for first, last in cut if first < last]

    def copied(self) -> Csr:
        """The same as a matrix of its own."""
        starts, ends = (each.cpu().numpy() for each in (self.matrix.row_ptr[: self.num_rows], self.ends))
        length = ends - starts
        row_ptr = row_pointers(length)
        at = np.repeat(starts - row_ptr[:-1], length) + np.arange(int(row_ptr[-1]))
        col = self.matrix.col.cpu().numpy()[at]
        weight: FloatArray | None = None if self.matrix.weight is None else self.matrix.weight.cpu().numpy()[at]
        for scale, where in ((self.reads, col), (self.gives, np.repeat(np.arange(self.num_rows), length))):
            if scale is not None:
                times = scale.cpu().numpy()[where]
                weight = times if weight is None else weight * times
        return row_ptr, col, weight


@dataclass(frozen=True, eq=False)
class Corners:
    """Corners along a diagonal: rows and columns of each follow those of the one before."""

    blocks: tuple[Corner, ...]

    @cached_property
    def num_rows(self) -> int:
        return sum(block.num_rows for block in self.blocks)

    @cached_property
    def num_cols(self) -> int:
        return sum(block.num_cols for block in self.blocks)

    @cached_property
    def transposed(self) -> Corners:
        return Corners(tuple(block.transposed for block in self.blocks))

    def times(self, x: Tensor) -> Tensor:
        weights = [block.matrix.weight for block in self.blocks if block.matrix.weight is not None]
        if triton.usable(x, *weights):
            from strobe.ops.triton import spmm as kernels

            return kernels.diagonal_product(self.blocks, x)
        if not native.usable(x, *weights):
            return self.copied(x).times(x)
        out = empty(x, self.num_rows, x.shape[1])
        parts = list(self._parts(x, out))

        def work(part: int) -> None:
            native.call("spmm", *parts[part])

        run_parts(work, len(parts))
        return out

    def copied(self, like: Tensor) -> Sparse:
        """The same as one matrix of its own, for whoever needs its entries."""
        blocks = [block.copied() for block in self.blocks]
        columns = np.cumsum([0, *(block.num_cols for block in self.blocks)]).tolist()
        placed = [(ptr, col + first, weight) for (ptr, col, weight), first in zip(blocks, columns, strict=False)]
        symmetric = all(block.is_symmetric for block in self.blocks)
        return Sparse.stacked(placed, columns[-1], dtype=like.dtype, device=like.device, symmetric=symmetric)

    def _parts(self, x: Tensor, out: Tensor) -> Sequence[tuple[object, ...]]:
        """Arguments of the kernel, block by block and in each part by part."""
        found: list[tuple[object, ...]] = []
        row = column = 0
        for block in self.blocks:
            entries = block.matrix.row_ptr, block.ends, block.matrix.col, block.matrix.weight, block.reads, block.gives
            rows = x[column : column + block.num_cols], out[row : row + block.num_rows]
            found += [(*part, x.shape[1], *entries, *rows) for part in block.parts]
            row, column = row + block.num_rows, column + block.num_cols
        return found
