"""The compiled network of pairs against the same network in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.ops.dense import pair_scores
from strobe.ops.dense.pair_scores import PairInputs, PairLayers, score_pairs, score_pairs_plain

ROWS, COLUMNS, HIDDEN, FEATURES = 7, 9, 6, 3


def make(num_pairs: int) -> tuple[list[Tensor], PairInputs, Tensor]:
    """Tables and parameters, pairs, and a gradient of the scores."""
    rng = torch.Generator().manual_seed(num_pairs)
    shapes = ((ROWS, HIDDEN), (COLUMNS, HIDDEN), (HIDDEN, FEATURES), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN,), ())
    inputs = [torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_() for shape in shapes]
    row = torch.sort(torch.randint(0, ROWS, (num_pairs,), generator=rng)).values
    column = torch.randint(0, COLUMNS, (num_pairs,), generator=rng)
    features = torch.rand(num_pairs, FEATURES, generator=rng, dtype=torch.float64)
    return inputs, PairInputs(row, column, features), torch.randn(num_pairs, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("num_pairs", [0, 1, 5, 100])
def test_scores_and_gradients_equal_those_of_torch(num_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_scores, "PART_PAIRS", 8)  # several parts and strips
    inputs, pairs, gradient = make(num_pairs)
    found, expected = (
        score(PairLayers(*inputs[2:]), inputs[0], inputs[1], pairs) for score in (score_pairs, score_pairs_plain)
    )
    torch.testing.assert_close(found, expected)
    of_found, of_expected = (torch.autograd.grad(scores, inputs, gradient) for scores in (found, expected))
    for ours, plain in zip(of_found, of_expected, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("score", [score_pairs, score_pairs_plain])
def test_features_may_be_in_another_precision_than_the_network(score: Any) -> None:
    inputs, pairs, _ = make(20)
    network, single = PairLayers(*inputs[2:]), replace(pairs, features=pairs.features.float())
    torch.testing.assert_close(
        score(network, *inputs[:2], single), score(network, *inputs[:2], pairs), atol=1e-6, rtol=0
    )


def test_gradients_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_scores, "PART_PAIRS", 8)
    inputs, pairs, gradient = make(100)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            scores = score_pairs(PairLayers(*inputs[2:]), inputs[0], inputs[1], pairs)
            found.append([each.tolist() for each in (scores, *torch.autograd.grad(scores, inputs, gradient))])
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_nan_stays() -> None:
    inputs, pairs, _ = make(5)
    with torch.no_grad():
        inputs[0][int(pairs.row[2])] = torch.nan
    assert bool(torch.isnan(score_pairs(PairLayers(*inputs[2:]), inputs[0], inputs[1], pairs)[2]))
