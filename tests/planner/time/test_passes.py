"""Seconds and bytes of passes, which leave no trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.batching import BatchSpec
from strobe.engine.job import Job
from strobe.engine.machine import random_state
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.windows import Window, window_of_batch
from strobe.errors import OptionError
from strobe.graph import Degrees, from_edges
from strobe.graph.synthetic import Social
from strobe.models.time import Recurrent
from strobe.planner.memory import measure_pass_bytes
from strobe.planner.time import passes
from strobe.planner.time.passes import (
    MIN_PASSES,
    LinearCost,
    PassTimes,
    fastest_stable,
    fit_linear_cost,
    measure,
    measure_optimizer_step,
    part_sizes,
    predict_batch_seconds,
    sample_parts,
)
from strobe.view import View
from tests.support.planner_jobs import job_of
from tests.support.runs import Noisy, same_tensors, small_graph


@pytest.fixture(autouse=True)
def fewer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds do not matter here."""
    monkeypatch.setattr(passes, "_MIN_RUNS", 2)
    monkeypatch.setattr(passes, "_MAX_RUNS", 2)


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
    parts = sample_parts(job)
    measure(job, parts[-2:])
    measure_pass_bytes(job, parts[0])
    measure_optimizer_step(job)


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
    parts = sample_parts(job)
    sizes = [part_sizes(graph, part) for part in parts]
    loads = [16 * cells + arcs for cells, arcs, _ in sizes]
    assert loads == sorted(loads)
    assert len(parts) <= passes.SAMPLES
    assert len({(part.times, None if part.seed_nodes is None else len(part.seed_nodes)) for part in parts}) == len(
        parts
    )
    if plan == "psg":
        assert all(part in job.batches for part in parts)
        assert {len(part.times) for part in parts} == {1, 2, 3, 4}
        assert max(loads) == max(16 * c + a for c, a, _ in (part_sizes(graph, part) for part in job.batches))
    else:
        assert parts[-1].times == train
        assert {len(part.times) for part in parts} > {1, len(train)}
        arcs_a_cell = {round(arcs / cells, 6) for cells, arcs, _ in sizes}
        assert len(arcs_a_cell) > len(sizes) // 2, "what a cell costs can be told from what an arc costs"


def test_arcs_are_those_among_the_nodes_of_a_part() -> None:
    job = job_of()
    graph = job.problem.graph
    nodes = np.arange(0, graph.num_nodes, 3)
    part = BatchSpec(range(1, 5), range(1, 5), nodes, continues_state=False)
    cells = arcs = 0
    for t in part.times:
        there = graph[t].nodes
        source, destination = (there[each] for each in graph[t].arcs())
        cells += int(np.isin(there, nodes).sum())
        arcs += int((np.isin(source, nodes) & np.isin(destination, nodes)).sum())
    assert part_sizes(graph, part) == (cells, arcs, 4)
    (segment,) = window_of_batch(PartitionedGraph(graph), part, None)
    assert segment.data.num_cells == cells
    found = measure(job, [part])
    assert (found.cells.tolist(), found.arcs.tolist(), found.snapshots.tolist()) == ([cells], [arcs], [4])


@pytest.mark.parametrize("name", ["tgcn", "dysat", "dcrnn", "evolvegcn-o"])
def test_stages_are_timed_where_a_model_has_them(name: str) -> None:
    job = job_of(name)
    found = measure(job, sample_parts(job, 2))
    assert (found.seconds > 0).all()
    assert (found.time_stage_s <= found.seconds).all()
    assert (found.time_stage_s > 0).all() == (name not in ("dcrnn", "evolvegcn-o", "evolvegcn-h"))
    assert found.fit_time_stage().per_arc == 0
    shared = job_of(Shared)
    found = measure(shared, sample_parts(shared, 2))
    assert found.time_stage_s.tolist() == [0.0, 0.0], "stages that share inputs are not separated"
    assert found.fit_time_stage()(100, 100, 3) == 0


@pytest.mark.parametrize("plan", ["relay", "psg"])
def test_snapshots_that_are_computed_again_are_timed_so(plan: str) -> None:
    job = job_of(plan=plan, recompute=2)
    found = measure(job, sample_parts(job, 2))
    assert ((found.time_stage_s > 0) & (found.time_stage_s <= found.seconds)).all()  # at most the whole pass


