"""Sums of exponentials of rows, tile by tile, against all scores in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strobe.ops.dense import row_softmax
from strobe.ops.dense.row_softmax import Scores, row_logsumexp

WIDTH = 3


def make(num_rows: int, num_columns: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Factors and values, pairs with a value, and excluded pairs; row 0 has excluded pairs only."""
    rng = torch.Generator().manual_seed(num_columns)
    pairs = torch.nonzero(torch.rand(num_rows, num_columns, generator=rng) < 0.4).T
    is_excluded = torch.rand(num_rows, num_columns, generator=rng) < 0.3
    is_excluded[0] = True
    shapes = ((num_rows, WIDTH), (num_columns, WIDTH), (num_rows,), (num_columns,), (pairs.shape[1],))
    factors = [torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_() for shape in shapes]
    return factors, pairs, torch.nonzero(is_excluded.T).flip(1).T  # in order of columns


def plain(factors: list[Tensor], pairs: Tensor, excluded: Tensor) -> Tensor:
    query, key, of_rows, of_columns, values = factors
    scores = query @ key.T + of_rows[:, None] + of_columns
    scores = scores.index_put((pairs[0], pairs[1]), values, accumulate=True)
    scores = scores.index_put((excluded[0], excluded[1]), scores.new_tensor(-torch.inf))
    return torch.logsumexp(scores, 1).clamp(min=torch.finfo(scores.dtype).min)


@pytest.mark.parametrize(("num_rows", "num_columns"), [(1, 1), (9, 5), (30, 7)])
def test_totals_and_gradients_equal_those_of_scores_in_memory(
    num_rows: int, num_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_softmax, "TILE_SCORES", 15)  # several tiles and strips
    factors, pairs, excluded = make(num_rows, num_columns)
    query, key, of_rows, of_columns, values = factors
    found = row_logsumexp(Scores(query, key, of_rows, of_columns, pairs, values), excluded)
    expected = plain(factors, pairs, excluded)
    torch.testing.assert_close(found, expected)
    gradient = torch.linspace(-1, 2, num_rows, dtype=torch.float64)
    of_found, of_expected = (torch.autograd.grad(totals, factors, gradient) for totals in (found, expected))
    for ours, theirs in zip(of_found, of_expected, strict=True):
        torch.testing.assert_close(ours, theirs.nan_to_num())  # of a row without any, torch has NaN
