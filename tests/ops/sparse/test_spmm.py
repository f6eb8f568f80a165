from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import InputError
from strobe.ops import native
from strobe.ops.sparse.csr import Csr, FloatArray
from strobe.ops.sparse.spmm import Sparse, gather_rows, spmm, spmm_reference


def _matrix(rows: int, density: float, *, weighted: bool = True, seed: int = 0, skewed: bool = False) -> Sparse:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, rows)) * (rng.random((rows, rows)) < density)
    if skewed:
        dense[0] = rng.normal(size=rows)  # one row with everything
        dense[1:3] = 0  # rows with nothing
    block = sp.csr_array(dense)
    return Sparse.block_diagonal([(block.indptr, block.indices, block.data if weighted else None)], dtype=torch.float64)


def _dense(matrix: Sparse) -> torch.Tensor:
    return spmm_reference(matrix, torch.eye(matrix.num_cols, dtype=torch.float64))


@pytest.mark.parametrize("width", [1, 2, 7, 12, 16, 24, 32, 33, 64, 100, 128, 191])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_product_equals_gathering_and_adding(width: int, weighted: bool) -> None:
    matrix = _matrix(40, 0.2, weighted=weighted, skewed=True)
    x = torch.randn(40, width, dtype=torch.float64)
    torch.testing.assert_close(spmm(matrix, x), spmm_reference(matrix, x), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(spmm(matrix, x), _dense(matrix) @ x, rtol=1e-12, atol=1e-12)


def test_its_gradient_is_a_product_with_the_transpose() -> None:
    matrix = _matrix(12, 0.3, skewed=True)
    x = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: spmm(matrix, rows), (x,))
    torch.testing.assert_close(_dense(matrix.transposed), _dense(matrix).t())
    assert matrix.transposed.transposed is matrix


