"""Corners of matrices are what a copy of them would be."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch

from strobe.ops import native
from strobe.ops.sparse.leading_block import LeadingBlock, LeadingBlocks
from strobe.ops.sparse.spmm import Sparse, spmm


def sparse(rows: int, cols: int, seed: int, *, weighted: bool, symmetric: bool = False) -> Sparse:
    random = np.random.default_rng(seed)
    dense = (random.random((rows, cols)) < 0.4) * random.normal(size=(rows, cols))
    dense = dense + dense.T if symmetric else dense
    entries = np.nonzero(dense)
    row_ptr = np.concatenate(([0], np.cumsum(np.bincount(entries[0], minlength=rows))))
    block = row_ptr, entries[1].astype(np.int32), dense[entries] if weighted else None
    return Sparse.vstack([block], cols, dtype=torch.float64, symmetric=symmetric)


def dense(corner: LeadingBlock) -> torch.Tensor:
    row_ptr, col, weight = corner.matrix.row_ptr, corner.matrix.col, corner.matrix.weight
    whole = torch.zeros(corner.matrix.num_rows, corner.matrix.num_cols, dtype=torch.float64)
    for row in range(corner.matrix.num_rows):
        for at in range(int(row_ptr[row]), int(row_ptr[row + 1])):
            whole[row, int(col[at])] += 1.0 if weight is None else float(weight[at])
    return whole[: corner.num_rows, : corner.num_cols]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("width", [1, 3, 8, 32])
def test_corners_along_a_diagonal_multiply_as_dense_ones(weighted: bool, built: bool, width: int) -> None:
    blocks = (
        LeadingBlock(sparse(9, 9, 0, weighted=weighted, symmetric=True), 6, 6),
        LeadingBlock(sparse(7, 5, 1, weighted=weighted), 7, 2),
        LeadingBlock(sparse(4, 6, 2, weighted=weighted), 0, 3),
        LeadingBlock(sparse(5, 8, 3, weighted=weighted), 3, 8),
    )
    corners, wanted = LeadingBlocks(blocks), torch.block_diag(*map(dense, blocks))
    x = torch.randn(corners.num_cols, width, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(corners.num_rows, width, dtype=torch.float64)
    with patch.object(native, "library", side_effect=native.library if built else lambda: None):
        out = spmm(corners, x)
        (gradient,) = torch.autograd.grad(out, x, upstream)
    torch.testing.assert_close(out, wanted @ x)
    torch.testing.assert_close(gradient, wanted.T @ upstream)


def test_nothing_is_copied() -> None:
    matrix = sparse(9, 9, 0, weighted=True, symmetric=True)
    corner = LeadingBlock(matrix, 6, 6)
    assert corner.transposed is corner
    assert corner.matrix.col.data_ptr() == matrix.col.data_ptr()
    whole = LeadingBlock(matrix, 6, 9)
    assert whole.ends.data_ptr() == matrix.row_ptr[1:].data_ptr()


def test_a_copy_has_the_same_entries() -> None:
    blocks = LeadingBlock(sparse(9, 9, 0, weighted=True), 6, 4), LeadingBlock(sparse(5, 5, 1, weighted=False), 3, 5)
    copied = LeadingBlocks(blocks).to_sparse(torch.empty(0, dtype=torch.float64))
    x = torch.eye(9, dtype=torch.float64)
    torch.testing.assert_close(copied.times(x), torch.block_diag(*map(dense, blocks)))


def test_ends_of_rows_are_found_on_a_gpu_by_counting() -> None:
    matrix = sparse(9, 12, 3, weighted=False)
    for rows, columns in ((9, 5), (4, 12), (0, 3), (9, 0)):
        corner = LeadingBlock(matrix, rows, columns)
        assert torch.equal(corner._ends_on_device(), corner.ends)
