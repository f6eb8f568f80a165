from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.schedule import Costs, Greedy, Optimal, optimal
from strobe.schedule.bins import cost_of_bins, lower_bound
from strobe.schedule.improve import improved
from strobe.schedule.programme import ask, fits
from strobe.schedule.search import FOUND, NONE, UNKNOWN, search
from tests.schedule.batches import KINDS, check_steps, draw, shortest

SECONDS = st.lists(st.floats(0, 10).map(lambda value: round(value, 1)), min_size=1, max_size=6)
AGREE = st.sampled_from([0.0, 0.7, 20.0])


def cost_of(bins: list[list[int]], costs: Costs, num_ranks: int) -> float:
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    return cost_of_bins(loads, num_ranks, costs.agree_s)


@settings(max_examples=40, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), AGREE)
def test_without_a_gap_it_is_the_shortest_and_proven(
    seconds: list[float], num_ranks: int, limit: int, agree_s: float
) -> None:
    costs = Costs(np.array(seconds), agree_s)
    solved = Optimal(limit=limit, gap=0.0).solve(costs, num_ranks)
    assert solved.cost == pytest.approx(shortest(costs, num_ranks, limit), rel=1e-8)
    assert solved.bound == solved.cost
    assert solved.by.endswith("proven")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_seven_batches_are_the_shortest_within_the_gap(kind: str, num_ranks: int) -> None:
    costs = Costs(draw(kind, 7, seed=3), 0.05)
    solved, best = Optimal(gap=0.02).solve(costs, num_ranks), shortest(costs, num_ranks, 2)
    assert solved.bound <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= solved.cost <= solved.bound * 1.02 * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num", [0, 1, 3, 10, 24, 100, 130])
def test_every_batch_runs_once_and_the_gap_is_kept(kind: str, num: int) -> None:
    costs = Costs(draw(kind, num, seed=1), 0.01)
    solved = Optimal(gap=0.03).solve(costs, 4)
    check_steps(solved.steps, num, 4, 2)
    assert solved.cost == costs.of(solved.steps)
    assert solved.gap <= 0.03 * (1 + 1e-6)
    assert solved.cost <= Greedy().solve(costs, 4).cost
    assert solved == Optimal(gap=0.03).solve(costs, 4)


def test_a_bound_that_cannot_be_met_is_raised_until_it_is() -> None:
    """Ten batches on four ranks: 10% above an even share of the work is the best there is."""
    costs = Costs(draw("growing", 10, seed=1))
    solved = Optimal(gap=0.01).solve(costs, 4)
    assert solved.gap <= 0.01
    assert solved.bound > 1.05 * lower_bound(costs, 4, 2)


@settings(max_examples=40, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), AGREE, st.sampled_from([0.9, 0.999999, 1.000001, 1.1]))
def test_the_search_finds_what_there_is_and_nothing_else(
    seconds: list[float], num_ranks: int, limit: int, agree_s: float, part: float
) -> None:
    costs = Costs(np.array(seconds), agree_s)
    best = shortest(costs, num_ranks, limit)
    goal = best * part + (part - 1) * 1e-3
    verdict, bins = search(costs, num_ranks, limit, goal, 10**6)
    assert verdict == (FOUND if part > 1 else NONE)
    if verdict == FOUND:
        assert sorted(batch for batches in bins for batch in batches) == list(range(len(costs)))
        assert max(map(len, bins)) <= limit
        assert cost_of(bins, costs, num_ranks) <= goal * (1 + 1e-9) + 1e-9


def test_the_search_gives_up() -> None:
    costs = Costs(draw("uniform", 40))
    assert search(costs, 4, 2, lower_bound(costs, 4, 2) * 1.0001, 1000) == (UNKNOWN, [])


@settings(max_examples=20, deadline=None)
@given(SECONDS, st.integers(1, 3), st.integers(1, 3), AGREE)
def test_the_integer_programme_has_the_same_optimum(
    seconds: list[float], num_ranks: int, limit: int, agree_s: float
) -> None:
    costs = Costs(np.array(seconds), agree_s)
    best = shortest(costs, num_ranks, limit)
    answer = ask(costs, num_ranks, limit, lower_bound(costs, num_ranks, limit), 0.0, 60.0)
    assert answer.bins is not None
    assert sorted(batch for batches in answer.bins for batch in batches) == list(range(len(costs)))
    assert max(map(len, answer.bins)) <= limit
    assert cost_of(answer.bins, costs, num_ranks) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert answer.bound == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_the_integer_programme_is_asked_where_the_search_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "TRIES", 1)
    monkeypatch.setattr(optimal, "LONG", (1, 1000))
    costs = Costs(draw("uniform", 9, seed=2))
    solved = Optimal(gap=0.0, seconds=60.0).solve(costs, 4)
    assert solved.gap <= 1e-6
    assert solved.bound > 1.01 * lower_bound(costs, 4, 2)


def test_too_many_bins_are_not_for_the_integer_programme() -> None:
    assert fits(Costs(draw("uniform", 30)), 2)
    assert not fits(Costs(draw("uniform", 100)), 2)
    assert not fits(Costs(draw("uniform", 40)), 4)
    assert fits(Costs(draw("equal", 1000)), 4)  # of one kind


def test_exchanges_make_bins_better_and_keep_the_limit() -> None:
    costs = Costs(draw("growing", 40))
    alone = [[batch] for batch in range(40)]
    bins = next(improved(alone, costs, 4, 2, goal=0.0, goes=1, exchanges=100_000))
    assert sorted(batch for batches in bins for batch in batches) == list(range(40))
    assert max(map(len, bins)) == 2
    assert cost_of(bins, costs, 4) < 0.98 * cost_of(alone, costs, 4)


def test_steps_are_few_where_it_takes_long_to_agree() -> None:
    solved = Optimal().solve(Costs(draw("uniform", 20), 1000.0), 4)
    assert len(solved.steps) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gap": -0.1}, "gap is a part of the epoch, from 0 to below 1, not -0.1"),
        ({"gap": 1.0}, "not 1.0"),
        ({"seconds": 0.0}, "seconds must be above 0, not 0.0"),
        ({"gap": "small"}, "gap"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Optimal(**options)  # type: ignore[arg-type]
