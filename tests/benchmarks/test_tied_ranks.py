"""Ranks of tied scores, as ROLAND's authors take them and as the mean over all orders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from benchmarks.tied_model import HIDDEN, PublishedROLAND
from benchmarks.tied_ranks import argsort_of_old_numpy, expected_mrr, mrr_of_order, sample


@pytest.mark.parametrize("values", [2, 5, 10**6])
def test_old_sort_sorts(values: int) -> None:
    drawn = np.random.default_rng(0)
    for size in (1, 16, 17, 18, 300, 3000):
        scores = drawn.integers(0, values, size).astype(np.float32)
        order = argsort_of_old_numpy(scores)
        assert sorted(order) == list(range(size))
        assert (np.diff(scores[order]) >= 0).all()


def test_a_tied_positive_gains_by_the_order_of_the_old_sort() -> None:
    """One positive first, 176 of 5,880 negatives tied with it: rank 1 nearly always."""
    drawn, by_authors = np.random.default_rng(0), []
    for _ in range(20):
        scores = np.zeros(5881, np.float32)
        scores[1 + drawn.choice(5880, 176, replace=False)] = 1
        scores[0] = 1
        by_authors.append(mrr_of_order(argsort_of_old_numpy(scores), 1))
        assert expected_mrr(scores, 1) == pytest.approx(np.mean(1 / np.arange(1, 178)))
    assert np.mean(by_authors) > 10 * expected_mrr(scores, 1)


def test_expected_mrr_is_the_mean_over_all_orders() -> None:
    scores = np.array([1.0, 2.0, 1.0, 1.0, 0.0])
    orders = [np.array(order) for order in itertools.permutations(range(5))]
    found = [mrr_of_order(order, 3) for order in orders if (np.diff(scores[order]) >= 0).all()]
    assert expected_mrr(scores, 3) == pytest.approx(np.mean(found))


def test_logits_of_all_nodes_are_those_of_pairs() -> None:
    torch.manual_seed(0)
    model, edges = PublishedROLAND(2).eval(), torch.tensor([[0, 1, 3], [1, 0, 2]])
    x, states = model.embed(edges, torch.rand(3, 2), [torch.zeros(5, HIDDEN) for _ in range(2)])
    assert len(states) == 2
    pairs = torch.stack([torch.full((5,), 3), torch.arange(5)])
    torch.testing.assert_close(model.all_logits(x, torch.tensor(3)), model.logits(x, pairs))
    found, labels = sample(edges, 5, torch.Generator().manual_seed(0))
    assert labels.tolist() == [1.0] * 3 + [0.0] * (found.shape[1] - 3)
    assert not {(0, 1), (1, 0), (3, 2)} & set(map(tuple, found[:, 3:].T.tolist()))
