from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strobe
from strobe.api import open_run
from strobe.engine import Run
from strobe.engine.evaluation.calibrate import calibrate, sample_parts
from strobe.engine.evaluation.link_scores import link_scorers
from strobe.graph import DynamicGraph, from_edges
from strobe.tasks.calibration import ScoredPairs
from strobe.tasks.link_prediction import LinkProblem

NODES, SNAPSHOTS = 200, 16


def make_graph(directed: bool = True, changed_after: int | None = None) -> DynamicGraph:
    """Pairs that meet again and again; edges of snapshots after ``changed_after`` are others."""
    rng = np.random.default_rng(3)
    friends = rng.integers(0, NODES, (2, 400))
    edges = []
    for t in range(SNAPSHOTS):
        met = friends[:, rng.random(400) < 0.2]
        others = rng.integers(0, NODES, (2, 20))
        shift = 0 if changed_after is None or t <= changed_after else 77
        edges.append((np.concatenate([met, others], axis=1) + shift) % NODES)
    return from_edges(edges, num_nodes=NODES, directed=directed)


def trained(graph: DynamicGraph, task: str = "link-prediction", **options: Any) -> Run:
    return strobe.train(graph, "tgcn", task, epochs=2, window=4, model_options={"hidden": 8}, **options)


def sample(run: Run, part: str, max_scores: int) -> ScoredPairs:
    problem = run.problem
    assert isinstance(problem, LinkProblem)
    times = problem.split.part(part)
    scorers = link_scorers(run.model, run.head, problem, run.job.evaluation_windows(times), times)
    [found] = sample_parts(scorers, [problem.split.with_examples(part)], 0, max_scores=max_scores)
    assert found is not None
    return found


@pytest.mark.parametrize("directed", [True, False])
def test_sample_represents_all_pairs(directed: bool) -> None:
    run = trained(make_graph(directed))
    problem = run.problem
    assert isinstance(problem, LinkProblem)
    times = problem.split.with_examples("test")
    num_edges = sum(len(problem.target_arcs(t)) for t in times)
    whole, part = sample(run, "test", 10**9), sample(run, "test", 40 * NODES * len(times))
    assert len(part) < len(whole)
    for each in (whole, part):
        assert each.weights.sum() == pytest.approx(len(times) * NODES * (NODES - 1))
    assert whole.weights[whole.labels].sum() == num_edges
    assert part.weights[part.labels].sum() == pytest.approx(num_edges, rel=0.3)
    means = [float(np.average(each.scores, weights=each.weights)) for each in (whole, part)]
    assert means[0] == pytest.approx(means[1], abs=0.2)


@pytest.mark.parametrize("task", ["link-prediction", "link-ranking"])
def test_calibrated_probabilities_hold_for_the_test_part(task: str) -> None:
    found = trained(make_graph(), task).calibration
    assert found is not None
    assert found.error is not None
    assert found.uncalibrated_error is not None
    assert found.edge_error is not None
    assert found.error < 0.002 < 0.02 < found.uncalibrated_error
    assert found.edge_error < 0.5


def test_test_part_is_not_read_by_the_fit() -> None:
    graph = make_graph()
    run = trained(graph)
    first_test = run.problem.split.test.start
    other = make_graph(changed_after=first_test)  # the target of the last validation snapshot is the first of the test
    changed = open_run(run, graph=other)
    found, again = (calibrate(each.job, each.model, each.head) for each in (run, changed))
    assert found is not None
    assert again is not None
    assert found.calibration == again.calibration
    assert found.error != again.error


def test_calibration_is_recorded_and_used_again(tmp_path: Path) -> None:
    make_graph().save(tmp_path / "graph")
    run = trained(tmp_path / "graph", out=tmp_path / "run")  # type: ignore[arg-type]
    assert run.calibration is not None
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["calibration_error"] == run.calibration.error
    assert "<svg" in (tmp_path / "run" / "reliability.svg").read_text()
    opened = open_run(tmp_path / "run")
    assert opened.calibration == run.calibration
    assert opened.predict_links(3).equals(run.predict_links(3))


def test_tasks_of_nodes_have_no_calibration() -> None:
    run = strobe.train(make_graph(), "tgcn", "regression", epochs=1)
    assert run.calibration is None
    assert "calibration_error" not in run.to_json()


@pytest.mark.ranks
def test_run_of_two_ranks_has_the_calibration_of_one() -> None:
    one, two = (trained(make_graph(), precision="float64", ranks=ranks).calibration for ranks in (1, 2))
    assert one is not None
    assert two is not None
    assert two.calibration.slope == pytest.approx(one.calibration.slope, rel=1e-6)
    assert two.error == pytest.approx(one.error, rel=1e-6)
