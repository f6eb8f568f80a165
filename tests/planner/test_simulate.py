"""Plans on clusters of many sizes, simulated."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.errors import OptionError
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, TimeExchange, TimeStage
from strobe.exchange.base import PartitionedWindow
from strobe.exchange.dry_run import FakeComm
from strobe.exchange.relay import legs
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models.time import Recurrent
from strobe.placement import BySnapshot, Chunks, TimeBlocks
from strobe.plan import Plan
from strobe.planner import simulate as module
from strobe.planner.comm.network import Network
from strobe.planner.partition import PartitionedJob
from strobe.planner.simulate import SimulatedEpoch, Simulation, Simulator, double_range, simulate, slot_seconds
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.passes import LinearCost, part_sizes
from strobe.presets import PRESETS, preset
from strobe.schedule import Balanced, Costs, Greedy, InOrder, Optimal, Schedule
from strobe.sync import Average
from strobe.view import View
from tests.support import planner_jobs
from tests.support.runs import small_graph

TIMED = [name for name in PRESETS if preset(name).batching.not_simulated is None]

LINE = LinearCost(per_cell=4e-6, per_arc=1e-6, per_snapshot=2e-5, fixed=1e-4)
IN_TIME = LinearCost(per_cell=2e-6, per_arc=0.0, fixed=2e-5)
COSTS = Calibration(pass_cost=LINE, time_stage_cost=IN_TIME, step_s=3e-4, error=0.0, weight_bytes=40_000)
PLAIN = replace(
    COSTS,
    pass_cost=LinearCost(per_cell=4e-6, per_arc=1e-6, fixed=0.0),
    time_stage_cost=LinearCost(per_cell=2e-6, per_arc=0.0, fixed=0.0),
    step_s=0.0,
)
"""Costs that are nothing but cells and arcs."""

FREE = Network(bandwidth=1e30, latency_s=0.0, inside=1e30, inside_latency_s=0.0)
OPTIONS: dict[str, dict[str, Any]] = {
    "wd-gcn": {},
    "tgcn": {},
    "dcrnn": {},
    "evolvegcn-o": {},
    "dysat": {"heads": 2, "time_layers": 1},
    "roland": {"layers": 1},
    "gc-lstm": {},
}


class Twice(nn.Module):
    """Two blocks: the time stage of the first ends before the structure stage of the second begins."""

    width = 4

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(inputs, 4), nn.Linear(4, 4)])
        self.stages = nn.ModuleList([Recurrent(nn.GRU(4, 4)), Recurrent(nn.GRU(4, 4))])

    def forward(self, view: View) -> Tensor:
        x = view.over_time(self.stages[0], view.aggregate(self.maps[0](view.x)))  # type: ignore[arg-type]
        return view.over_time(self.stages[1], view.aggregate(self.maps[1](x)))  # type: ignore[arg-type]


def job_of(plan: Plan, model: Any = "tgcn", graph: DynamicGraph | None = None) -> Job:
    return planner_jobs.job_of(model, graph, plan=plan, options=OPTIONS.get(model))


def simulator(job: Job, costs: Calibration = COSTS, network: Network | None = None) -> Simulator:
    return Simulator(job=job, calibration=costs, network=network or Network(), progress=Progress())


def plan_of(name: str) -> Plan:
    """A preset, with nothing that has to be measured first."""
    return replace(preset(name), placement=Chunks(loads="counted")) if name == "dgc" else preset(name)


def sane(found: SimulatedEpoch) -> bool:
    numbers = [value for value in found.to_json().values() if value is not None]
    return bool(np.isfinite(numbers).all()) and found.epoch_s > 0 and 0 < found.efficiency < 1.001


@pytest.mark.parametrize(("name", "model"), [(name, [*OPTIONS][k % len(OPTIONS)]) for k, name in enumerate(TIMED)])
def test_every_preset_can_be_simulated_on_any_number_of_ranks(name: str, model: str) -> None:
    whole = simulator(job_of(plan_of(name), model))
    for num_ranks in (1, 2, 5, 64):
        found = whole.run(num_ranks)
        assert sane(found), found
        assert (found.num_ranks, found.compute_s.shape) == (num_ranks, (num_ranks,))
        assert found.epoch_s >= found.compute_s.max() + found.sync_s - 1e-9
        parts = found.compute_s.mean() + found.straggler_wait_s + found.exchange_s + found.sync_s
        assert parts == pytest.approx(found.epoch_s)
        assert found.speedup == pytest.approx(found.single_rank_s / found.epoch_s)
        if num_ranks == 1:
            assert found.epoch_s == pytest.approx(found.single_rank_s + found.num_steps * COSTS.step_s)
            assert found.imbalance == 1


@pytest.mark.parametrize(
    "schedule",
    [
        InOrder(),
        Greedy(),
        Greedy(times="predicted"),
        Greedy(times="counted"),
        Optimal(time_limit_s=1.0),
        Balanced(max_per_step=1),
    ],
    ids=str,
)
def test_own_batches_take_what_their_schedule_costs(schedule: Schedule) -> None:
    job = job_of(replace(preset("psg"), schedule=schedule))
    sizes = np.array([part_sizes(job.problem.graph, batch) for batch in job.batches])
    seconds = 4e-6 * sizes[:, 0] + 1e-6 * sizes[:, 1] + 2e-5 * sizes[:, 2] + 1e-4
    for num_ranks in (1, 2, 3):
        whole = simulator(job)
        costs = Costs(seconds, whole.sync_s(num_ranks))
        known = {
            "counted": Costs((16 * sizes[:, 0] + sizes[:, 1]).astype(np.float64)),
            "predicted": Costs(seconds),
        }.get(str(schedule.cost_source), costs)
        steps = schedule.steps(len(job.batches), num_ranks, shared=False, costs=known)
        found = whole.run(num_ranks)
        assert found.epoch_s == pytest.approx(costs.epoch_seconds(steps), rel=1e-12)
        assert found.num_steps == len(steps)
        assert found.compute_s.sum() == pytest.approx(seconds.sum())
        assert found.single_rank_s == pytest.approx(seconds.sum())
        assert found.exchange_s == 0


def slowest(job: Job, num_ranks: int) -> float:
    """What the slowest rank computes in every step, from what each has."""
    placed = PartitionedJob(replace(job, comm=FakeComm(0, num_ranks)), Progress())
    return sum(
        float((4e-6 * found.cells.sum(axis=0) + 1e-6 * found.arcs.sum(axis=0)).max())
        for _, found in placed.comm_volumes()
    )


@pytest.mark.parametrize(
    ("model", "name"),
    [("tgcn", "pts"), ("evolvegcn-o", "metis"), ("dysat", "hash"), ("tgcn", "dbos"), ("dysat", "dbov")],
)
def test_where_messages_are_free_an_epoch_takes_what_the_slowest_ranks_compute(model: str, name: str) -> None:
    job = job_of(preset(name), model)
    for num_ranks in (1, 2, 5):
        found = simulator(job, PLAIN, FREE).run(num_ranks)
        assert found.epoch_s == pytest.approx(slowest(job, num_ranks))
        assert found.efficiency < 1 + 1e-9


def test_all_go_from_snapshot_to_snapshot_together_where_states_are_read_along_edges() -> None:
    job = job_of(preset("pss"), "dcrnn")
    for num_ranks in (1, 2, 3):
        found = simulator(job, PLAIN, FREE).run(num_ranks)
        assert found.epoch_s == pytest.approx(found.single_rank_s), "a snapshot has one owner: ranks take turns"
        paid = simulator(job, replace(PLAIN, pass_cost=LINE), FREE).run(num_ranks)
        assert paid.epoch_s == pytest.approx(paid.single_rank_s), (
            "what is fixed is paid once, a snapshot's share each time"
        )


def first_pass(job: Job, num_ranks: int) -> tuple[Any, Any, Any]:
    """Cells and arcs of every rank, and the pipeline of the first batch."""
    (_, found), *_ = PartitionedJob(replace(job, comm=FakeComm(0, num_ranks)), Progress()).comm_volumes()
    return found.cells.sum(axis=0), found.arcs.sum(axis=0), found.traffic.pipeline


@pytest.mark.parametrize(("model", "stages"), [("wd-gcn", 1), (Twice, 2)])
def test_relayed_stages_take_their_slots(model: Any, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    job = job_of(preset("relay", pipeline_groups=4), model)
    cells, arcs, pipeline = first_pass(job, 3)
    assert (pipeline.in_turn, pipeline.groups, len(pipeline.cells)) == (True, 4, 3)
    found = simulator(job, PLAIN, FREE).run(3)
    expected = (2e-6 * cells + 1e-6 * arcs).max() + slot_seconds(2e-6 * pipeline.cells, 4 * stages)
    assert found.epoch_s == pytest.approx(expected), "groups of all stages follow each other"
    paid = simulator(job, replace(PLAIN, time_stage_cost=IN_TIME), FREE).run(3)
    assert paid.compute_s.tolist() == found.compute_s.tolist(), "one kernel processes all groups"
    assert paid.epoch_s == found.epoch_s, "ranks begin at the same time"


def test_stages_with_cycles_of_ranks_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    plan = Plan(placement=BySnapshot(), exchange=Exchange(structure=Halo(), time=Relay(pipeline_groups=4)))
    job = job_of(plan, Twice)
    cells, arcs, pipeline = first_pass(job, 2)
    assert not pipeline.in_turn
    found = simulator(job, PLAIN, FREE).run(2)
    expected = (2e-6 * cells + 1e-6 * arcs).max() + slot_seconds(2e-6 * pipeline.cells, 4)
    assert found.epoch_s == pytest.approx(expected)
    paid = simulator(job, replace(PLAIN, time_stage_cost=IN_TIME), FREE).run(2)
    more = (4 * (pipeline.cells > 0).sum(axis=0) - 1) * 2e-5
    assert (paid.compute_s - found.compute_s).tolist() == pytest.approx(more.tolist()), "every call has its fixed cost"


@dataclass(frozen=True, kw_only=True)
class OwnExchange(TimeExchange):
    """A user's own exchange around another one."""

    name: ClassVar[str] = "own"
    inner: TimeExchange

    def start(self, window: PartitionedWindow) -> TimeStage:
        return self.inner.start(window)


