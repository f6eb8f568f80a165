from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.schedule import Balanced, BinPacking, Costs, Greedy, InOrder, Optimal
from tests.support.schedule_batches import check_steps, draw

CHOICES = [Greedy, Optimal, Balanced]
each = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)


@each
def test_batches_run_in_order_until_costs_are_known_and_if_they_are_shared(choice: type[BinPacking]) -> None:
    assert choice().steps(9, 4, shared=False) == InOrder().steps(9, 4, shared=False)
    costs = Costs(draw("skewed", 5))
    assert choice().steps(5, 2, shared=True, costs=costs) == InOrder().steps(5, 2, shared=True)


@each
def test_batches_with_known_costs_are_packed(choice: type[BinPacking]) -> None:
    costs = Costs(draw("growing", 25))
    steps = choice().steps(25, 4, shared=False, costs=costs)
    check_steps(steps, 25, 4, 2)
    assert steps == choice().solve(costs, 4).steps
    assert costs.epoch_seconds(steps) < costs.epoch_seconds(InOrder().steps(25, 4, shared=False))


@each
def test_a_larger_max_per_step_does_not_lengthen_the_epoch(choice: type[BinPacking]) -> None:
    costs = Costs(draw("uniform", 12), 0.5)
    cost = [choice(max_per_step=limit).solve(costs, 4).cost for limit in (1, 2, 3)]
    assert cost[0] > cost[1] >= cost[2]


@each
def test_epochs_are_profiled_only_with_measured_times_and_packing_needs_batches_per_rank(
    choice: type[BinPacking],
) -> None:
    assert (choice().cost_source, choice().profile_epochs) == ("measured", 3)
    for times in ("predicted", "counted"):
        unprofiled = choice(times=times, profile=5)
        assert (unprofiled.cost_source, unprofiled.profile_epochs) == (times, 0)
    assert [need.fact for need in choice().needs] == ["batches per rank"]


@each
def test_fields_survive_json(choice: type[BinPacking]) -> None:
    made = choice(max_per_step=3, times="counted", profile=2)
    options = json.loads(json.dumps(made.to_json()))
    assert options.pop("name") == choice.name
    assert choice(**options) == made
    assert choice(**options) != replace(made, max_per_step=2)


@each
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_per_step": 0}, "max_per_step .* not 0"),
        ({"max_per_step": 1.5}, "max_per_step"),
        ({"profile": 1}, "2 to 5 epochs, not 1"),
        ({"profile": 6}, "2 to 5 epochs, not 6"),
        ({"times": "guessed"}, "guessed"),
    ],
)
def test_invalid_options_are_refused(choice: type[BinPacking], options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        choice(**options)  # type: ignore[arg-type]


def test_costs_of_another_number_of_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="5 batches, but costs of 4"):
        Greedy().steps(5, 2, shared=False, costs=Costs(np.ones(4)))


def test_balanced_is_optimal_for_few_batches_and_greedy_for_many() -> None:
    few, many = Costs(draw("growing", 10)), Costs(draw("growing", 11))
    choice = Balanced(max_batches=10)
    assert choice.solve(few, 4) == Optimal().solve(few, 4) != Greedy().solve(few, 4)
    assert choice.solve(many, 4) == Greedy().solve(many, 4)


def test_a_negative_max_batches_is_refused() -> None:
    with pytest.raises(OptionError, match=r"max_batches .* not -1"):
        Balanced(max_batches=-1)
