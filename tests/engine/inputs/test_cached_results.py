from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strobe.api import SERVICES
from strobe.comm import SingleRankComm
from strobe.engine import Progress, Run
from strobe.engine.inputs.cached_results import CachedResults, task_key
from strobe.engine.inputs.graph_source import open_graph_source
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.launch.processes import LaunchConfig, OutputConfig
from strobe.engine.run import evaluate
from strobe.engine.train import run_training
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.io.cache import NO_CACHE, Cache
from strobe.placement import Chunks, Metis, Partition, Placement
from strobe.plan import Plan
from strobe.planner.memory import predict_peak_memory
from strobe.tasks import LinkPrediction, LinkRanking, NodeClassification, NodeRegression, Task
from tests.placement.test_contract import PLACEMENTS
from tests.support.runs import same_tensors, small_graph

CHANGES: dict[str, Any] = {"epochs": 2, "threads": 1, "device": "cpu"}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(folder=tmp_path / "cache", min_seconds=0.0)


class Listener(Progress):
    """What came from the cache, and notes."""

    def __init__(self) -> None:
        self.cached: list[str] = []
        self.notes: list[str] = []

    def from_cache(self, what: str) -> None:
        self.cached.append(what)

    def note(self, text: str) -> None:
        self.notes.append(text)


def job_of(cache: Cache, graph: DynamicGraph | None = None, task: Task | str = "regression", **more: Any) -> Job:
    plan, changes = more.pop("plan", Plan()), CHANGES | more
    given = small_graph() if graph is None else graph
    request = TrainRequest(
        given, "tgcn", task, {"hidden": 4}, None, changes, None, plan, services=SERVICES, cache=cache
    )
    return resolve(request, None, Listener())


def hits(job: Job) -> list[str]:
    assert isinstance(job.progress, Listener)
    return job.progress.cached