@dataclass(frozen=True, kw_only=True)
class OwnPipeline(OwnExchange):
    """It also says that ranks wait for one another, as the wrapped exchange does."""

    def traffic(self, *args: Any, **options: Any) -> Any:
        return self.inner.traffic(*args, **options)


def test_an_own_time_exchange_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    relay = Relay(pipeline_groups=4)
    epochs = {}
    for time in (relay, OwnExchange(inner=relay), OwnPipeline(inner=relay)):
        plan = Plan(placement=TimeBlocks(), exchange=Exchange(structure=Halo(), time=time))
        epochs[type(time)] = simulator(job_of(plan, "wd-gcn")).run(3)
    assert epochs[OwnPipeline].to_json() == epochs[Relay].to_json()
    assert epochs[OwnExchange].compute_s.tolist() == epochs[Relay].compute_s.tolist()
    assert epochs[OwnExchange].exchange_s > 0
    assert epochs[OwnExchange].epoch_s < epochs[Relay].epoch_s, "without a pipeline ranks do not wait for states"


@pytest.mark.parametrize("name", ["relay", "metis", "pss-ts", "dbos", "dbov"])
def test_more_bandwidth_is_never_slower(name: str) -> None:
    job = job_of(preset(name))
    epochs = [simulator(job, network=Network(bandwidth=each)).run(4).epoch_s for each in (1e6, 1e8, 1e10)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[-1]
    assert simulator(job, network=Network(latency_s=1e-3)).run(4).epoch_s > epochs[1]


@pytest.mark.parametrize("name", TIMED)
def test_speedup_is_at_most_the_number_of_ranks(name: str) -> None:
    job = job_of(plan_of(name), graph=Social(nodes=60, snapshots=24, edges=150, communities=4, seed=3).write())
    for num_ranks in (1, 2, 3, 8):
        assert simulator(job, PLAIN, FREE).run(num_ranks).efficiency <= 1 + 1e-9


def test_ranks_agree_less_often_where_weights_are_averaged_now_and_then() -> None:
    often, seldom = (simulator(job_of(replace(preset("psg"), sync=Average(every=every)))).sync_s(4) for every in (1, 5))
    sums = Network().all_reduce_s(40_000, 4)
    assert often - seldom == pytest.approx(sums * 4 / 5)
    assert often == pytest.approx(3e-4 + 2 * Network().all_reduce_s(8, 4) + sums)


def test_ranks_that_have_nothing_wait() -> None:
    found = simulator(job_of(preset("pss")), PLAIN, FREE).run(64)
    assert found.compute_s.min() == 0
    assert found.imbalance is None
    assert found.to_json()["imbalance"] is None


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.data())
def test_a_stage_takes_what_its_slots_take(waves: int, ranks: int, groups: int, data: st.DataObject) -> None:
    seconds = st.lists(st.integers(0, 1_000), min_size=waves * ranks, max_size=waves * ranks)
    in_waves = np.array(data.draw(seconds), np.float64).reshape(waves, ranks)
    slots = np.zeros((groups + waves - 1, ranks))
    for group, wave in np.ndindex(groups, waves):
        slots[group + wave] += in_waves[wave] / groups
    assert slot_seconds(in_waves, groups) == pytest.approx(slots.max(axis=1).sum())


