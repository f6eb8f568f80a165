from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import strobe
from strobe.api import SERVICES
from strobe.comm import Comm, SingleRankComm
from strobe.comm.ledger import STEP_SYNC
from strobe.engine.checkpoint import store
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import SCHEDULE, read_lines
from strobe.engine.sources.batch_order import BatchOrder, batch_seconds, batch_sizes, robust_costs
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import Costs, Greedy, InOrder, Optimal
from strobe.schedule.base import CostSource
from tests.support.ranks import as_threads
from tests.support.runs import CtrlC, same_tensors, small_graph


def scheduled(times: CostSource = "measured", limit: int = 2) -> Plan:
    return replace(preset("psg", size=2), schedule=Greedy(times=times, max_per_step=limit, profile=2))


def job_of(plan: Plan, comm: Comm | None = None) -> Any:
    request = TrainRequest(small_graph(), "tgcn", plan=plan, services=SERVICES)
    return resolve(request, None, Progress(), comm or SingleRankComm())


def test_batch_seconds_add_up_and_sync_is_that_of_the_last_rank() -> None:
    first = [(1, 0, 0.0, 1.0), (1, 2, 1.0, 1.5), (1, STEP_SYNC, 1.5, 3.5), (2, STEP_SYNC, 4.0, 4.5), (2, 0, 5.0, 5.25)]
    second = [(1, 1, 0.0, 3.0), (1, STEP_SYNC, 3.0, 3.5), (2, 3, 3.5, 4.4), (2, STEP_SYNC, 4.4, 4.5)]
    seconds, agreed = batch_seconds([first, second], 4)
    np.testing.assert_allclose(seconds, [1.25, 3.0, 0.5, 0.9])
    assert agreed == pytest.approx(0.3)  # 0.5 in the first step, 0.1 in the second


def test_the_first_epoch_and_outliers_do_not_count() -> None:
    costs = robust_costs([[9.0, 0.5], [1.0, 2.0], [5.0, 2.1]], [0.0, 0.4, 0.3])
    assert costs.seconds.tolist() == [1.0, 2.0]
    assert costs.sync_s == 0.3


def test_one_profiled_epoch_is_used() -> None:
    assert robust_costs([[9.0, 0.5]], [0.1]).seconds.tolist() == [9.0, 0.5]


def test_sizes_of_batches_are_those_of_their_cells() -> None:
    job = job_of(scheduled())
    sharing = PartitionedGraph(job.problem.graph)
    windows = [sharing.window_data(batch.times) for batch in job.batches]
    cells, arcs = batch_sizes(job.problem.graph, job.batches)
    assert cells.tolist() == [each.num_cells for each in windows]
    assert arcs.tolist() == [each.num_arcs for each in windows]


def test_counted_batches_are_scheduled_from_the_start() -> None:
    job = job_of(scheduled("counted"))
    order = BatchOrder(job)
    assert order.costs is not None
    assert order.steps == job.plan.schedule.steps(len(job.batches), 1, shared=False, costs=order.costs)
    assert not order.is_profiling


def test_predicted_batches_are_scheduled_from_the_start() -> None:
    order = BatchOrder(job_of(scheduled("predicted")))
    assert order.costs is not None
    assert (order.costs.seconds > 0).all()


def test_all_ranks_have_the_same_order() -> None:
    def work(comm: Comm) -> tuple[Any, Any]:
        order = BatchOrder(job_of(scheduled("counted"), comm))
        assert order.costs is not None
        return order.steps, order.costs.seconds.tolist()

    first, *others = as_threads(work, 3)
    assert all(other == first for other in others)


def test_batches_that_ranks_share_run_in_order_on_one_rank_too() -> None:
    plan = replace(preset("relay", size=2), schedule=Optimal(times="counted"))
    job = job_of(plan)
    order = BatchOrder(job)
    assert order.steps == InOrder().steps(len(job.batches), 1, shared=True)
    assert order.state_dict() is None


