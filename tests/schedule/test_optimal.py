from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.schedule import Costs, Greedy, Optimal, optimal
from strobe.schedule.packing.bins import cost_of_bins, lower_bound
from strobe.schedule.packing.search import FOUND, NONE, UNKNOWN, improve_bins, search
from tests.support.schedule_batches import KINDS, check_steps, draw, shortest

SECONDS = st.lists(st.floats(0, 10).map(lambda value: round(value, 1)), min_size=1, max_size=6)
SYNC_S = st.sampled_from([0.0, 0.7, 20.0])


def cost_of(bins: list[list[int]], costs: Costs, num_ranks: int) -> float:
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    return cost_of_bins(loads, num_ranks, costs.sync_s)


@settings(max_examples=40, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), SYNC_S)
def test_gap_zero_gives_the_proven_optimum(seconds: list[float], num_ranks: int, limit: int, sync_s: float) -> None:
    costs = Costs(np.array(seconds), sync_s)
    solved = Optimal(max_per_step=limit, gap=0.0).solve(costs, num_ranks)
    assert solved.cost == pytest.approx(shortest(costs, num_ranks, limit), rel=1e-8)
    assert solved.bound == solved.cost
    assert solved.method.endswith("proven")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_cost_is_within_the_gap_of_the_optimum(kind: str, num_ranks: int) -> None:
    costs = Costs(draw(kind, 7, seed=3), 0.05)
    solved, best = Optimal(gap=0.02).solve(costs, num_ranks), shortest(costs, num_ranks, 2)
    assert solved.bound <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= solved.cost <= solved.bound * 1.02 * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num", [0, 1, 3, 10, 24, 100, 130])
def test_every_batch_runs_once_within_the_gap(kind: str, num: int) -> None:
    costs = Costs(draw(kind, num, seed=1), 0.01)
    solved = Optimal(gap=0.03).solve(costs, 4)
    check_steps(solved.steps, num, 4, 2)
    assert solved.cost == costs.epoch_seconds(solved.steps)
    assert solved.gap <= 0.03 * (1 + 1e-6)
    assert solved.cost <= Greedy().solve(costs, 4).cost
    assert solved == Optimal(gap=0.03).solve(costs, 4)


def test_search_raises_a_loose_bound() -> None:
    """Ten batches on four ranks: the optimum is 10% above the work divided by ranks."""
    costs = Costs(draw("growing", 10, seed=1))
    solved = Optimal(gap=0.01).solve(costs, 4)
    assert solved.gap <= 0.01
    assert solved.bound > 1.05 * lower_bound(costs, 4, 2)


@settings(max_examples=40, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), SYNC_S, st.sampled_from([0.9, 0.999999, 1.000001, 1.1]))
def test_branch_and_bound_finds_a_schedule_iff_there_is_one(
    seconds: list[float], num_ranks: int, limit: int, sync_s: float, part: float
) -> None:
    costs = Costs(np.array(seconds), sync_s)
    best = shortest(costs, num_ranks, limit)
    goal = best * part + (part - 1) * 1e-3
    outcome, bins = search(costs, num_ranks, limit, goal, 10**6)
    assert outcome == (FOUND if part > 1 else NONE)
    if outcome == FOUND:
        assert sorted(batch for batches in bins for batch in batches) == list(range(len(costs)))
        assert max(map(len, bins)) <= limit
        assert cost_of(bins, costs, num_ranks) <= goal * (1 + 1e-9) + 1e-9


def test_branch_and_bound_stops_after_max_tries() -> None:
    costs = Costs(draw("uniform", 40))
    assert search(costs, 4, 2, lower_bound(costs, 4, 2) * 1.0001, 1000) == (UNKNOWN, [])


def test_local_search_continues_where_branch_and_bound_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "TRIES", 1)
    monkeypatch.setattr(optimal, "LONG", (1, 1000))
    costs = Costs(draw("uniform", 9, seed=2))
    solved = Optimal(gap=0.01).solve(costs, 4)
    check_steps(solved.steps, 9, 4, 2)
    assert solved.cost <= Greedy().solve(costs, 4).cost
    assert solved.gap > 0.01


def test_local_search_improves_bins_within_the_limit() -> None:
    costs = Costs(draw("growing", 40))
    alone = [[batch] for batch in range(40)]
    bins = next(improve_bins(alone, costs, 4, 2, goal=0.0, restarts=1, exchanges=100_000))
    assert sorted(batch for batches in bins for batch in batches) == list(range(40))
    assert max(map(len, bins)) == 2
    assert cost_of(bins, costs, 4) < 0.98 * cost_of(alone, costs, 4)


def test_a_slow_sync_leads_to_fewer_steps() -> None:
    solved = Optimal().solve(Costs(draw("uniform", 20), 1000.0), 4)
    assert len(solved.steps) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": -0.1}, "gap .* not -0.1"),
        ({"gap": 1.0}, "not 1.0"),
        ({"time_limit_s": 0.0}, "time_limit_s .* not 0.0"),
        ({"gap": "small"}, "gap"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Optimal(**options)  # type: ignore[arg-type]
