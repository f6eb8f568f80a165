from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.engine.progress import Progress
from strobe.engine.sources.batch_order import batch_loads
from strobe.errors import OptionError
from strobe.format import file_size
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Growth, Social
from strobe.models import MODELS
from strobe.ops.runtime.memory_trace import measure_peak_bytes
from strobe.planner import memory
from strobe.planner.downsample import downsample
from strobe.planner.memory import (
    MemoryEstimate,
    check_memory,
    estimate_peak_memory,
    measure_pass_bytes,
    predict_batch_bytes,
    predict_peak_memory,
    upper_bound_bytes,
)
from strobe.planner.time.passes import part_sizes
from tests.support import planner_jobs
from tests.support.runs import small_graph

WHOLE = Social(nodes=3_000, snapshots=6, edges=9_000, away=0.3, communities=4, labels=True, seed=1).write()


def test_cells_have_as_many_arcs_as_in_the_whole_graph() -> None:
    thin = downsample(WHOLE, 600)
    assert thin.num_nodes == 600
    for few, all_of_them in zip(thin, WHOLE, strict=True):
        assert few.num_nodes / 600 == pytest.approx(all_of_them.num_nodes / 3_000, abs=0.07)
        assert few.num_arcs / few.num_nodes == pytest.approx(all_of_them.num_arcs / all_of_them.num_nodes, rel=0.01)
        assert few.in_degree.max() > 3 * few.in_degree.mean(), "some cells are read much more often than others"


def test_features_labels_times_and_kind_are_those_of_the_graph_and_nodes_those_of_the_seed() -> None:
    thin = downsample(WHOLE, 600)
    assert (thin.directed, thin.weighted, thin.times) == (WHOLE.directed, WHOLE.weighted, WHOLE.times)
    assert thin.features is not None
    assert WHOLE.features is not None
    assert thin.features.shape == WHOLE.features.shape
    assert set(np.concatenate([each.y for each in thin])) <= set(np.concatenate([each.y for each in WHOLE]))
    assert downsample(WHOLE, 100, seed=3) == downsample(WHOLE, 100, seed=3) != downsample(WHOLE, 100, seed=4)


@pytest.mark.parametrize("nodes", [1, 40, 1_000])
@pytest.mark.parametrize("change", [{}, {"features": None}])
def test_hardly_anything_and_everything_can_be_left(nodes: int, change: dict[str, Any]) -> None:
    graph = small_graph() if not change else small_graph().with_features(None)
    thin = downsample(graph, nodes)
    assert (thin.num_nodes, len(thin)) == (min(nodes, 40), len(graph))
    assert (thin.features is None) == bool(change)


GRAPH = Social(nodes=6_000, snapshots=10, edges=24_000, away=0.2, communities=4, seed=1).write()


FEWER = Social(nodes=1_500, snapshots=10, edges=6_000, away=0.2, communities=4, seed=1).write()


def job_of(model: str, task: str, graph: DynamicGraph = GRAPH, **changes: Any) -> Job:
    return planner_jobs.job_of(model, graph, task, None, {"hidden": 32}, **{"window": 4} | changes)


@pytest.mark.parametrize(
    ("model", "task", "recompute"),
    [
        ("tgcn", "regression", None),
        ("mpnn-lstm", "regression", 2),
        ("gat-lstm", "link-prediction", None),
    ],
)
def test_a_pass_takes_within_a_tenth_of_the_prediction(model: str, task: str, recompute: int | None) -> None:
    job, nodes = job_of(model, task, recompute=recompute), 2_400
    if task == "link-prediction":  # whose pairs are many: their features and offsets would take most of the test
        job, nodes = job_of(model, task, FEWER, recompute=recompute), 600
    said = predict_peak_memory(job, nodes=nodes)
    largest = job.batches[int(batch_loads(job.problem.graph, job.batches).argmax())]
    segments = 1 if recompute is None else 2
    taken = measure_pass_bytes(job, largest)
    assert said.segment * segments + said.working == pytest.approx(taken, rel=0.1)
    assert said.windows > said.segment * segments, "there is more than one window"
    computed = max(said.working, said.scoring)
    assert said.resident - said.weights - computed == said.windows
    assert said.offloaded - said.weights - computed == 2 * said.segment


