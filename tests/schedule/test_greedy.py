from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.schedule import Costs, Greedy, InOrder
from strobe.schedule.greedy import pair_batches
from strobe.schedule.packing.step_filling import MAX_TARGETS, fill_steps
from tests.support.schedule_batches import KINDS, check_steps, draw

SYNC_S = st.sampled_from([0.0, 0.5, 30.0])


def plain_fill(seconds: list[float], num_ranks: int, limit: int, sync_s: float, relative: bool) -> list[list[int]]:
    """fill_steps() in plain Python: bins of positions, longest batch first."""
    left, bins = list(range(len(seconds))), []
    while left:
        first = seconds[left[0]]
        targets = [first] + [first + joined * seconds[at] for joined in range(1, limit) for at in left[1:]]
        steps = [plain_step(seconds, left, num_ranks, limit, target) for target in targets]
        wastes = [waste_of(step, seconds, num_ranks, sync_s, relative) for step in steps]
        step = steps[wastes.index(min(wastes))]
        bins += step
        left = [at for at in left if not any(at in batches for batches in step)]
    return sorted(bins)


def plain_step(seconds: list[float], left: list[int], num_ranks: int, limit: int, target: float) -> list[list[int]]:
    left = list(left)
    step: list[list[int]] = []
    while left and len(step) < num_ranks:
        batches = [left.pop(0)]
        load = seconds[batches[0]]
        while len(batches) < limit and (fitting := [at for at in left if load + seconds[at] <= target]):
            left.remove(fitting[0])
            batches.append(fitting[0])
            load += seconds[fitting[0]]
        step.append(batches)
    return step


def waste_of(step: list[list[int]], seconds: list[float], num_ranks: int, sync_s: float, relative: bool) -> float:
    loads = [0.0] * len(step)
    for at, batches in enumerate(step):
        for batch in batches:
            loads[at] += seconds[batch]
    work = 0.0
    for load in loads:
        work += load
    waste = num_ranks * (max(loads) + sync_s) - work
    return waste / max(work, 1e-300) if relative else waste


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 64).map(lambda value: value / 8), min_size=1, max_size=14),
    st.integers(1, 5),
    st.integers(1, 4),
    SYNC_S,
    st.booleans(),
)
def test_fill_steps_equals_plain_python(
    unsorted: list[float], num_ranks: int, limit: int, sync_s: float, relative: bool
) -> None:
    assert len(unsorted) <= MAX_TARGETS  # all targets are tried
    seconds = sorted(unsorted, reverse=True)
    numbers = fill_steps(np.array(seconds), num_ranks, limit, sync_s, relative)
    bins = sorted(np.flatnonzero(numbers == number).tolist() for number in np.unique(numbers))
    assert bins == plain_fill(seconds, num_ranks, limit, sync_s, relative)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 60), st.integers(1, 20), st.integers(1, 4), SYNC_S)
def test_every_batch_runs_once_within_the_limit(kind: str, num: int, num_ranks: int, limit: int, sync_s: float) -> None:
    costs = Costs(draw(kind, num), sync_s)
    solved = Greedy(max_per_step=limit).solve(costs, num_ranks)
    check_steps(solved.steps, num, num_ranks, limit)
    assert solved.cost == costs.epoch_seconds(solved.steps)
    assert solved.bound <= solved.cost
    assert solved == Greedy(max_per_step=limit).solve(costs, num_ranks)


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 4))
def test_pairings_keep_the_limit_of_batches_per_bin(num: int, num_ranks: int, limit: int) -> None:
    for numbers in pair_batches(np.sort(draw("skewed", num))[::-1], num_ranks, limit):
        assert len(numbers) == num
        assert np.bincount(numbers).max() <= limit


def test_many_batches_are_balanced() -> None:
    """With more batches than targets. The paper's best efficiency is 95%."""
    costs = Costs(draw("growing", 2000))
    for num_ranks in (4, 100):
        solved = Greedy().solve(costs, num_ranks)
        check_steps(solved.steps, 2000, num_ranks, 2)
        assert costs.seconds.sum() / num_ranks / solved.cost > 0.98
        assert solved.cost < costs.epoch_seconds(InOrder().steps(2000, num_ranks, shared=False))


def test_fewer_batches_than_ranks_take_one_step() -> None:
    solved = Greedy().solve(Costs(np.array([3.0, 1.0, 2.0])), 8)
    assert (len(solved.steps), solved.cost, solved.gap) == (1, 3.0, 0.0)


def test_a_slow_sync_leads_to_fewer_steps() -> None:
    seconds = draw("uniform", 32)
    assert len(Greedy().solve(Costs(seconds, 1000.0), 4).steps) == 4
    assert len(Greedy(max_per_step=8).solve(Costs(seconds, 1000.0), 4).steps) == 1


@pytest.mark.parametrize("limit", [1, 2])
def test_equal_batches_share_a_step(limit: int) -> None:
    solved = Greedy(max_per_step=limit).solve(Costs(np.array([5.0, 1.0, 5.0, 1.0])), 2)
    assert solved.cost == 6.0
