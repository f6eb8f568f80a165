from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.schedule import Costs
from strobe.schedule.packing.bins import cost_of_bins, group_by_bin, lower_bound, make_solution, steps_from_bins
from tests.support.schedule_batches import KINDS, check_steps, draw, shortest

SECONDS = st.lists(st.floats(0, 10).map(lambda value: round(value, 2)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.7, 20.0]))
def test_the_bound_is_at_most_the_shortest_epoch(
    seconds: list[float], num_ranks: int, limit: int, sync_s: float
) -> None:
    costs = Costs(np.array(seconds), sync_s)
    assert lower_bound(costs, num_ranks, limit) <= shortest(costs, num_ranks, limit) * (1 + 1e-9)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.floats(0, 2), st.floats(0.1, 5))
def test_the_bound_of_equal_batches_is_tight(
    num: int, num_ranks: int, limit: int, sync_s: float, seconds: float
) -> None:
    steps = -(-num // (num_ranks * limit))
    bound = lower_bound(Costs(np.full(num, seconds), sync_s), num_ranks, limit)
    assert bound == pytest.approx(-(-num // num_ranks) * seconds + steps * sync_s)


def test_the_bound_includes_a_dominant_batch_and_is_zero_without_batches() -> None:
    costs = Costs(np.array([100.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    alone_in_its_bin = 100 + 3 / 2  # with 2 small ones on the other rank
    assert lower_bound(costs, 2, 2) == pytest.approx(alone_in_its_bin)
    nothing = Costs(np.empty(0), 3.0)
    assert lower_bound(nothing, 4, 2) == 0
    assert steps_from_bins([], nothing, 4) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 3), st.integers(0, 9))
def test_steps_from_bins_are_the_shortest(numbers: list[int], num_ranks: int, seed: int) -> None:
    costs = Costs(draw("uniform", len(numbers), seed), 0.2)
    bins = group_by_bin(numbers)
    steps = steps_from_bins(bins, costs, num_ranks)
    check_steps(steps, len(numbers), num_ranks, limit=len(numbers))
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    assert costs.epoch_seconds(steps) == pytest.approx(cost_of_bins(loads, num_ranks, costs.sync_s))
    assert costs.epoch_seconds(steps) == pytest.approx(shortest(Costs(loads, 0.2), num_ranks, 1))


def test_ranks_are_balanced_over_the_epoch() -> None:
    """In every step one bin is longer by 1: each rank has it equally often."""
    costs = Costs(np.array([[10 * step + 2, 10 * step + 1, 10 * step + 1] for step in range(6)], np.float64).ravel())
    steps = steps_from_bins([[batch] for batch in range(18)], costs, 3)
    totals = np.sum([costs.loads(step) for step in steps], axis=0)
    np.testing.assert_array_equal(totals, [158, 158, 158])


@pytest.mark.parametrize("kind", KINDS)
def test_cost_is_that_of_the_steps_and_at_least_the_bound(kind: str) -> None:
    costs = Costs(draw(kind, 13), 0.1)
    solution = make_solution([[batch] for batch in range(13)], costs, 4, bound=1e9, method="hand")
    assert solution.cost == solution.bound == costs.epoch_seconds(solution.steps)


@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 9))
def test_no_swap_between_the_most_and_least_loaded_rank_improves_balance(num: int, num_ranks: int, seed: int) -> None:
    seconds = np.random.default_rng(seed).uniform(0.1, 1.0, num)
    costs = Costs(seconds)
    steps = steps_from_bins([[batch] for batch in range(num)], costs, num_ranks)
    loads = np.array([costs.loads(step) for step in steps])
    total = loads.sum(axis=0)
    full, empty = int(total.argmax()), int(total.argmin())
    apart = total[full] - total[empty]
    for more in loads[:, full] - loads[:, empty]:
        assert abs(apart - 2 * more) >= apart * (1 - 1e-6)