def test_edge_level_tasks_are_timed_on_all_nodes() -> None:
    graph = Social(nodes=30, snapshots=9, edges=60, communities=3, seed=2).write()
    job = job_of(graph=graph, task="link-prediction")
    parts = sample_parts(job)
    assert all(part.seed_nodes is None for part in parts), "the other end of a pair may be in no part of the nodes"
    assert len(measure(job, parts[-2:])) == 2


@pytest.mark.parametrize("plan", ["relay", "psg"])
def test_empty_snapshots_are_no_part_and_do_no_harm_in_one(plan: str) -> None:
    edges = [np.array([[0, 1, 2], [1, 2, 3]]) if t % 3 else np.empty((2, 0), np.int64) for t in range(10)]
    nodes = [[0, 1, 2, 3] if t % 3 else [] for t in range(10)]
    graph = from_edges(edges, num_nodes=4, nodes=nodes).with_features(Degrees())
    job = job_of(graph=graph, plan=plan)
    parts = sample_parts(job)
    assert all(part_sizes(job.problem.graph, part)[0] for part in parts)
    found = measure(job, parts)
    assert len(found) == len(parts)
    assert found.cells.min() > 0


def test_without_time_the_smallest_are_timed_as_many_as_an_error_takes() -> None:
    job = job_of()
    with pytest.raises(OptionError, match="nothing to time"):
        measure(job, [])
    parts = sample_parts(job)
    found = measure(job, parts, seconds=0.0)
    assert found.part.tolist() == [*range(MIN_PASSES)]
    assert found.cells.tolist() == [part_sizes(job.problem.graph, part)[0] for part in parts[:MIN_PASSES]]