TASKS: list[Task] = [
    NodeRegression(),
    NodeRegression(target="labels"),
    NodeClassification(),
    LinkPrediction(negatives=2, eval_negatives=3),
    LinkRanking(negatives=5),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_what_is_read_equals_what_was_computed(cache: Cache, task: Task) -> None:
    plain = job_of(NO_CACHE, task=task)
    for warm in (False, True):
        job = job_of(cache, task=task)
        assert hits(job) == ["fit"] * warm
        assert job.problem.state() == plain.problem.state()
        for part in ("validation", "test"):
            assert job.baselines(part) == plain.problem.baselines(part)
        assert hits(job) == ["fit", "baselines", "baselines"] * warm
        memory = [predict_peak_memory(each, 40) for each in (plain, job)]
        assert memory[0] == memory[1]


OTHER_GRAPHS: list[Callable[[], DynamicGraph]] = [
    lambda: small_graph(1),
    lambda: small_graph()[1:],
    lambda: small_graph().subset(range(39)),
    lambda: replace(small_graph(), info={"label_delay": 2}),
]


@pytest.mark.parametrize("graph", OTHER_GRAPHS)
def test_another_graph_finds_nothing(cache: Cache, graph: Callable[[], DynamicGraph]) -> None:
    job_of(cache).baselines("test")
    other = job_of(cache, graph())
    other.baselines("test")
    assert hits(other) == []


@pytest.mark.parametrize(
    ("task", "option"),
    [
        (LinkPrediction(negatives=2, eval_negatives=3), option)
        for option in (
            {"train": 0.5},
            {"validation": 0.2},
            {"ahead": 2},
            {"negatives": 3},
            {"eval_negatives": 4},
            {"max_pairs": 50},
            {"eval_max_pairs": 50},
            {"candidates": "seen"},
            {"eval_sampling": "historical"},
            {"from_history": False},
            {"pair_features": False},
            {"calibrate": False},
        )
    ]
    + [
        (NodeRegression(), option)
        for option in ({"train": 0.5}, {"target": "labels"}, {"ahead": 2}, {"horizon": 2}, {"from_last": False})
    ]
    + [(NodeClassification(), {"ahead": 1}), (NodeClassification(), {"train": 0.6})],
    ids=str,
)
def test_any_other_option_of_the_task_finds_nothing(cache: Cache, task: Task, option: dict[str, Any]) -> None:
    job_of(cache, task=task).baselines("test")
    other = job_of(cache, task=replace(task, **option))
    other.baselines("test")
    assert hits(other) == []


def test_another_seed_or_fit_finds_nothing_and_other_settings_find_all(cache: Cache) -> None:
    job_of(cache)
    assert hits(job_of(cache, seed=1)) == hits(job_of(cache, fit_snapshots=4)) == []
    assert hits(job_of(cache, lr=0.5, epochs=9, window=2)) == ["fit"]


def test_another_part_or_split_finds_no_baselines(cache: Cache) -> None:
    job = job_of(cache)
    for part, problem in (("validation", None), ("test", None), ("test", job.problem.as_test_only())):
        assert job.baselines(part, problem) == (problem or job.problem).baselines(part)
    assert hits(job) == []


def test_another_number_of_threads_or_code_finds_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    job_of(cache)
    assert hits(job_of(cache, threads=2)) == []
    monkeypatch.setattr("strobe.engine.inputs.cached_results.environment", lambda: {"code": "edited"})
    assert hits(job_of(cache)) == []


def test_a_task_of_the_users_own_or_with_a_file_is_not_cached(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(NodeRegression):
        pass

    job_of(cache, task=Own())
    assert cache.entries() == []
    monkeypatch.chdir(tmp_path)
    Path("negatives.csv").write_text("")
    assert task_key(LinkPrediction(eval_sampling="negatives.csv"), Plan()) is None


def test_a_job_with_another_problem_or_graph_has_no_cached_results(cache: Cache) -> None:
    job = job_of(cache)
    other = job_of(cache, small_graph(1))
    assert job.results.cache is cache
    assert replace(job, problem=other.problem).results.cache.is_off
    assert replace(job, source=open_graph_source(small_graph(1))).results.cache.is_off


def test_memory_of_another_model_or_setting_is_measured(cache: Cache) -> None:
    def measure(**options: Any) -> list[str]:
        job = job_of(cache, **options)
        predict_peak_memory(job, options.get("nodes", 40))
        return [kind for kind in hits(job) if kind == "memory"]

    assert measure() == []
    assert measure() == ["memory"]
    assert measure(recompute=2) == measure(precision="float64") == []


def place(cache: Cache, placement: Placement, graph: DynamicGraph, **more: Any) -> tuple[Partition, list[str]]:
    """The partition of two ranks, of which only rank 0 computes."""
    ranks, seed = more.get("ranks", 2), more.get("seed", 0)
    progress = Listener()
    results = CachedResults(cache, open_graph_source(graph), progress=progress)
    key = {"placement": placement.to_json(), "ranks": ranks, "seed": seed}

    def compute() -> Partition:
        return placement.place(graph, [range(len(graph))], ranks, seed=seed).with_sequence_owner(graph)

    return results.partition(key, graph, ranks, compute), progress.cached


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_a_partition_is_read_as_it_was_computed(cache: Cache, placement: Placement) -> None:
    graph = small_graph()
    (made, before), (read, after) = place(cache, placement, graph), place(cache, placement, graph)
    assert (before, after) == ([], ["partition"])
    for name, array in vars(made).items():
        if isinstance(array, np.ndarray):
            found = getattr(read, name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
        else:
            assert getattr(read, name) == array


def test_a_forged_partition_is_computed_again(cache: Cache) -> None:
    graph, ranks = small_graph(), 2
    wrong: list[dict[str, Any]] = [
        {"node_owner": np.full(graph.num_nodes, ranks, np.int16)},
        {"node_owner": np.zeros(graph.num_nodes - 1, np.int16)},
        {"node_owner": np.zeros(graph.num_nodes, np.float32)},
        {"sequence_owner": np.full(graph.num_nodes, -1, np.int16)},
        {"other": np.zeros(1)},
    ]
    for arrays in wrong:
        right = Partition.by_node(ranks, np.zeros(graph.num_nodes, np.int16), len(graph))
        names = ("snapshot_owner", "node_owner", "sequence_owner")
        results = CachedResults(cache, open_graph_source(graph))
        forged = {"replicated": np.array([False]), **{name: getattr(right, name) for name in names}, **arrays}
        full = results._full_key({"placement": 1})
        cache.save("partition", full, forged, seconds=1.0)
        found = results.partition({"placement": 1}, graph, ranks, lambda right=right: right)  # type: ignore[misc]
        assert found is right


def test_a_cache_that_cannot_be_written_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = job_of(Cache(folder=tmp_path / "file" / "cache", min_seconds=0.0))
    assert isinstance(job.progress, Listener)
    assert any("could not be cached" in note for note in job.progress.notes)


def train(cache: Cache, ranks: int, task: Task, plan: Plan, out: Path | None = None, **more: Any) -> Run:
    request = TrainRequest(
        small_graph(), "tgcn", task, {"hidden": 4}, None, CHANGES | more, None, plan, services=SERVICES, cache=cache
    )
    output = OutputConfig(out, resume="resume" in str(out) and out is not None and out.exists())
    return run_training(request, output, LaunchConfig(ranks), Progress())


def outcome(run: Run) -> Any:
    """All that must not depend on the cache."""
    losses = [[line["loss"], line.get("validation")] for line in run.history]
    return run.model.state_dict(), run.head.state_dict(), losses, run.validation, run.test, run.baselines


@pytest.mark.usefixtures("ranks_are_threads")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("task", "placement"), [(NodeRegression(), Metis()), (LinkPrediction(eval_negatives=3), Chunks(per_rank=2))]
)
def test_runs_are_equal_without_a_cache_with_a_cold_and_with_a_warm_one(
    cache: Cache, tmp_path: Path, ranks: int, task: Task, placement: Placement
) -> None:
    plan = replace(Plan(), placement=placement)
    run = partial(train, ranks=ranks, task=task, plan=plan)
    plain, cold = outcome(run(NO_CACHE)), run(cache)
    warm = run(cache)
    assert same_tensors(outcome(cold), plain)
    assert same_tensors(outcome(warm), plain)
    assert warm.startup is not None
    assert warm.startup["cached"] == ["baselines", "fit", *(["partition"] if ranks > 1 else [])]
    run(cache, out=tmp_path / "resume", epochs=1)
    assert same_tensors(outcome(run(cache, out=tmp_path / "resume")), plain)


def test_evaluation_of_another_graph_takes_no_baselines_of_the_first(cache: Cache) -> None:
    run = train(cache, 1, NodeRegression(), Plan())
    other = Social(nodes=40, snapshots=12, edges=90, communities=4, labels=True, seed=3).write()
    plain = train(NO_CACHE, 1, NodeRegression(), Plan())
    for part in ("test", "all"):
        assert evaluate(run, part, graph=other).baselines == evaluate(plain, part, graph=other).baselines


def test_random_numbers_of_a_run_do_not_depend_on_the_cache(cache: Cache) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        job = job_of(cache)
        predict_peak_memory(replace(job, comm=SingleRankComm()), 40)
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], states[1])
