"""What passes take, and that nobody notices."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.batching import Batch
from strobe.engine.job import Given, Job, choose
from strobe.engine.machine import random_state
from strobe.engine.progress import Progress
from strobe.engine.sharing import Sharing
from strobe.engine.windows import Window, window_of
from strobe.errors import OptionError
from strobe.graph import Degrees, DynamicGraph, from_edges
from strobe.graph.synthetic import Social
from strobe.models import MODELS
from strobe.models.time import Recurrent
from strobe.planner import pass_times
from strobe.planner.pass_times import (
    FEWEST_PASSES,
    PassTimes,
    measure,
    measure_numbered,
    part_sizes,
    pass_bytes,
    predicted_seconds,
    spread,
    steady,
    step_seconds,
)
from strobe.view import View
from tests.engine.runs import Noisy, same_tensors, small_graph


@pytest.fixture(autouse=True)
def fewer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the seconds."""
    monkeypatch.setattr(pass_times, "_FEWEST_RUNS", 2)
    monkeypatch.setattr(pass_times, "_MOST_RUNS", 2)


def job_of(
    model: Any = "tgcn",
    graph: DynamicGraph | None = None,
    task: str = "regression",
    plan: str = "relay",
    **changes: Any,
) -> Job:
    options = {"hidden": 4} if isinstance(model, str) else None
    chosen = {"threads": 1, "device": "cpu"} | changes
    return choose(
        Given(small_graph() if graph is None else graph, model, task, options, None, chosen, None, plan),
        None,
        Progress(),
    )


class Counting(nn.Module):
    """A module with weights, gradients, moments and a count of its passes."""

    width = 4
    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(2, 4), nn.BatchNorm1d(4)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, view: View) -> Tensor:
        self.passes += 1
        rows = view.aggregate(self.inner(view.x))
        out: Tensor = self.norm(rows) if len(rows) > 1 else rows
        return out


class Shared(nn.Module):
    """Two time stages that read the same rows: they cannot be cut out of a pass."""

    width = 4

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, 4)
        self.stages = nn.ModuleList([Recurrent(nn.GRU(4, 4)), Recurrent(nn.GRU(4, 4))])

    def forward(self, view: View) -> Tensor:
        x = self.inner(view.x).relu()
        return view.over_time(self.stages[0], x) + view.over_time(self.stages[1], x)  # type: ignore[arg-type]


def everything(job: Job) -> None:
    """All that is timed or weighed."""
    parts = spread(job)
    measure(job, parts[-2:])
    pass_bytes(job, parts[0])
    step_seconds(job)


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    job = job_of(Noisy)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = random_state()
    everything(job)
    assert same_tensors(before, random_state())


def test_a_module_that_was_given_stays_as_it_is() -> None:
    module = Counting().eval()
    module.inner.weight.grad = torch.full_like(module.inner.weight, 3.0)
    before = copy.deepcopy(module.state_dict())
    job = job_of(module, small_graph().with_features(Degrees()), "regression", precision="float64")
    everything(job)
    assert same_tensors(before, module.state_dict())
    assert module.inner.weight.dtype == torch.float32
    assert module.inner.weight.grad is not None
    assert (module.inner.weight.grad == 3).all()
    assert not module.training


@pytest.mark.parametrize("plan", ["relay", "psg"])
def test_parts_go_from_small_to_large_and_include_both_ends(plan: str) -> None:
    job = job_of(plan=plan)
    graph, train = job.problem.graph, job.problem.split.train
    parts = spread(job)
    sizes = [part_sizes(graph, part) for part in parts]
    loads = [16 * cells + arcs for cells, arcs, _ in sizes]
    assert loads == sorted(loads)
    assert len(parts) <= pass_times.SAMPLES
    assert len({(part.times, None if part.targets is None else len(part.targets)) for part in parts}) == len(parts)
    if plan == "psg":
        assert all(part in job.batches for part in parts)
        assert {len(part.times) for part in parts} == {1, 2, 3, 4}
        assert max(loads) == max(16 * c + a for c, a, _ in (part_sizes(graph, part) for part in job.batches))
    else:
        assert parts[-1].times == train
        assert {len(part.times) for part in parts} > {1, len(train)}
        arcs_a_cell = {round(arcs / cells, 6) for cells, arcs, _ in sizes}
        assert len(arcs_a_cell) > len(sizes) // 2, "what a cell costs can be told from what an arc costs"