def test_a_symmetric_matrix_is_its_own_transpose() -> None:
    block = sp.csr_array(np.array([[0.0, 2], [2, 1]]))
    matrix = Sparse.block_diagonal([(block.indptr, block.indices, block.data)], dtype=torch.float64, symmetric=True)
    assert matrix.transposed is matrix


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 10))
def test_a_window_is_block_diagonal(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = [rng.integers(0, 2, (size, size)) * rng.normal(size=(size, size)) for size in sizes]
    blocks = [sp.csr_array(block) for block in dense]
    matrix = Sparse.block_diagonal([(block.indptr, block.indices, block.data) for block in blocks], dtype=torch.float64)
    expected = torch.block_diag(*[torch.from_numpy(block) for block in dense]) if sizes else torch.zeros(0, 0)
    torch.testing.assert_close(_dense(matrix), expected.double().reshape(sum(sizes), sum(sizes)))
    if sizes:
        single = [
            Sparse.block_diagonal([(block.indptr, block.indices, block.data)], dtype=torch.float64) for block in blocks
        ]
        joined = Sparse.join_diagonal(single)
        assert joined.num_cols == matrix.num_cols
        for part, other in ((joined.row_ptr, matrix.row_ptr), (joined.col, matrix.col), (joined.weight, matrix.weight)):
            assert part is not None
            assert other is not None
            assert torch.equal(part, other)


def test_many_rows_are_shared_out_and_none_is_left_out() -> None:
    rng = np.random.default_rng(3)
    degree = rng.zipf(1.6, 60_000).clip(max=5_000)
    row_ptr = np.concatenate(([0], np.cumsum(degree)))
    col = rng.integers(0, 60_000, int(row_ptr[-1]))
    matrix = Sparse.block_diagonal([(row_ptr, col, None)], dtype=torch.float32)
    assert len(matrix.parts) > 1
    assert [first for first, _ in matrix.parts[1:]] == [last for _, last in matrix.parts[:-1]]
    ones = torch.ones(60_000, 2)
    assert torch.equal(spmm(matrix, ones)[:, 0], torch.from_numpy(degree).float())


def test_without_kernels_the_product_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = _matrix(10, 0.4)
    x = torch.randn(10, 3, dtype=torch.float64)
    expected = spmm(matrix, x)
    monkeypatch.setattr(native, "library", lambda: None)
    torch.testing.assert_close(spmm(matrix, x), expected)


def test_without_kernels_more_entries_than_places_are_not_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it refuses them."""
    block = np.array([0, 5, 6]), np.array([0, 0, 0, 1, 1, 0]), np.arange(6.0)
    matrix = Sparse.block_diagonal([block], dtype=torch.float64)
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(Sparse, "torch_csr", None)
    assert spmm(matrix, torch.tensor([[1.0], [10.0]]).double()).tolist() == [[73.0], [5.0]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=4), st.integers(1, 6), st.integers(0, 10))
def test_matrices_with_the_same_columns_stand_on_top_of_each_other(
    shapes: list[tuple[int, bool]], num_cols: int, seed: int
) -> None:
    """Where only some have weights, the entries of the others weigh 1."""
    rng = np.random.default_rng(seed)
    blocks: list[Csr] = []
    expected: list[FloatArray] = [np.zeros((0, num_cols))]
    for rows, weighted in shapes:
        dense = rng.integers(0, 2, (rows, num_cols)) * (rng.normal(size=(rows, num_cols)) if weighted else 1.0)
        block = sp.csr_array(dense)
        blocks.append((block.indptr, block.indices, block.data if weighted else None))
        expected.append(dense)
    matrix = Sparse.vstack(blocks, num_cols, dtype=torch.float64)
    assert (matrix.num_rows, matrix.num_cols) == (sum(rows for rows, _ in shapes), num_cols)
    assert (matrix.weight is None) == (not any(weighted for _, weighted in shapes))
    assert (matrix.row_ptr.dtype, matrix.col.dtype) == (torch.int64, torch.int32)
    whole = torch.from_numpy(np.concatenate(expected))
    x = torch.from_numpy(rng.normal(size=(num_cols, 3))).requires_grad_()
    torch.testing.assert_close(spmm(matrix, x), whole @ x, rtol=1e-12, atol=1e-12)
    towards = torch.from_numpy(rng.normal(size=(matrix.num_rows, 3)))
    (gradient,) = torch.autograd.grad((spmm(matrix, x) * towards).sum(), x)
    torch.testing.assert_close(gradient, whole.t() @ towards, rtol=1e-12, atol=1e-12)


def test_more_columns_than_indices_can_name_are_refused_with_what_to_do() -> None:
    nothing = np.zeros(1, np.int64), np.empty(0, np.int32), None
    with pytest.raises(InputError, match=r"2,147,483,648 cells .* \(--window\)"):
        Sparse.vstack([nothing], 2**31, dtype=torch.float32)
    assert Sparse.vstack([nothing], 2**31 - 1, dtype=torch.float32).num_cols == 2**31 - 1


def test_a_product_with_another_number_of_rows_is_refused() -> None:
    matrix = Sparse(torch.tensor([0, 1, 2]), torch.tensor([2, 0], dtype=torch.int32), None, 3)
    assert spmm(matrix, torch.ones(3, 4)).shape == (2, 4)
    with pytest.raises(InputError, match=r"a product of 3 columns reads as many rows, not \[2, 4\]"):
        spmm(matrix, torch.ones(2, 4))
    with pytest.raises(InputError, match=r"not \[3, 4, 1\]"):
        spmm(matrix, torch.ones(3, 4, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gathered_rows_and_gradients_that_add_up_in_order_on_two_threads(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.full(2000, 3), rng.integers(0, 50, 2000), np.full(2000, 49)])
    x = torch.from_numpy(rng.normal(size=(51, 20))).to(dtype).requires_grad_()
    weight = torch.from_numpy(rng.normal(size=(len(rows), 20))).to(dtype)
    expected = np.zeros((51, 20), weight.numpy().dtype)
    np.add.at(expected, rows, weight.numpy())  # one after the other
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = gather_rows(x, torch.from_numpy(rows))
        (gradient,) = torch.autograd.grad(found, x, weight)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, x[torch.from_numpy(rows)])
    np.testing.assert_array_equal(gradient.numpy(), expected)


def test_a_column_of_any_stride_is_gathered() -> None:
    """torch calls a transposed row contiguous: no copy makes its stride 1."""
    row = torch.arange(5.0).reshape(1, 5).requires_grad_()
    found = gather_rows(row.T, torch.tensor([0, 2, 2]))
    assert found.squeeze(1).tolist() == [0, 2, 2]
    assert torch.autograd.grad(found.sum(), row)[0].tolist() == [[1, 0, 2, 0, 0]]


def test_no_rows_are_gathered() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    found = gather_rows(x, torch.empty(0, dtype=torch.int64))
    assert found.shape == (0, 2)
    assert not torch.autograd.grad(found.sum(), x)[0].any()
