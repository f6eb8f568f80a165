"""Self-loops and normalization of snapshots, one definition for all models, on the host and on a GPU.

Rows are destinations: row i lists the cells that cell i reads. Parallel edges count each. Degrees sum absolute weights,
so signed edges neither cancel nor give the root of a negative number.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from strobe.errors import UnknownNameError
from strobe.ops import native
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows, row_pointers, transpose
from strobe.ops.sparse.csr_kernels import gcn_norm
from strobe.ops.sparse.spmm import Sparse

Norm = Literal["gcn", "mean", "mean_out", "sum", "loops", "sym"]
"""``gcn``: missing self-loops with weight 1, arcs divided by the root of both degrees (Kipf and Welling). ``mean``:
average over incoming arcs. ``mean_out``: average over outgoing arcs (the random walk along the edges). ``sum``: the
weights as they are. ``loops``: no weights, exactly one self-loop per cell, as in graph attention. ``sym``: arcs without
self-loops, divided by the root of both outgoing degrees; I - sym is PyTorch Geometric's Laplacian of this name."""

SYMMETRIC_NORMS: tuple[Norm, ...] = ("gcn", "sum", "loops", "sym")
"""Norms whose matrices are symmetric for undirected graphs."""


def normalize(norm: Norm, row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Csr:
    """Aggregation matrix of one snapshot, with weights in double precision."""
    if norm not in get_args(Norm):
        raise UnknownNameError("normalization", norm, get_args(Norm))
    if norm == "sum":
        return row_ptr, col, None if weight is None else weight.astype(np.float64)
    if norm == "loops":
        row_ptr, col, _ = _add_self_loops(row_ptr, col, np.ones(col.size), replace=True)
        return row_ptr, col, None
    if norm == "gcn" and native.library() is not None:
        return gcn_norm(row_ptr, col, weight)
    values: FloatArray = np.ones(col.size) if weight is None else weight.astype(np.float64)
    if norm == "sym":
        row_ptr, col, values = remove_self_loops(row_ptr, col, values)
        root = safe_reciprocal(np.sqrt(_row_sums(np.abs(values), col, row_ptr.size - 1)))
        return row_ptr, col, root[expand_rows(row_ptr)] * values * root[col]
    if norm == "gcn":
        row_ptr, col, values = _add_self_loops(row_ptr, col, values, replace=False)
        row = expand_rows(row_ptr)
        root = safe_reciprocal(np.sqrt(_row_sums(np.abs(values), row, row_ptr.size - 1)))
        return row_ptr, col, root[row] * values * root[col]
    if norm == "mean_out":
        row_ptr, col, at = transpose(row_ptr, col, row_ptr.size - 1)
        values = values[at]
    row = expand_rows(row_ptr)
    return row_ptr, col, values * safe_reciprocal(_row_sums(np.abs(values), row, row_ptr.size - 1))[row]


def _row_sums(values: FloatArray, row: IntArray, rows: int) -> FloatArray:
    return np.bincount(row, weights=values, minlength=rows).astype(np.float64)


def safe_reciprocal(values: FloatArray) -> FloatArray:
    """1 / value, and 0 for 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def remove_self_loops(row_ptr: IntArray, col: IntArray, values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Remove the entries of the diagonal."""
    row = expand_rows(row_ptr)
    other = row != col
    return row_pointers(np.bincount(row[other], minlength=row_ptr.size - 1)), col[other], values[other]


def _add_self_loops(
    row_ptr: IntArray, col: IntArray, values: FloatArray, *, replace: bool
) -> tuple[IntArray, IntArray, FloatArray]:
    """Add a self-loop of weight 1 to every row without one; ``replace``: to every row, instead of existing ones."""
    rows = row_ptr.size - 1
    row = expand_rows(row_ptr)
    loop = row == col
    if replace:
        row, col, values = row[~loop], col[~loop], values[~loop]
        missing = np.arange(rows, dtype=col.dtype)
    else:
        has = np.zeros(rows, bool)
        has[row[loop]] = True
        missing = np.flatnonzero(~has).astype(col.dtype)
    # Both lists are sorted by row and column.
    key = row.astype(np.int64) * rows + col
    at = np.searchsorted(key, missing.astype(np.int64) * (rows + 1))
    degree = np.bincount(row, minlength=rows)
    degree[missing] += 1
    return row_pointers(degree), np.insert(col, at, missing), np.insert(values, at, 1.0)


class _Arcs(NamedTuple):
    """Entries of a square matrix by rows, on a device."""

    row_ptr: Tensor  # [R + 1]
    col: Tensor  # [E]
    values: Tensor  # [E]

    @property
    def num_rows(self) -> int:
        return len(self.row_ptr) - 1

    @property
    def row(self) -> Tensor:
        """Row of every entry, [E]."""
        rows = torch.arange(self.num_rows, device=self.col.device)
        return torch.repeat_interleave(rows, self.row_ptr.diff(), output_size=len(self.col))

    def transposed(self) -> _Arcs:
        flipped = Sparse(self.row_ptr, self.col, self.values, self.num_rows).transpose_on_device()
        assert flipped.weight is not None
        return _Arcs(flipped.row_ptr, flipped.col, flipped.weight)

    def reciprocal_degree(self, power: float) -> Tensor:
        """1 / degree ** power, and 0 for 0. Degrees sum absolute values in order of entries: deterministic."""
        degree = torch.segment_reduce(self.values.abs(), "sum", offsets=self.row_ptr, unsafe=True, initial=0.0)
        return torch.where(degree > 0, degree.pow(power).reciprocal(), 0.0)


def normalize_on_device(
    norm: Norm, block: Csr, *, dtype: torch.dtype, device: torch.device, symmetric: bool = False
) -> Sparse:
    """``normalize`` by the operations of a device: the host only copies the arcs of the snapshot."""
    row_ptr, col = (torch.from_numpy(np.array(each)).to(device) for each in block[:2])
    weight = None if block[2] is None else torch.from_numpy(np.array(block[2], np.float64)).to(device)
    values = torch.ones(len(col), dtype=torch.float64, device=device) if weight is None else weight
    arcs = _Arcs(row_ptr.long(), col, values)
    if norm in ("loops", "sym"):
        arcs = _without_loops(arcs)
    if norm in ("loops", "gcn"):
        arcs = _with_loops(arcs)
    if norm == "mean_out":
        arcs = arcs.transposed()
    values = arcs.values
    if norm in ("mean", "mean_out"):
        values = values * arcs.reciprocal_degree(1.0)[arcs.row]
    elif norm in ("gcn", "sym"):
        root = (arcs if norm == "gcn" else arcs.transposed()).reciprocal_degree(0.5)
        values = root[arcs.row] * values * root[arcs.col.long()]
    has_weight = norm != "loops" and (norm != "sum" or weight is not None)
    return Sparse(
        arcs.row_ptr, arcs.col.to(torch.int32), values.to(dtype) if has_weight else None, arcs.num_rows, symmetric
    )


def _without_loops(arcs: _Arcs) -> _Arcs:
    """Remove the entries of the diagonal."""
    row = arcs.row
    other = row != arcs.col
    counts = torch.bincount(row[other], minlength=arcs.num_rows)
    return _Arcs(_pointers(counts), arcs.col[other], arcs.values[other])


def _with_loops(arcs: _Arcs) -> _Arcs:
    """Add a self-loop of weight 1 to every row without one."""
    rows, device, row = arcs.num_rows, arcs.col.device, arcs.row
    has = torch.zeros(rows, dtype=torch.bool, device=device)
    has[row[row == arcs.col]] = True
    loops = torch.arange(rows, device=device)[~has]
    # Both lists are sorted: the position of an entry is the number of entries before it in both.
    key, key_of_loop = row * rows + arcs.col, loops * (rows + 1)
    place = torch.arange(len(key), device=device) + torch.searchsorted(key_of_loop, key)
    place_of_loop = torch.arange(len(loops), device=device) + torch.searchsorted(key, key_of_loop)
    col = torch.empty(len(key) + len(loops), dtype=torch.int32, device=device)
    values = torch.ones(len(col), dtype=torch.float64, device=device)
    col[place], col[place_of_loop] = arcs.col.to(torch.int32), loops.to(torch.int32)
    values[place] = arcs.values
    return _Arcs(_pointers(arcs.row_ptr.diff() + ~has), col, values)


def _pointers(counts: Tensor) -> Tensor:
    """Row pointers of rows with ``counts`` entries."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