@pytest.mark.parametrize(("groups", "waves"), [(1, 4), (16, 1), (3, 5)])
def test_ranks_of_equal_load_wait_for_the_first_and_the_last_group(groups: int, waves: int) -> None:
    assert slot_seconds(2.0 * np.eye(waves), groups) == pytest.approx(2.0 * (groups + waves - 1) / groups)


def test_numbers_of_ranks_double() -> None:
    assert list(double_range(4, 70)) == [4, 8, 16, 32, 64]
    assert list(double_range(3, 3)) == [3]


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
    assert told["calibrations"]["relay"]["weight_bytes"] == 40_000


def test_plans_whose_passes_are_alike_are_timed_once(timed: list[int]) -> None:
    plans = {"relay": preset("relay"), "pts": preset("pts"), "dbov": preset("dbov")}
    groups = {"psg": preset("psg"), "dygnex": preset("dygnex"), "longer": preset("psg", size=6)}
    run(plans=plans, ranks=[2], network=Network())
    assert len(timed) == 1
    run(plans=plans | groups, ranks=[2], network=Network())
    assert len(timed) == 1 + 3, "stretches, groups of 4, groups of 6"


def test_concurrent_processes_are_limited_by_ranks_per_host_and_cores(timed: list[int]) -> None:
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


@pytest.mark.parametrize(("name", "why"), [("dynahb", "sampled while it trains"), ("flare", "thinner in the past")])
def test_a_plan_of_which_no_pass_can_be_timed_says_why(name: str, why: str, timed: list[int]) -> None:
    found = run(name, "pts", ranks=[2], network=Network())
    assert list(found.results) == ["pts"]
    assert why in found.reasons[name]


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
    found = run("pts", ranks=[4], network=Network(), seconds=0.1)
    assert found.results["pts"][0].epoch_s > 0
    assert found.calibrations["pts"].weight_bytes > 0
