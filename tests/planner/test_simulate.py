"""Plans on clusters of many sizes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.job import Job
from strobe.errors import OptionError
from strobe.exchange import Exchange, NoExchange, NoTimeExchange
from strobe.planner import simulate as module
from strobe.planner.comm.network import Network
from strobe.planner.simulate import Simulation, simulate
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.linear import LinearCost
from strobe.presets import preset
from tests.support.runs import small_graph

COSTS = Calibration(
    pass_cost=LinearCost(per_cell=4e-6, per_arc=1e-6, fixed=1e-4),
    time_stage_cost=LinearCost(per_cell=2e-6, per_arc=0.0, fixed=0.0),
    step_s=3e-4,
    error=0.02,
    weight_bytes=40_000,
)
HERE = Network(ranks_per_host=2, inside=2e9, inside_latency_s=7e-6)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes were timed at once, each time. None is."""
    asked: list[int] = []

    def alone(job: Job, **options: Any) -> Calibration:
        asked.append(1)
        return COSTS

    def together(given: TrainRequest, ranks: int, **options: Any) -> tuple[Calibration, Network]:
        asked.append(ranks)
        return COSTS, HERE

    monkeypatch.setattr(module, "calibrate", alone)
    monkeypatch.setattr(module, "calibrate_concurrently", together)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    return asked


def run(*names: str, ranks: list[int], network: Network | None = None, **options: Any) -> Simulation:
    plans = options.pop("plans", None) or {name: preset(name) for name in names}
    chosen: dict[str, Any] = {"model_options": {"hidden": 4}, "threads": 1, "device": "cpu"} | options
    return simulate(small_graph(), "tgcn", "regression", plans=plans, ranks=ranks, network=network, **chosen)


def test_every_plan_has_an_epoch_for_every_number_of_ranks(timed: list[int]) -> None:
    found = run("relay", "psg", ranks=[1, 3, 64], network=Network())
    assert {name: [each.num_ranks for each in rows] for name, rows in found.results.items()} == {
        "relay": [1, 3, 64],
        "psg": [1, 3, 64],
    }
    assert (found.model, found.network, found.reasons) == ("tgcn", Network(), {})
    assert found.calibrations == {"relay": COSTS, "psg": COSTS}
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["plans"]["psg"][1]["ranks"] == 3
    assert told["calibrations"]["relay"]["error"] == 0.02


def test_plans_whose_passes_are_alike_are_timed_once(timed: list[int]) -> None:
    plans = {"relay": preset("relay"), "pts": preset("pts"), "dbov": preset("dbov")}
    groups = {"psg": preset("psg"), "dygnex": preset("dygnex"), "longer": preset("psg", size=6)}
    run(plans=plans, ranks=[2], network=Network())
    assert len(timed) == 1
    run(plans=plans | groups, ranks=[2], network=Network())
    assert len(timed) == 1 + 3, "stretches, groups of 4, groups of 6"


def test_as_many_processes_are_timed_at_once_as_a_host_has_ranks_or_this_machine_cores(timed: list[int]) -> None:
    for per_host in (1, 3, 8):
        run("pts", ranks=[2, 64], network=Network(ranks_per_host=per_host))
    run("pts", ranks=[1, 2])
    assert timed == [1, 3, 4, 2]


def test_without_a_network_ranks_are_on_this_machine_and_its_messages_are_timed(timed: list[int]) -> None:
    assert run("pts", ranks=[1, 2]).network == HERE
    assert run("pts", ranks=[1]).network == Network(), "one rank sends nothing"


def test_windows_are_those_of_training(timed: list[int]) -> None:
    found = run("relay", ranks=[2], network=Network(), window=2)
    assert found.results["relay"][0].num_steps == 3


def test_a_plan_that_does_not_fit_says_why_and_the_others_go_on(timed: list[int]) -> None:
    torn = replace(preset("metis"), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange()))
    found = run(plans={"torn": torn, "pts": preset("pts")}, ranks=[1, 2], network=Network())
    assert [each.num_ranks for each in found.results["torn"]] == [1]
    assert "whole snapshots" in found.reasons["torn"]
    assert len(found.results["pts"]) == 2
    found = run(plans={"torn": torn}, ranks=[2, 4], network=Network())
    assert (found.results, list(found.reasons)) == ({}, ["torn"])


def test_a_plan_that_draws_its_batches_says_that_there_are_none_to_time(timed: list[int]) -> None:
    found = run("dynahb", "pts", ranks=[2], network=Network())
    assert list(found.results) == ["pts"]
    assert "sampled while it trains" in found.reasons["dynahb"]


def test_a_plan_whose_windows_are_thinner_in_the_past_says_so(timed: list[int]) -> None:
    found = run("flare", "pts", ranks=[2], network=Network())
    assert list(found.results) == ["pts"]
    assert "thinner in the past" in found.reasons["flare"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"plans": {}, "ranks": [2]}, "no plans"),
        ({"ranks": []}, "at least 1 rank"),
        ({"ranks": [0]}, "at least 1 rank, not 0"),
        ({"ranks": [8]}, "8 ranks do not fit on this machine with 4 cores"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options: dict[str, Any], said: str, timed: list[int]) -> None:
    with pytest.raises(OptionError, match=said):
        simulate(small_graph(), "tgcn", **{"plans": {"pts": preset("pts")}} | options)
    assert not timed


def test_a_simulation_times_what_it_needs_by_itself() -> None:
    found = simulate(
        small_graph(),
        "tgcn",
        "regression",
        plans={"pts": preset("pts")},
        ranks=[4],
        network=Network(),
        seconds=0.1,
        model_options={"hidden": 4},
        threads=1,
        device="cpu",
    )
    assert found.results["pts"][0].epoch_s > 0
    assert found.calibrations["pts"].weight_bytes > 0