def test_fewer_parts_are_taken_where_fewer_are_wanted() -> None:
    job = job_of()
    assert len(spread(job, 3)) == 3
    assert spread(job, 3)[-1].times == spread(job)[-1].times


def test_arcs_are_those_among_the_nodes_of_a_part() -> None:
    job = job_of()
    graph = job.problem.graph
    nodes = np.arange(0, graph.num_nodes, 3)
    part = Batch(range(1, 5), range(1, 5), nodes, carries=False)
    cells = arcs = 0
    for t in part.times:
        there = graph[t].nodes
        source, destination = (there[each] for each in graph[t].arcs())
        cells += int(np.isin(there, nodes).sum())
        arcs += int((np.isin(source, nodes) & np.isin(destination, nodes)).sum())
    assert part_sizes(graph, part) == (cells, arcs, 4)
    (segment,) = window_of(Sharing(graph), part, None)
    assert segment.cells.num_cells == cells
    found = measure(job, [part])
    assert (found.cells.tolist(), found.arcs.tolist(), found.snapshots.tolist()) == ([cells], [arcs], [4])


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_timed(name: str) -> None:
    job = job_of(name)
    found = measure(job, spread(job, 2))
    assert (found.seconds > 0).all()
    assert (found.in_time <= found.seconds).all()
    assert (found.in_time > 0).all() == (name not in ("dcrnn", "evolvegcn-o", "evolvegcn-h"))
    assert found.time_line().per_arc == 0


def test_stages_that_cannot_be_told_apart_are_all_one() -> None:
    job = job_of(Shared)
    found = measure(job, spread(job, 2))
    assert found.in_time.tolist() == [0.0, 0.0]
    assert found.time_line()(100, 100, 3) == 0


@pytest.mark.parametrize("plan", ["relay", "psg"])
def test_snapshots_that_are_computed_again_are_timed_so(plan: str) -> None:
    job = job_of(plan=plan, recompute=2)
    found = measure(job, spread(job, 2))
    assert ((found.in_time > 0) & (found.in_time < found.seconds)).all()


def test_pairs_are_asked_as_in_training() -> None:
    graph = Social(nodes=30, snapshots=9, edges=60, communities=3, seed=2).write()
    job = job_of(graph=graph, task="link-prediction")
    parts = spread(job)
    assert all(part.targets is None for part in parts), "the other end of a pair may be in no part of the nodes"
    assert len(measure(job, parts[-2:])) == 2


@pytest.mark.parametrize("plan", ["relay", "psg"])
def test_empty_snapshots_are_no_part_and_do_no_harm_in_one(plan: str) -> None:
    edges = [np.array([[0, 1, 2], [1, 2, 3]]) if t % 3 else np.empty((2, 0), np.int64) for t in range(10)]
    nodes = [[0, 1, 2, 3] if t % 3 else [] for t in range(10)]
    graph = from_edges(edges, num_nodes=4, nodes=nodes).with_features(Degrees())
    job = job_of(graph=graph, plan=plan)
    parts = spread(job)
    assert all(part_sizes(job.problem.graph, part)[0] for part in parts)
    found = measure(job, parts)
    assert len(found) == len(parts)
    assert found.cells.min() > 0


def test_no_node_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="nothing to time"):
        measure(job_of(), [])


def test_without_time_the_smallest_are_timed_as_many_as_an_error_takes() -> None:
    job = job_of()
    parts = spread(job)
    numbers, found = measure_numbered(job, parts, seconds=0.0)
    assert numbers == [*range(FEWEST_PASSES)]
    assert found.cells.tolist() == [part_sizes(job.problem.graph, part)[0] for part in parts[:FEWEST_PASSES]]


