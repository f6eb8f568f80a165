from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.schedule import Balanced, Costs, Greedy, InOrder, Optimal, Packing
from tests.schedule.batches import check_steps, draw

CHOICES = [Greedy, Optimal, Balanced]
each = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)


@each
def test_batches_run_in_order_while_nothing_is_known(choice: type[Packing]) -> None:
    assert choice().steps(9, 4, shared=False) == InOrder().steps(9, 4, shared=False)


@each
def test_shared_batches_run_in_order(choice: type[Packing]) -> None:
    costs = Costs(draw("skewed", 5))
    assert choice().steps(5, 2, shared=True, costs=costs) == InOrder().steps(5, 2, shared=True)


@each
def test_batches_that_are_known_are_packed(choice: type[Packing]) -> None:
    costs = Costs(draw("growing", 25))
    steps = choice().steps(25, 4, shared=False, costs=costs)
    check_steps(steps, 25, 4, 2)
    assert steps == choice().solve(costs, 4).steps
    assert costs.of(steps) < costs.of(InOrder().steps(25, 4, shared=False))


@each
def test_one_more_batch_on_a_rank_is_not_longer(choice: type[Packing]) -> None:
    costs = Costs(draw("uniform", 12), 0.5)
    cost = [choice(limit=limit).solve(costs, 4).cost for limit in (1, 2, 3)]
    assert cost[0] > cost[1] >= cost[2]


@each
def test_epochs_are_watched_only_where_times_are_measured(choice: type[Packing]) -> None:
    assert (choice().wants, choice().watches) == ("measured", 3)
    assert (choice(times="predicted").wants, choice(times="predicted", profile=5).watches) == ("predicted", 0)
    assert choice(times="counted").watches == 0


@each
def test_it_needs_batches_that_a_rank_runs_alone(choice: type[Packing]) -> None:
    assert [need.fact for need in choice().needs] == ["batches per rank"]


@each
def test_fields_survive_json(choice: type[Packing]) -> None:
    made = choice(limit=3, times="counted", profile=2)
    told = json.loads(json.dumps(made.to_json()))
    assert told.pop("name") == choice.name
    assert choice(**told) == made
    assert choice(**told) != replace(made, limit=2)


@each
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "limit must be 1 or more, not 0"),
        ({"profile": 1}, "profile must be 2 to 5 epochs, not 1"),
        ({"profile": 6}, "profile must be 2 to 5 epochs, not 6"),
        ({"times": "guessed"}, "guessed"),
        ({"limit": 1.5}, "must be a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(choice: type[Packing], options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        choice(**options)  # type: ignore[arg-type]


def test_the_seconds_of_other_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="5 batches, but the seconds of 4"):
        Greedy().steps(5, 2, shared=False, costs=Costs(np.ones(4)))


def test_balanced_is_optimal_for_few_batches_and_greedy_for_many() -> None:
    few, many = Costs(draw("growing", 10)), Costs(draw("growing", 11))
    choice = Balanced(up_to=10)
    assert choice.solve(few, 4) == Optimal().solve(few, 4) != Greedy().solve(few, 4)
    assert choice.solve(many, 4) == Greedy().solve(many, 4)


def test_a_number_of_batches_below_0_is_refused() -> None:
    with pytest.raises(OptionError, match="up_to is a number of batches, 0 or more, not -1"):
        Balanced(up_to=-1)
