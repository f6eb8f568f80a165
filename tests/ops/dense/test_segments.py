from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.ops.dense import segments
from strobe.ops.dense.segments import (
    densify_gradient,
    segment_matmul,
    segment_norm,
    segment_readout,
    select_with_sparse_grad,
    stable_topk,
)

PTRS = [(0,), (0, 0), (0, 4), (0, 3, 3, 4, 9), (0, 0, 2, 7, 7)]  # gradients are checked where all kinds meet
EVERY_PTR = pytest.mark.parametrize("ptr", PTRS, ids=str)


@pytest.fixture(params=[0, 1000], ids=["one snapshot per core", "one after the other"], autouse=True)
def _shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SHARES", request.param)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def by_snapshot(x: Tensor, ptr: tuple[int, ...]) -> list[Tensor]:
    return [x[start:stop] for start, stop in pairwise(ptr)]


@EVERY_PTR
def test_matmul_multiplies_the_rows_of_each_snapshot_with_its_matrix(ptr: tuple[int, ...]) -> None:
    x, matrices = random(ptr[-1], 3), random(len(ptr) - 1, 3, 2, seed=1)
    expected = [rows @ matrix for rows, matrix in zip(by_snapshot(x, ptr), matrices, strict=True)]
    torch.testing.assert_close(segment_matmul(x, matrices, ptr), torch.cat([*expected, x.new_zeros(0, 2)]))
    assert ptr != PTRS[3] or torch.autograd.gradcheck(lambda x, m: segment_matmul(x, m, ptr), (x, matrices))


@EVERY_PTR
def test_answers_of_products_are_a_readout_of_them(ptr: tuple[int, ...]) -> None:
    x, matrices = random(ptr[-1], 3), random(len(ptr) - 1, 3, 5, seed=1)
    weight, bias = random(2, 5, seed=2), random(2, seed=3)
    said = segment_readout(x, matrices, ptr, weight, bias)
    torch.testing.assert_close(said, torch.relu(segment_matmul(x, matrices, ptr)) @ weight.t() + bias)


def test_matmul_gives_only_the_gradients_that_are_wanted() -> None:
    x, matrices = random(4, 3), random(1, 3, 2)
    assert torch.autograd.gradcheck(lambda x: segment_matmul(x, matrices.detach(), (0, 4)), (x,))
    assert torch.autograd.gradcheck(lambda m: segment_matmul(x.detach(), m, (0, 4)), (matrices,))


@EVERY_PTR
def test_standardise_equals_torch_batch_norm_on_each_snapshot(ptr: tuple[int, ...]) -> None:
    x, scale, shift = random(ptr[-1], 3), random(3, seed=1), random(3, seed=2)
    out, means, variances = segment_norm(x, scale, shift, 1e-3, ptr)
    assert not means.requires_grad
    for t, rows in enumerate(by_snapshot(x, ptr)):
        if len(rows) > 1:
            expected = nn.functional.batch_norm(rows, None, None, scale, shift, True, eps=1e-3)
            torch.testing.assert_close(out[ptr[t] : ptr[t + 1]], expected)
            torch.testing.assert_close(means[t], rows.mean(0))
            torch.testing.assert_close(variances[t], rows.var(0))
        elif len(rows) == 1:
            torch.testing.assert_close(out[ptr[t]], shift)
    if ptr == PTRS[3]:
        given = x, scale, shift
        assert torch.autograd.gradcheck(lambda x, a, b: segment_norm(x, a, b, 1e-3, ptr)[0], given, nondet_tol=0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-3, 3)), st.integers(1, 8))
def test_highest_takes_the_best_and_of_equals_the_first(scores: list[int], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert stable_topk(torch.tensor(scores, dtype=torch.float64), k).tolist() == expected


def test_pick_adds_its_gradient_to_that_of_the_other_use() -> None:
    x, rows = random(5, 2), torch.tensor([3, 0, 3])
    inner = x * 1.0
    (found,) = torch.autograd.grad(select_with_sparse_grad(inner, rows).pow(2).sum() + inner.sum(), x)
    (expected,) = torch.autograd.grad(x[rows].pow(2).sum() + x.sum(), x)
    torch.testing.assert_close(found, expected)


def test_a_gradient_is_dense_even_where_only_picked_rows_have_one() -> None:
    x = random(6, 2)
    doubled = densify_gradient(x * 2)
    select_with_sparse_grad(doubled, torch.tensor([1, 4])).sum().backward()
    assert x.grad is not None
    assert not x.grad.is_sparse
    assert x.grad.sum(1).tolist() == [0, 4, 0, 0, 4, 0]
