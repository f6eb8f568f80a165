"""Epochs that nobody ran."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.exchange import Exchange, Halo, Relay
from strobe.exchange.relay import legs
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models.time import Recurrent
from strobe.placement import BySnapshot, Chunks
from strobe.plan import Plan
from strobe.planner.comm.flows import cells_in_waves, relay_seconds
from strobe.planner.comm.network import Network
from strobe.planner.comm.volume import FakeComm
from strobe.planner.rank_costs import PartitionedJob
from strobe.planner.services import PlannerServices
from strobe.planner.simulator import SimulatedEpoch, Simulator, double_range
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.linear import LinearCost
from strobe.planner.time.passes import part_sizes
from strobe.presets import PRESETS, preset
from strobe.schedule import Balanced, Costs, Greedy, InOrder, Optimal, Schedule
from strobe.sync import Average
from strobe.view import Owners, View
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


def job_of(plan: Plan, model: Any = "tgcn", graph: DynamicGraph | None = None, **changes: Any) -> Job:
    options = {"hidden": 4} | OPTIONS[model] if isinstance(model, str) else None
    chosen = {"threads": 1, "device": "cpu"} | changes
    graph = small_graph() if graph is None else graph
    return resolve(
        TrainRequest(graph, model, "regression", options, None, chosen, None, plan, services=PlannerServices()),
        None,
        Progress(),
    )


def simulator(job: Job, costs: Calibration = COSTS, network: Network | None = None) -> Simulator:
    return Simulator(job=job, calibration=costs, network=network or Network(), progress=Progress())


def plan_of(name: str) -> Plan:
    """A preset, with nothing that has to be measured first."""
    return replace(preset(name), placement=Chunks(loads="counted")) if name == "dgc" else preset(name)


def sane(found: SimulatedEpoch) -> bool:
    numbers = [value for value in found.to_json().values() if value is not None]
    return bool(np.isfinite(numbers).all()) and found.epoch_s > 0 and 0 < found.efficiency < 1.001


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("model", OPTIONS)
def test_every_preset_can_be_simulated_on_any_number_of_ranks(model: str, name: str) -> None:
    whole = simulator(job_of(plan_of(name), model))
    for num_ranks in (1, 2, 5, 64):
        found = whole.run(num_ranks)
        assert sane(found), found
        assert (found.num_ranks, found.compute_s.shape) == (num_ranks, (num_ranks,))
        assert found.epoch_s >= found.compute_s.max() + found.sync_s - 1e-9
        parts = found.compute_s.mean() + found.straggler_wait_s + found.exchange_s + found.sync_s
        assert parts == pytest.approx(found.epoch_s)
        assert found.speedup == pytest.approx(found.single_rank_s / found.epoch_s)


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


@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o", "dysat"])
@pytest.mark.parametrize("name", ["pts", "metis", "hash", "dbos", "dbov", "pss-ts"])
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


@pytest.mark.parametrize(("model", "stages"), [("wd-gcn", 1), (Twice, 2)])
def test_relayed_stages_take_their_slots(model: Any, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    job = job_of(preset("relay", pipeline_groups=4), model)
    placed = PartitionedJob(replace(job, comm=FakeComm(0, 3)), Progress())
    ((batch, traffic),) = placed.comm_volumes()
    cells, arcs = traffic.cells.sum(axis=0), traffic.arcs.sum(axis=0)
    in_waves, in_turn = cells_in_waves(Owners(placed.graph, placed.partition, batch.times))
    assert in_turn
    assert len(in_waves) == 3
    found = simulator(job, PLAIN, FREE).run(3)
    expected = (2e-6 * cells + 1e-6 * arcs).max() + relay_seconds(2e-6 * in_waves, 4 * stages)
    assert found.epoch_s == pytest.approx(expected), "groups of all stages follow each other"
    paid = simulator(job, replace(PLAIN, time_stage_cost=IN_TIME), FREE).run(3)
    assert paid.compute_s.tolist() == found.compute_s.tolist(), "one kernel goes through all groups"
    assert paid.epoch_s == found.epoch_s, "nobody waits for another to begin"


def test_stages_that_go_round_in_circles_end_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    plan = Plan(placement=BySnapshot(), exchange=Exchange(structure=Halo(), time=Relay(pipeline_groups=4)))
    job = job_of(plan, Twice)
    placed = PartitionedJob(replace(job, comm=FakeComm(0, 2)), Progress())
    ((batch, traffic),) = placed.comm_volumes()
    cells, arcs = traffic.cells.sum(axis=0), traffic.arcs.sum(axis=0)
    in_waves, in_turn = cells_in_waves(Owners(placed.graph, placed.partition, batch.times))
    assert not in_turn
    found = simulator(job, PLAIN, FREE).run(2)
    expected = (2e-6 * cells + 1e-6 * arcs).max() + relay_seconds(2e-6 * in_waves, 4)
    assert found.epoch_s == pytest.approx(expected)
    paid = simulator(job, replace(PLAIN, time_stage_cost=IN_TIME), FREE).run(2)
    calls = 4 * (in_waves > 0).sum(axis=0)
    more = (calls - 1) * 2e-5
    assert (paid.compute_s - found.compute_s).tolist() == pytest.approx(more.tolist()), "every call has its price"


@pytest.mark.parametrize("name", ["relay", "metis", "pss-ts", "dbos", "dbov"])
def test_more_bandwidth_is_never_slower(name: str) -> None:
    job = job_of(preset(name))
    epochs = [simulator(job, network=Network(bandwidth=each)).run(4).epoch_s for each in (1e6, 1e8, 1e10)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[-1]
    assert simulator(job, network=Network(latency_s=1e-3)).run(4).epoch_s > epochs[1]


@pytest.mark.parametrize("name", TIMED)
def test_one_rank_wastes_nothing_but_steps_of_the_optimiser(name: str) -> None:
    job = job_of(plan_of(name))
    found = simulator(job).run(1)
    assert found.epoch_s == pytest.approx(found.single_rank_s + found.num_steps * 3e-4)
    assert found.imbalance == 1
    assert simulator(job, replace(COSTS, step_s=0.0)).run(1).efficiency == pytest.approx(1)


@pytest.mark.parametrize("name", TIMED)
def test_nobody_gains_more_than_there_are_ranks(name: str) -> None:
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


def test_an_epoch_as_json() -> None:
    told = simulator(job_of(preset("pts"))).run(2).to_json()
    assert set(told) == {
        "ranks",
        "steps",
        "epoch_s",
        "compute_s",
        "straggler_wait_s",
        "exchange_s",
        "sync_s",
        "efficiency",
        "speedup",
        "imbalance",
    }


def test_numbers_of_ranks_double() -> None:
    assert list(double_range(4, 70)) == [4, 8, 16, 32, 64]
    assert list(double_range(3, 3)) == [3]
