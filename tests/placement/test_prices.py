from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement.prices import prices, rewards


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=2), min_size=1, max_size=7),
    st.integers(1, 4),
    st.sampled_from([1.0, 2.5, 6.0]),
)
def test_prices_are_those_that_every_snapshot_multiplies(stored: list[list[int]], window: int, eta: float) -> None:
    """Algorithm 3, line 5, as printed: lambda of the times at which a snapshot is kept, times exp(ln(P) a / D)."""
    capacity, least = 400, 3.0
    lambdas = np.full((len(stored) + window, 2), least / (2 * eta))
    for t, taken in enumerate(stored):
        lambdas[t : t + window] *= np.exp(math.log(2 * eta) * np.array(taken) / capacity)
    now = len(stored)
    held = [np.array(stored[max(0, now + j - window + 1) :]).reshape(-1, 2).sum(0) for j in range(window)]
    found = prices(np.array(held), capacity, least, eta)
    np.testing.assert_allclose(found, lambdas[now : now + window].sum(0), rtol=1e-12)


def test_a_full_rank_asks_the_lowest_utility_per_byte_and_an_empty_one_a_part_of_it() -> None:
    price = prices(np.array([[0, 100]]), 100, 4.8, 6.0)
    assert price.tolist() == pytest.approx([4.8 / 12, 4.8])


def test_a_reward_is_a_part_of_what_is_left_of_the_utility_and_never_negative() -> None:
    found = rewards(80, np.array([0.5, 9.0]), np.array([20, 10]), 5, 6.0)
    assert found.tolist() == pytest.approx([(math.log(12) - 1) * (40 - 10) / 5, 0.0])
    assert rewards(80, np.array([0.5, 9.0]), np.array([20, 10]), 5, 1.0).tolist() == [0, 0]
    assert rewards(0, np.ones(2), np.zeros(2, np.int64), 0, 6.0).tolist() == [0, 0]