def test_large_parts_are_timed_before_all_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line through the smallest parts alone foretold an epoch of 0.24 s as 2.81 s."""
    job, timed = job_of(), []

    def steady(run: Any) -> float:
        timed.append(run.args[-1])
        return 1e-6

    monkeypatch.setattr(pass_times, "steady", steady)
    measure(job, spread(job), stages=False)
    sizes = [sum(segment.cells.num_cells for segment in window) for window in timed]
    assert max(sizes) in sizes[:FEWEST_PASSES]


def test_what_the_first_pass_compiles_takes_no_time_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job, clock = job_of(), [0.0]

    def run(*given: object) -> float:
        clock[0] += 1e-6 if clock[0] else 60.0
        return 1e-6

    monkeypatch.setattr(pass_times, "one_pass", run)
    monkeypatch.setattr(pass_times, "perf_counter", lambda: clock[0])
    parts = spread(job)
    assert len(measure(job, parts, stages=False)) == len(parts) > FEWEST_PASSES


def test_every_batch_is_told_along_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(plan="psg")
    sizes = np.array([part_sizes(job.problem.graph, part) for part in job.batches])
    monkeypatch.setattr(pass_times, "one_pass", lambda job, model, head, window: _cost(window))
    assert predicted_seconds(job) == pytest.approx(1e-5 * sizes[:, 0] + 3e-6 * sizes[:, 1] + 0.01)


def _cost(window: Window) -> float:
    (segment,) = window
    return 1e-5 * segment.cells.num_cells + 3e-6 * segment.cells.num_arcs + 0.01


def times_of(seconds: Any, **others: Any) -> PassTimes:
    cells = np.array([10, 20, 40, 80, 160])
    given: dict[str, Any] = {"cells": cells, "arcs": cells % 7 * 10, "snapshots": np.array([1, 2, 1, 2, 1])}
    return PassTimes(**given | {"seconds": np.asarray(seconds), "in_time": np.zeros(5)} | others)


def test_the_error_is_that_of_passes_a_line_has_not_seen() -> None:
    exact = times_of(np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert exact.error == pytest.approx(0, abs=1e-9)
    disturbed = times_of(np.array([1.0, 2.0, 4.0, 8.0, 32.0]))
    off = []
    for k in range(5):
        line = disturbed.take(np.delete(np.arange(5), k)).line()
        said = float(line(disturbed.cells[k], disturbed.arcs[k], disturbed.snapshots[k]))
        off.append(abs(said / disturbed.seconds[k] - 1))
    assert disturbed.error == pytest.approx(sum(off) / 5)
    assert off[4] == pytest.approx(0.5), "lines that have not seen the last pass say 16"


def test_a_run_is_believed_once_another_took_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_times, "_FEWEST_RUNS", 3)
    monkeypatch.setattr(pass_times, "_MOST_RUNS", 12)
    took: Iterator[float] = iter([9e-9, 5e-3, 3e-3, 8e-3, 4e-3, 2e-3, 2.05e-3, 1e-3])
    assert steady(lambda: next(took)) == 2e-3, "the first run warms up, the last is not needed"
    assert next(took) == 1e-3
    never = iter([1.0 / (k + 1) ** 2 * 1e-3 for k in range(20)])
    assert steady(lambda: next(never)) == pytest.approx(1e-3 / 13**2), "at most so often"
    long = iter([7.0, 5.0, 4.0, 3.0, 2.0])
    assert steady(lambda: next(long)) == 3.0, "long ones not more often than needed"


def test_some_of_the_passes_are_passes() -> None:
    some = times_of(np.arange(5.0)).take(np.array([1, 3]))
    assert (len(some), some.cells.tolist(), some.seconds.tolist()) == (2, [20, 80], [1.0, 3.0])
    assert replace(some, in_time=np.array([1.0, 4.0])).time_line().per_cell > 0