def test_large_parts_are_timed_before_all_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line through the smallest parts alone predicted 2.81 s for an epoch of 0.24 s."""
    job, timed = job_of(), []

    def steady(run: Any) -> float:
        timed.append(run.args[-1])
        return 1e-6

    monkeypatch.setattr(passes, "fastest_stable", steady)
    measure(job, sample_parts(job), stages=False)
    sizes = [sum(segment.data.num_cells for segment in window) for window in timed]
    assert max(sizes) in sizes[:MIN_PASSES]


def test_what_the_first_pass_compiles_takes_no_time_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job, clock = job_of(), [0.0]

    def run(*given: object) -> float:
        clock[0] += 1e-6 if clock[0] else 60.0
        return 1e-6

    monkeypatch.setattr(passes, "run_pass", run)
    monkeypatch.setattr(passes, "perf_counter", lambda: clock[0])
    parts = sample_parts(job)
    assert len(measure(job, parts, stages=False)) == len(parts) > MIN_PASSES


def test_seconds_of_batches_follow_the_fitted_line(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(plan="psg")
    sizes = np.array([part_sizes(job.problem.graph, part) for part in job.batches])
    monkeypatch.setattr(passes, "run_pass", lambda job, model, head, window: _cost(window))
    assert predict_batch_seconds(job) == pytest.approx(1e-5 * sizes[:, 0] + 3e-6 * sizes[:, 1] + 0.01)


def _cost(window: Window) -> float:
    (segment,) = window
    return 1e-5 * segment.data.num_cells + 3e-6 * segment.data.num_arcs + 0.01


def times_of(seconds: Any, **others: Any) -> PassTimes:
    cells = np.array([10, 20, 40, 80, 160])
    given: dict[str, Any] = {
        "part": np.arange(5),
        "cells": cells,
        "arcs": cells % 7 * 10,
        "snapshots": np.array([1, 2, 1, 2, 1]),
    }
    return PassTimes(**given | {"seconds": np.asarray(seconds), "time_stage_s": np.zeros(5)} | others)


def test_the_error_is_that_of_passes_a_line_has_not_seen() -> None:
    exact = times_of(np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert exact.error == pytest.approx(0, abs=1e-9)
    disturbed = times_of(np.array([1.0, 2.0, 4.0, 8.0, 32.0]))
    off = []
    for k in range(5):
        line = disturbed.select(np.delete(np.arange(5), k)).fit()
        said = float(line(disturbed.cells[k], disturbed.arcs[k], disturbed.snapshots[k]))
        off.append(abs(said / disturbed.seconds[k] - 1))
    assert disturbed.error == pytest.approx(sum(off) / 5)
    assert off[4] == pytest.approx(0.5), "lines that have not seen the last pass say 16"


def test_a_run_is_believed_once_another_took_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_MIN_RUNS", 3)
    monkeypatch.setattr(passes, "_MAX_RUNS", 12)
    took: Iterator[float] = iter([9e-9, 5e-3, 3e-3, 8e-3, 4e-3, 2e-3, 2.05e-3, 1e-3])
    assert fastest_stable(lambda: next(took)) == 2e-3, "the first run warms up, the last is not needed"
    assert next(took) == 1e-3
    never = iter([1.0 / (k + 1) ** 2 * 1e-3 for k in range(20)])
    assert fastest_stable(lambda: next(never)) == pytest.approx(1e-3 / 13**2), "at most so often"
    long = iter([7.0, 5.0, 4.0, 3.0, 2.0])
    assert fastest_stable(lambda: next(long)) == 3.0, "long ones not more often than needed"


CELLS = np.array([10, 400, 2_000, 9_000, 100, 7_000])
ARCS = np.array([30, 100, 90_000, 20_000, 900, 70_000])
SNAPSHOTS = np.array([1, 2, 4, 8, 8, 1])
TRUE = LinearCost(per_cell=4e-7, per_arc=3e-8, per_snapshot=2e-4, fixed=1e-3)


def test_a_line_finds_what_made_its_data_also_without_snapshots() -> None:
    found = fit_linear_cost(CELLS, ARCS, TRUE(CELLS, ARCS, SNAPSHOTS), SNAPSHOTS)
    assert asdict(found) == pytest.approx(asdict(TRUE))
    assert found(CELLS, ARCS, SNAPSHOTS) == pytest.approx(TRUE(CELLS, ARCS, SNAPSHOTS))
    uncounted = fit_linear_cost(CELLS, ARCS, 4e-7 * CELLS + 3e-8 * ARCS + 1e-3)
    assert asdict(uncounted) == pytest.approx({"per_cell": 4e-7, "per_arc": 3e-8, "per_snapshot": 0.0, "fixed": 1e-3})


def test_the_fit_minimizes_relative_errors() -> None:
    # Two passes of one size that took 1 and 3 seconds. Of absolute errors the mean, 2, has the least; of relative
    # ones 1.2, for (s - 1)**2 + (s / 3 - 1)**2 is least there.
    found = fit_linear_cost(np.ones(2, np.int64), np.zeros(2, np.int64), np.array([1.0, 3.0]))
    assert float(found(1, 0)) == pytest.approx(1.2)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**7), st.integers(1, 64), st.floats(0, 1e3)),
        min_size=1,
        max_size=9,
    )
)
def test_nothing_ever_costs_less_than_nothing(passes: list[tuple[int, int, int, float]]) -> None:
    cells, arcs, snapshots, seconds = (np.array(each) for each in zip(*passes, strict=True))
    found = fit_linear_cost(cells, arcs, seconds, snapshots)
    assert min(asdict(found).values()) >= 0
    assert np.isfinite(found(cells, arcs, snapshots)).all()


def test_lines_through_passes_that_get_shorter_through_no_arcs_and_through_nothing() -> None:
    shorter = fit_linear_cost(np.array([1, 2, 3]), np.array([2, 4, 6]), np.array([3.0, 2.0, 1.0]))
    assert (shorter.per_cell, shorter.per_arc) == (0.0, 0.0)
    assert shorter.fixed > 0
    no_arcs = fit_linear_cost(np.array([10, 20, 30]), np.zeros(3, np.int64), np.array([2.0, 3.0, 4.0]))
    assert (no_arcs.per_cell, no_arcs.per_arc, no_arcs.fixed) == pytest.approx((0.1, 0.0, 1.0))
    nothing = np.zeros(0, np.int64)
    with pytest.raises(OptionError, match="no pass was timed"):
        fit_linear_cost(nothing, nothing, np.zeros(0))
