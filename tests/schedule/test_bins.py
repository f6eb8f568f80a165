from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.schedule import Costs
from strobe.schedule.bins import bins_of, cost_of_bins, lower_bound, solved, steps_of
from tests.schedule.batches import KINDS, check_steps, draw, shortest

SECONDS = st.lists(st.floats(0, 10).map(lambda value: round(value, 2)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.7, 20.0]))
def test_no_schedule_stays_below_the_bound(seconds: list[float], num_ranks: int, limit: int, agree_s: float) -> None:
    costs = Costs(np.array(seconds), agree_s)
    assert lower_bound(costs, num_ranks, limit) <= shortest(costs, num_ranks, limit) * (1 + 1e-9)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.floats(0, 2), st.floats(0.1, 5))
def test_the_bound_of_equal_batches_is_what_they_take(
    num: int, num_ranks: int, limit: int, agree_s: float, seconds: float
) -> None:
    steps = -(-num // (num_ranks * limit))
    bound = lower_bound(Costs(np.full(num, seconds), agree_s), num_ranks, limit)
    assert bound == pytest.approx(-(-num // num_ranks) * seconds + steps * agree_s)


def test_the_bound_sees_a_batch_far_above_all_others() -> None:
    costs = Costs(np.array([100.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert lower_bound(costs, 2, 2) == pytest.approx(100 + 3 / 2)  # at most 2 small ones beside it; it stays alone


def test_without_batches_there_is_nothing_to_wait_for() -> None:
    costs = Costs(np.empty(0), 3.0)
    assert lower_bound(costs, 4, 2) == 0
    assert steps_of([], costs, 4) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 3), st.integers(0, 9))
def test_steps_of_bins_are_the_shortest_there_are(numbers: list[int], num_ranks: int, seed: int) -> None:
    costs = Costs(draw("uniform", len(numbers), seed), 0.2)
    bins = bins_of(numbers)
    steps = steps_of(bins, costs, num_ranks)
    check_steps(steps, len(numbers), num_ranks, limit=len(numbers))
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    assert costs.of(steps) == pytest.approx(cost_of_bins(loads, num_ranks, costs.agree_s))
    assert costs.of(steps) == pytest.approx(shortest(Costs(loads, 0.2), num_ranks, 1))


def test_ranks_are_even_over_the_epoch() -> None:
    """In every step one bin is longer by 1: each rank has it as often as the others."""
    costs = Costs(np.array([[10 * step + 2, 10 * step + 1, 10 * step + 1] for step in range(6)], np.float64).ravel())
    steps = steps_of([[batch] for batch in range(18)], costs, 3)
    totals = np.sum([costs.loads(step) for step in steps], axis=0)
    np.testing.assert_array_equal(totals, [158, 158, 158])


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_is_that_of_the_steps_and_never_below_the_bound(kind: str) -> None:
    costs = Costs(draw(kind, 13), 0.1)
    told = solved([[batch] for batch in range(13)], costs, 4, bound=1e9, by="hand")
    assert told.cost == told.bound == costs.of(told.steps)


@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 9))
def test_no_exchange_between_the_fullest_and_the_emptiest_rank_would_even_them_out(
    num: int, num_ranks: int, seed: int
) -> None:
    seconds = np.random.default_rng(seed).uniform(0.1, 1.0, num)
    costs = Costs(seconds)
    steps = steps_of([[batch] for batch in range(num)], costs, num_ranks)
    loads = np.array([costs.loads(step) for step in steps])
    total = loads.sum(axis=0)
    full, empty = int(total.argmax()), int(total.argmin())
    apart = total[full] - total[empty]
    for more in loads[:, full] - loads[:, empty]:
        assert abs(apart - 2 * more) >= apart * (1 - 1e-6)