@pytest.mark.parametrize(("model", "recompute"), [("tgcn", 2), ("evolvegcn-o", None)])
def test_a_run_on_a_graph_that_grows_takes_within_a_tenth_of_the_prediction(model: str, recompute: int | None) -> None:
    """Its test snapshots are much larger than those it learns from: of EvolveGCN, scoring takes most."""
    graph = Growth(nodes=3_000, snapshots=16, edges=6_000, ratio=8.0, curve="exponential", noise=0.0, seed=1).write()
    given: dict[str, Any] = {"threads": 1, "device": "cpu", "window": 4, "offload": "never", "epochs": 1}
    given["recompute"] = recompute
    said = predict_peak_memory(
        resolve(TrainRequest(graph, model, "regression", None, None, given), None, Progress()), nodes=2_400
    )
    taken = measure_peak_bytes(lambda: strobe.train(graph, model, "regression", **given), torch.device("cpu"))
    assert said.resident == pytest.approx(taken, rel=0.1)
    if model == "evolvegcn-o":
        assert said.scoring > 1.2 * said.working


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_rough_estimate_is_within_a_factor_of_two(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ROUGH_NODES", 200)
    job = job_of(model, "regression")
    exact = predict_peak_memory(job, nodes=2_400).resident
    rough = estimate_peak_memory(job, 1e12).resident
    assert exact / 2 < rough < 2 * exact


LONG = Social(nodes=40, snapshots=140, edges=160, away=0.2, communities=4, seed=1).write()


@pytest.mark.parametrize("model", ["dysat", "evolvegcn-o", "mpnn-lstm", "sage", "tgcn"])
def test_a_rough_estimate_of_a_long_batch_is_within_a_factor_of_two(model: str) -> None:
    job = job_of(model, "regression", LONG, window=None)
    assert len(job.batches[0].times) > memory.ROUGH_SNAPSHOTS
    exact, rough = predict_peak_memory(job, nodes=40), estimate_peak_memory(job, 1e12)
    for part in ("windows", "working", "scoring", "resident"):
        assert getattr(exact, part) / 2 < getattr(rough, part) < 2 * getattr(exact, part), part


def test_memory_that_grows_with_the_square_of_the_snapshots_is_extrapolated_as_such() -> None:
    def passed(length: int) -> memory._PassMemory:
        return memory._PassMemory(length, 3 * length + 2 * length**2, 5 * length)

    found = memory._extrapolate_in_time(100, 8, passed(4), passed(8))
    assert (found.peak, found.retained) == (passed(100).peak, passed(100).retained)


def test_what_may_not_fit_is_estimated_on_larger_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    rough, exact = (MemoryEstimate(0, size, 0, 0, 0) for size in (100, 150))
    monkeypatch.setattr(
        memory, "predict_peak_memory", lambda job, nodes=None, snapshots=None: exact if nodes is None else rough
    )
    job = job_of("mpnn-lstm", "regression")
    assert estimate_peak_memory(job, 201) == rough
    assert estimate_peak_memory(job, 200) == exact


def test_ranks_have_a_share_of_all_but_weights() -> None:
    whole = MemoryEstimate(weights=7, windows=1_000, segment=400, working=2_000, scoring=800)
    assert whole.of_rank(1) == whole
    assert whole.of_rank(5) == MemoryEstimate(weights=7, windows=250, segment=100, working=500, scoring=200)


def test_less_is_kept_of_segments() -> None:
    whole, each = (
        predict_peak_memory(job_of("mpnn-lstm", "regression", recompute=size), nodes=600) for size in (None, 1)
    )
    assert each.working < 0.8 * whole.working
    assert each.segment < 0.3 * whole.segment
    assert each.windows == pytest.approx(whole.windows, rel=0.02)


def test_what_is_carried_on_from_window_to_window_counts() -> None:
    """Attention over time sees all that was before: the second window takes more than the first."""
    fresh, second = (
        predict_peak_memory(job_of("dysat", "regression", window=size), nodes=600).working for size in (7, 4)
    )
    assert second > 0.8 * fresh, "of four snapshots that see those before, and of seven that see none"


def test_adam_keeps_two_numbers_of_every_weight() -> None:
    adam, sgd = (
        predict_peak_memory(job_of("tgcn", "regression", optimizer=name), nodes=100) for name in ("adam", "sgd")
    )
    assert adam.weights == 3 * sgd.weights > 0


def test_neither_the_job_nor_its_random_numbers_notice() -> None:
    job = job_of("tgcn", "regression")
    first, _ = job.make_model()
    predict_peak_memory(job, nodes=100)
    second, _ = job.make_model()
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


GROWING = Social(nodes=600, snapshots=14, edges=4_000, start=0.1, communities=4, seed=1).write()


def batch_job(model: str = "tgcn", plan: str = "psg", hidden: int = 32, **changes: Any) -> Job:
    return planner_jobs.job_of(model, GROWING, plan=plan, options={"hidden": hidden}, **changes)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The parts that a pass was run over."""
    run: list[Any] = []

    def noted(job: Job, part: Any) -> int:
        run.append(part)
        return measure_pass_bytes(job, part)

    monkeypatch.setattr(memory, "measure_pass_bytes", noted)
    return run


def has(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(free))


@pytest.mark.parametrize(("model", "recompute"), [("tgcn", None), ("mpnn-lstm", 2), ("gat-lstm", None)])
def test_the_largest_batch_takes_about_the_predicted_bytes(
    model: str, recompute: int | None, passes: list[Any]
) -> None:
    job = batch_job(model, recompute=recompute)
    said = predict_batch_bytes(job)
    sizes = [part_sizes(job.problem.graph, batch)[0] for batch in job.batches]
    assert max(sizes) > 3 * np.median(sizes[:4]), "the graph grows"
    largest = int(np.argmax(sizes))
    assert int(said.argmax()) == largest
    assert len(passes) == 2
    assert job.batches[largest] not in passes, "a batch that may not fit is not run"
    assert said[largest] == pytest.approx(measure_pass_bytes(job, job.batches[largest]), rel=0.25)


def test_a_batch_that_does_not_fit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    job = batch_job()
    most = predict_batch_bytes(job).max()
    has(monkeypatch, most * 0.9)
    last = job.batches[int(predict_batch_bytes(job).argmax())].times
    with pytest.raises(OptionError) as error:
        check_memory(job)
    told = str(error.value)
    times = job.problem.graph.times
    assert f"snapshots {times[last.start]} to {times[last.stop - 1]} " in told
    for size in (most, most * 0.9):
        assert file_size(int(size)) in told
    for way in (f"--window {len(last) // 2}", "--recompute 1", "--plan relay"):
        assert way in told


def test_what_fits_is_not_spoken_of_and_costs_no_pass_if_it_fits_easily_or_is_shared(
    monkeypatch: pytest.MonkeyPatch, passes: list[Any]
) -> None:
    job = batch_job()
    has(monkeypatch, predict_batch_bytes(job).max() * 1.1)
    passes.clear()
    check_memory(job)
    assert passes, "it was close, so it was looked at"
    passes.clear()
    has(monkeypatch, 1e12)
    check_memory(job)
    has(monkeypatch, 1)
    check_memory(batch_job(plan="relay"))
    assert not passes


@pytest.mark.parametrize(
    ("model", "hidden"),  # sparse rows of EvolveGCN-H are not counted
    [(name, (8, 32, 128)[k % 3]) for k, name in enumerate(MODELS) if name != "evolvegcn-h"],
)
def test_models_stay_below_what_is_taken_for_granted(model: str, hidden: int) -> None:
    job = batch_job(model, hidden=hidden)
    assert measure_pass_bytes(job, job.batches[-1]) < upper_bound_bytes(job)[-1]


def test_ranks_of_a_machine_share_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = free_bytes(torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 0 < free_bytes(torch.device("cpu")) < 0.5 * alone
