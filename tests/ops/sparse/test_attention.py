from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.sparse import attention
from strobe.ops.sparse.attention import attend, attend_reference
from strobe.ops.sparse.spmm import Sparse

Attend = Callable[..., Tensor]
needs_kernels = pytest.mark.skipif(native.library() is None, reason="the compiled kernels are not built")
BOTH = [pytest.param(attend, marks=needs_kernels), attend_reference]


def sparse(rows: list[list[int]], num_cols: int) -> Sparse:
    """The matrix whose row i has these columns."""
    ptr = torch.tensor([0] + [len(row) for row in rows]).cumsum(0)
    return Sparse(ptr, torch.tensor([j for row in rows for j in row], dtype=torch.int32), None, num_cols)


def random_matrix(rows: int, cols: int, seed: int) -> Sparse:
    """Rows of different lengths, some empty, some with parallel entries."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (rows,), generator=generator).tolist()
    lengths[0] = 0
    return sparse([sorted(torch.randint(0, cols, (n,), generator=generator).tolist()) for n in lengths], cols)


def operands(matrix: Sparse, heads: int, depth: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        return (scale * torch.randn(*shape, dtype=torch.float64, generator=generator)).requires_grad_()

    return draw(matrix.num_rows, heads), draw(matrix.num_cols, heads), draw(matrix.num_cols, heads * depth)


def gradients(out: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    towards = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * towards).sum(), inputs)


@needs_kernels
@pytest.mark.parametrize(("heads", "depth"), [(1, 1), (1, 5), (2, 3), (3, 4), (4, 8)])
@pytest.mark.parametrize("slope", [0.2, 0.01])
def test_kernels_equal_the_reference_in_values_and_gradients(heads: int, depth: int, slope: float) -> None:
    matrix = random_matrix(30, 25, seed=heads)
    inputs = operands(matrix, heads, depth)
    fast, slow = attend(matrix, *inputs, slope), attend_reference(matrix, *inputs, slope)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", BOTH)
def test_gradients_are_those_of_finite_differences(function: Attend) -> None:
    matrix = random_matrix(6, 5, seed=1)
    assert torch.autograd.gradcheck(lambda *inputs: function(matrix, *inputs), operands(matrix, 2, 3))


@pytest.mark.parametrize("function", BOTH)
def test_parallel_entries_count_each(function: Attend) -> None:
    a_in, a_out = torch.zeros(1, 1).double(), torch.tensor([[0.0], [math.log(3.0)]]).double()
    v = torch.tensor([[1.0], [0.0]]).double()
    # Weights before normalisation are 1, 1 and 3: the doubled entry holds two fifths.
    out = function(sparse([[0, 0, 1]], 2), a_in, a_out, v)
    assert out.item() == pytest.approx(2 / 5)


@pytest.mark.parametrize("function", BOTH)
def test_rows_without_entries_give_zeros_and_no_gradient(function: Attend) -> None:
    matrix = sparse([[], [0, 1], []], 3)
    inputs = operands(matrix, 2, 2)
    out = function(matrix, *inputs)
    assert out[[0, 2]].eq(0).all()
    assert out[1].ne(0).all()
    d_in, d_out, d_v = gradients(out, inputs)
    assert d_in[[0, 2]].eq(0).all()
    assert d_out[2].eq(0).all()
    assert d_v[2].eq(0).all()
    assert d_v[:2].ne(0).all()


@pytest.mark.parametrize("function", BOTH)
def test_a_matrix_without_rows_gives_no_rows(function: Attend) -> None:
    matrix = sparse([], 0)
    inputs = operands(matrix, 2, 3)
    out = function(matrix, *inputs)
    assert out.shape == (0, 6)
    assert [tuple(gradient.shape) for gradient in gradients(out, inputs)] == [(0, 2), (0, 2), (0, 6)]


@pytest.mark.parametrize("function", BOTH)
def test_huge_scores_neither_overflow_nor_lose_the_winner(function: Attend) -> None:
    matrix = sparse([[0, 1]], 2)
    a_in, a_out = torch.full((1, 1), 500.0), torch.tensor([[400.0], [0.0]])
    out = function(matrix, a_in, a_out, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert out.tolist() == [[1.0, 2.0]]


@needs_kernels
def test_single_precision_is_close_to_double() -> None:
    matrix = random_matrix(40, 30, seed=5)
    inputs = operands(matrix, 4, 8, scale=3.0)
    a_in, a_out, v = single = [x.detach().float().requires_grad_() for x in inputs]
    expected, out = attend_reference(matrix, *inputs), attend(matrix, a_in, a_out, v)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(gradients(out, single), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


@needs_kernels
def test_rows_shared_out_over_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.ops.sparse.spmm.MIN_PART_ENTRIES", 4)
    cut, whole = random_matrix(50, 50, seed=7), random_matrix(50, 50, seed=7)
    assert len(cut.parts) > 1
    vars(whole)["parts"] = [(0, whole.num_rows)]
    inputs = operands(cut, 2, 4)
    ours, theirs = attend(cut, *inputs), attend(whole, *inputs)
    assert torch.equal(ours, theirs)
    assert all(map(torch.equal, gradients(ours, inputs), gradients(theirs, inputs)))


@needs_kernels
def test_nothing_is_saved_per_entry() -> None:
    matrix, saved = sparse([list(range(100))] * 10, 100), list[int]()

    def save(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        attend(matrix, *operands(matrix, 1, 2))
    assert 0 < max(saved) < matrix.num_entries


def test_without_kernels_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(attention, "_by_rows", None)
    matrix = random_matrix(8, 8, seed=2)
    inputs = operands(matrix, 2, 2)
    assert torch.equal(attend(matrix, *inputs), attend_reference(matrix, *inputs))