def test_the_order_changes_after_the_profiled_epochs() -> None:
    job = job_of(scheduled())
    order, count = BatchOrder(job), len(job.batches)
    in_order = order.steps
    ran = [[*((1, batch, 0.0, float(batch + 1)) for batch in range(count)), (1, STEP_SYNC, 0.0, 0.5)]]
    assert not order.end_epoch(ran)
    assert order.steps == in_order
    assert order.end_epoch(ran)
    costs = Costs(np.arange(1.0, count + 1), 0.5)
    assert order.steps == Greedy().steps(count, 1, shared=False, costs=costs) != in_order
    assert not order.end_epoch(ran)


def test_an_order_is_restored_and_computed_again_for_other_ranks() -> None:
    job = job_of(scheduled())
    order = BatchOrder(job)
    seconds = [float(k % 3 + 1) for k in range(len(job.batches))]
    for _ in range(2):
        order.end_epoch([[(1, batch, 0.0, took) for batch, took in enumerate(seconds)]])
    known = json.loads(json.dumps(order.state_dict()))
    again = BatchOrder(job, known)
    assert (again.steps, again.is_profiling) == (order.steps, False)

    def work(comm: Comm) -> Any:
        return BatchOrder(job_of(scheduled(), comm), known).steps

    expected = Greedy().steps(len(seconds), 2, shared=False, costs=Costs(np.array(seconds)))
    assert as_threads(work, 2) == [expected, expected]


def test_a_partial_profile_is_restored() -> None:
    job = job_of(scheduled())
    order = BatchOrder(job)
    ran = [[(1, batch, 0.0, 1.0) for batch in range(len(job.batches))]]
    order.end_epoch(ran)
    again = BatchOrder(job, json.loads(json.dumps(order.state_dict())))
    assert again.is_profiling
    assert again.end_epoch(ran)


def test_a_run_records_and_draws_its_schedule(tmp_path: Path) -> None:
    run = strobe.train(small_graph(), "tgcn", epochs=4, patience=0, plan=scheduled(), out=tmp_path / "run")
    lines = read_lines(tmp_path / "run")
    (said,) = [line for line in lines if line["event"] == "scheduled"]
    assert said["epoch"] == 2
    assert len(said["seconds"]) == len(run.job.batches)
    assert sorted(k for step in said["steps"] for rank in step for k in rank) == list(range(len(run.job.batches)))
    before, after = len(run.job.batches), len(said["steps"])
    assert [line["step"] for line in run.history] == [before, 2 * before, 2 * before + after, 2 * (before + after)]
    assert ["profiled" in line for line in run.history] == [True, True, False, False]
    picture = (tmp_path / "run" / SCHEDULE).read_text()
    assert "planned" in picture
    assert "measured" in picture


def test_plans_whose_batches_are_shared_draw_no_schedule(tmp_path: Path) -> None:
    strobe.train(small_graph(), "tgcn", epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run" / SCHEDULE).exists()


@pytest.mark.parametrize("times", ["counted", "measured"])
def test_a_stopped_run_resumes_with_its_order_to_the_same_weights(
    tmp_path: Path, times: CostSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured seconds are never the same twice, so two runs go on from the same checkpoint."""
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    settings: dict[str, Any] = {"epochs": 6, "patience": 0, "plan": scheduled(times)}
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), "tgcn", out=tmp_path / "run", progress=CtrlC(5, 1), **settings)
    copy = tmp_path / "copy"
    copytree(tmp_path / "run", copy)
    runs = [strobe.train(small_graph(), None, out=path, resume=True) for path in (tmp_path / "run", copy)]
    assert same_tensors(runs[0].model.state_dict(), runs[1].model.state_dict())
    resumed = read_lines(copy)
    assert len([line for line in resumed if line["event"] == "scheduled"]) == (times == "measured")
    if times == "counted":
        whole = strobe.train(small_graph(), "tgcn", **settings)
        assert same_tensors(runs[0].model.state_dict(), whole.model.state_dict())
