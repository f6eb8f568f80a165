"""Sparse-dense products with matrices by rows and their transposes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.ops import native, triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.csr import Csr, transpose

MIN_PART_ENTRIES = 16_384  # minimum entries per thread


class Matrix(Protocol):
    """A matrix that multiplies dense rows, with a transpose for backward."""

    @property
    def transposed(self) -> Matrix: ...

    def times(self, x: Tensor) -> Tensor:
        """Product with contiguous x, without gradient."""
        ...


def _check_num_cols(num_cols: int) -> None:
    if num_cols > np.iinfo(np.int32).max:
        raise InputError(f"{num_cols:,} cells are too many for one matrix: take fewer snapshots at a time (--window)")


@dataclass(frozen=True, eq=False)
class Sparse:
    """CSR matrix: int64 row pointers, int32 columns, weights or None for all ones.

    The transpose is computed once, when a gradient first needs it; a symmetric matrix is its own transpose.
    """

    row_ptr: Tensor  # [R + 1]
    col: Tensor  # [E]
    weight: Tensor | None  # [E]
    num_cols: int
    symmetric: bool = False
    _of: Sparse | None = field(default=None, repr=False)

    @classmethod
    def block_diagonal(
        cls, blocks: Sequence[Csr], *, dtype: torch.dtype, device: torch.device | str = "cpu", symmetric: bool = False
    ) -> Sparse:
        """Block-diagonal matrix of all snapshots of a window: one product instead of many."""
        sizes = [row_ptr.size - 1 for row_ptr, _, _ in blocks]
        first = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        starts = first.tolist()
        shifted = [(ptr, col + start, weight) for (ptr, col, weight), start in zip(blocks, starts, strict=False)]
        return cls.vstack(shifted, int(first[-1]), dtype=dtype, device=device, symmetric=symmetric)

    @classmethod
    def join_diagonal(cls, blocks: Sequence[Sparse], *, symmetric: bool = False) -> Sparse:
        """``block_diagonal`` of square matrices that are on a device already: all with weights, or none."""
        rows, entries = (
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).tolist()
            for counts in ([block.num_rows for block in blocks], [block.num_entries for block in blocks])
        )
        _check_num_cols(rows[-1])
        weights = [block.weight for block in blocks if block.weight is not None]
        return cls(
            torch.cat([blocks[0].row_ptr[:1], *(b.row_ptr[1:] + at for b, at in zip(blocks, entries, strict=False))]),
            torch.cat([block.col + first for block, first in zip(blocks, rows, strict=False)]),
            torch.cat(weights) if weights else None,
            rows[-1],
            symmetric,
        )

    @classmethod
    def vstack(
        cls,
        blocks: Sequence[Csr],
        num_cols: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        symmetric: bool = False,
    ) -> Sparse:
        """Stack matrices with the same columns vertically."""
        _check_num_cols(num_cols)
        sizes = [row_ptr.size - 1 for row_ptr, _, _ in blocks]
        entries = [int(col.size) for _, col, _ in blocks]
        rows, arcs = (np.concatenate(([0], np.cumsum(counts, dtype=np.int64))) for counts in (sizes, entries))
        row_ptr = np.zeros(int(rows[-1]) + 1, np.int64)
        col = np.empty(int(arcs[-1]), np.int32)
        weighted = any(values is not None for _, _, values in blocks)
        weight = np.ones(int(arcs[-1]), torch.empty(0, dtype=dtype).numpy().dtype) if weighted else None
        for t, (ptr, block_col, values) in enumerate(blocks):
            row_ptr[rows[t] + 1 : rows[t + 1] + 1] = ptr[1:] + arcs[t]
            col[arcs[t] : arcs[t + 1]] = block_col
            if weight is not None and values is not None:
                weight[arcs[t] : arcs[t + 1]] = values
        return cls(
            torch.from_numpy(row_ptr).to(device),
            torch.from_numpy(col).to(device),
            None if weight is None else torch.from_numpy(weight).to(device),
            num_cols,
            symmetric,
        )

    @property
    def num_rows(self) -> int:
        return len(self.row_ptr) - 1

    @property
    def num_entries(self) -> int:
        return len(self.col)

    @cached_property
    def transposed(self) -> Sparse:
        if self.symmetric:
            return self
        if self._of is not None:
            return self._of
        if self.row_ptr.is_cuda:
            return self.transpose_on_device()
        row_ptr, col, at = transpose(self.row_ptr.cpu().numpy(), self.col.cpu().numpy(), self.num_cols)
        weight = None if self.weight is None else self.weight[torch.from_numpy(at).to(self.weight.device)]
        device = self.row_ptr.device
        return Sparse(
            torch.from_numpy(row_ptr.astype(np.int64)).to(device),
            torch.from_numpy(col.astype(np.int32)).to(device),
            weight,
            self.num_rows,
            _of=self,
        )

    def transpose_on_device(self) -> Sparse:
        """The transpose by torch operations, for a GPU."""
        at = torch.argsort(self.col, stable=True)
        rows = torch.arange(self.num_rows, dtype=torch.int32, device=self.col.device)
        rows = torch.repeat_interleave(rows, self.row_ptr.diff(), output_size=self.num_entries)
        row_ptr = self.row_ptr.new_zeros(self.num_cols + 1)
        row_ptr[1:] = torch.bincount(self.col, minlength=self.num_cols).cumsum(0)
        return Sparse(row_ptr, rows[at], None if self.weight is None else self.weight[at], self.num_rows, _of=self)

    @cached_property
    def rows(self) -> Tensor:
        """Row of every entry, [E]."""
        return torch.repeat_interleave(torch.arange(self.num_rows, device=self.row_ptr.device), self.row_ptr.diff())

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Row ranges with similar numbers of entries, a few per thread."""
        count = max(1, min(4 * torch.get_num_threads(), self.num_entries // MIN_PART_ENTRIES))
        targets = torch.linspace(0, self.num_entries, count + 1, dtype=torch.float64).long()
        cuts = torch.searchsorted(self.row_ptr, targets)
        cuts[0], cuts[-1] = 0, self.num_rows
        bounds = cuts.clamp(max=self.num_rows).tolist()
        return list(pairwise(bounds))

    def times(self, x: Tensor) -> Tensor:
        if x.shape[:-1] != (self.num_cols,):
            raise InputError(f"a product of {self.num_cols:,} columns reads as many rows, not {list(x.shape)}")
        if triton.usable(x.device, x.dtype) and (self.weight is None or self.weight.dtype in triton.DTYPES):
            return triton.spmm.product(self, x)
        if x.dtype == BF16:
            return run_in_float32(self.times, x)
        if not native.usable(x, *([] if self.weight is None else [self.weight])):
            if self.num_entries > self.num_rows * self.num_cols:  # parallel edges, which cuSPARSE refuses
                return spmm_reference(self, x)
            product: Tensor = torch.sparse.mm(self.torch_csr(x.dtype), x)
            return product
        out = empty(x, self.num_rows, x.shape[1])
        parts = self.parts
        entries = self.row_ptr, self.row_ptr[1:], self.col, self.weight, None, None

        def work(part: int) -> None:
            native.call("spmm", *parts[part], x.shape[1], *entries, x, out)

        run_parts(work, len(parts))
        return out

    def torch_csr(self, dtype: torch.dtype) -> Tensor:
        """Cached ``torch.sparse_csr_tensor``, for devices without kernels."""
        if dtype not in self._torch:
            values = self.weight
            if values is None:
                values = torch.ones(self.num_entries, dtype=dtype, device=self.col.device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # sparse CSR is in beta
                self._torch[dtype] = torch.sparse_csr_tensor(
                    self.row_ptr, self.col.long(), values, (self.num_rows, self.num_cols), check_invariants=False
                )
        return self._torch[dtype]

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """Cached kernel plans by type."""
        return {}

    @cached_property
    def _torch(self) -> dict[torch.dtype, Tensor]:
        return {}


def spmm(matrix: Matrix, x: Tensor) -> Tensor:
    """Compute matrix @ x, differentiable in x; backward multiplies by the cached transpose."""
    product: Tensor = _Product.apply(matrix, x)  # type: ignore[no-untyped-call]
    return product


def spmm_reference(matrix: Sparse, x: Tensor) -> Tensor:
    """``spmm`` by gathering, scaling and adding one row per entry."""
    rows = x[matrix.col.long()]
    scaled = rows if matrix.weight is None else rows * matrix.weight[:, None]
    return x.new_zeros(matrix.num_rows, x.shape[1]).index_add(0, matrix.rows, scaled)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Matrix, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return spmm_no_grad(matrix, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, spmm(ctx.matrix.transposed, grads[0])


def spmm_no_grad(matrix: Matrix, x: Tensor) -> Tensor:
    """Compute matrix @ x without gradient."""
    return matrix.times(x.detach().contiguous())


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Compute ``x[rows]`` of a matrix.

    Backward multiplies by the transpose of the selection matrix: gradients of a row add up in the order of ``rows``.
    That of ``x[rows]`` on the CPU, in float32 and with several threads, adds them atomically, in any order.

    Args:
        x: [n, F].
        rows: positions, which are not negative, [m].
    """
    if not (torch.is_grad_enabled() and x.requires_grad and native.usable(x)):
        return x.index_select(0, rows)
    return spmm(Sparse(torch.arange(len(rows) + 1), rows.to(torch.int32), None, len(x)), x)
