from __future__ import annotations

from pathlib import Path

import pytest

import strobe
from strobe.api import open_run
from strobe.engine import Run, evaluate
from strobe.errors import FormatError, OptionError, UnknownNameError
from strobe.graph.synthetic import Social
from strobe.tasks import TASKS, make_task
from tests.support.runs import Noisy, small_graph


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("evaluate")
    small_graph().save(folder / "friends")
    return strobe.train(folder / "friends", "tgcn", "regression", out=folder / "run", epochs=4, window=3)


def test_a_directory_scores_as_the_run_did_to_the_bit(run: Run) -> None:
    assert run.path is not None
    for part, scores in (("test", run.test), ("validation", run.validation)):
        assert evaluate(run.path, part).metrics == evaluate(run, part).metrics == scores
        assert evaluate(run.path, part).baselines == run.baselines[part]


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("model", ["tgcn", "gcn", "sage", "dysat", "mpnn-lstm", "evolvegcn-o"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_scores_between_epochs_are_those_of_evaluation_to_the_bit(
    tmp_path: Path, task: str, model: str, window: int | None
) -> None:
    small_graph().save(tmp_path / "friends")
    options = {"span": 2} if model in ("sage", "dysat") else None
    trained = strobe.train(
        tmp_path / "friends", model, task, out=tmp_path / "run", epochs=2, window=window, model_options=options
    )
    line = trained.history[trained.best_epoch - 1]
    assert evaluate(tmp_path / "run", "validation").metrics == line["validation"]
    assert evaluate(tmp_path / "run", "test").metrics == trained.test


@pytest.mark.parametrize("task", list(TASKS))
def test_evaluation_again_scores_the_same_examples(tmp_path: Path, task: str) -> None:
    small_graph().save(tmp_path / "friends")
    trained = strobe.train(tmp_path / "friends", "tgcn", task, out=tmp_path / "run", epochs=1, seed=3)
    assert evaluate(tmp_path / "run").metrics == trained.test


def test_all_of_another_graph_is_scored(run: Run) -> None:
    assert run.path is not None
    found = evaluate(run.path, "all", graph=small_graph(7))
    assert found.snapshots == (0, 9)
    assert found.metrics != evaluate(run, "all").metrics
    assert found.baselines["last value"]["mse"] > 0
    assert evaluate(run, graph=small_graph(7)).metrics == evaluate(run.path, graph=small_graph(7)).metrics
    assert run.problem.split.train == range(6)  # asking about all changed nothing


def test_scores_of_the_training_part_are_better_than_before_training(run: Run) -> None:
    fresh = strobe.train(small_graph(), "tgcn", "regression", epochs=1, lr=1e-9)
    assert evaluate(run, "train").metrics["mse"] < evaluate(fresh, "train").metrics["mse"]


def test_what_cannot_be_evaluated_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'test'"):
        evaluate(run, "tset")
    with pytest.raises(FormatError, match="there is no run at"):
        evaluate(tmp_path)
    strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "own", epochs=1)
    with pytest.raises(OptionError, match="none of Strobe's own"):
        evaluate(tmp_path / "own", graph=small_graph())
    with pytest.raises(OptionError, match="give that graph"):
        evaluate(tmp_path / "own", model=Noisy)
    assert evaluate(tmp_path / "own", graph=small_graph(), model=Noisy).metrics


def test_an_opened_run_knows_how_it_went(run: Run) -> None:
    assert run.path is not None
    opened = open_run(run.path)
    assert opened.best_epoch == run.best_epoch
    assert [line["loss"] for line in opened.history] == [line["loss"] for line in run.history]
    assert opened.to_json()["test"] == run.test


@pytest.mark.parametrize("task", ["link-prediction", "link-ranking"])
@pytest.mark.parametrize("pair_features", [True, False])
def test_baselines_of_scored_examples_equal_those_of_the_problem(task: str, pair_features: bool) -> None:
    graph = Social(nodes=60, snapshots=12, edges=40).write()
    run = strobe.train(graph, "tgcn", make_task(task, pair_features=pair_features, calibrate=False), epochs=1)
    for part in ("validation", "test"):
        assert run.baselines[part] == run.problem.baselines(part)
