from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import strobe
from strobe.engine import DivergedError, Progress, Settings, evaluate
from strobe.engine.checkpoint.store import BEST, LAST, read_checkpoint
from strobe.engine.example_cache import ByteBudget
from strobe.engine.machine import kill_on_second_interrupt
from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph, from_edges
from strobe.models import TGCN
from strobe.tasks import TASKS, NodeRegression
from strobe.tasks.base import Examples
from strobe.tasks.regression import RegressionProblem
from strobe.view import View
from tests.support.runs import Noisy, same_tensors, small_graph


class Watched(RegressionProblem):
    """A problem that counts what it is asked, and raises where the test is asked for too early."""

    asked: Counter[int]
    test_is_secret = True

    def examples_for_loss(self, t: int, epoch: int | None, dtype: torch.dtype | None) -> Examples | None:
        if t in self.split.test and self.test_is_secret:
            raise AssertionError(f"snapshot {t} of the test was read in training")
        self.asked[t] += 1
        return super().examples_for_loss(t, epoch, dtype)

    def baselines(self, part: str) -> dict[str, dict[str, float]]:
        assert part == "validation" or not self.test_is_secret
        return super().baselines(part)


class WatchedTask(NodeRegression):
    problem: Watched

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> RegressionProblem:
        problem = Watched(self, graph, state)
        problem.asked = Counter()
        object.__setattr__(self, "problem", problem)
        return problem


class TellTheTest(Progress):
    """Lifts the secret when training is over."""

    def __init__(self, task: WatchedTask) -> None:
        self.task, self.epochs = task, 0

    def epoch(self, line: dict[str, Any]) -> None:
        self.epochs += 1

    def stage(self, what: str, done: int, total: int | None) -> None:
        if what.startswith("scoring the test"):
            self.task.problem.test_is_secret = False


def test_the_test_part_is_read_once_and_after_training() -> None:
    task = WatchedTask()
    watch = TellTheTest(task)
    run = strobe.train(small_graph(), "tgcn", task, epochs=4, progress=watch)
    assert watch.epochs == 4
    assert [task.problem.asked[t] for t in run.problem.split.test] == [1, 1]
    assert run.test


@pytest.mark.parametrize("window", [None, 2])
def test_examples_that_stay_the_same_are_made_once(window: int | None) -> None:
    task = WatchedTask()
    strobe.train(small_graph(), "tgcn", task, epochs=5, window=window, progress=TellTheTest(task))
    assert set(task.problem.asked.values()) == {1}


def test_examples_beyond_the_budget_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.engine.example_cache.ByteBudget.of_device", lambda device, fits=False: ByteBudget(0))
    task = WatchedTask()
    run = strobe.train(small_graph(), "tgcn", task, epochs=3, progress=TellTheTest(task))
    assert min(task.problem.asked[t] for t in run.problem.split.train) >= 3


def test_the_loss_falls_and_the_best_weights_are_those_of_the_best_epoch() -> None:
    run = strobe.train(small_graph(), "tgcn", "regression", epochs=30, lr=0.02)
    losses = [line["loss"] for line in run.history]
    assert losses[-1] < 0.9 * losses[0]
    scores = [line["validation"]["mse"] for line in run.history]
    assert run.best_epoch == 1 + scores.index(min(scores))
    assert run.validation["mse"] == min(scores)


def test_a_run_stops_when_validation_gets_no_better() -> None:
    run = strobe.train(small_graph(), "tgcn", "regression", epochs=100, lr=0.3, patience=2)
    assert run.epochs == run.best_epoch + 2 < 100
    assert run.stopped_early


def test_the_test_is_scored_with_the_best_weights_not_the_last(tmp_path: Path) -> None:
    run = strobe.train(small_graph(), "tgcn", "regression", out=tmp_path / "run", epochs=20, lr=0.3, patience=3)
    best, last = (read_checkpoint(tmp_path / "run" / name) for name in (BEST, LAST))
    assert run.best_epoch < run.epochs
    assert same_tensors(dict(run.model.state_dict()), dict(best["model"]))
    assert not same_tensors(dict(best["model"]), dict(last["model"]))
    assert evaluate(run).metrics == run.test


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    first, second, other = (
        strobe.train(small_graph(), Noisy, "regression", epochs=3, seed=seed).model.state_dict() for seed in (1, 1, 2)
    )
    assert same_tensors(first, second)
    assert not same_tensors(first, other)


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_trains_and_has_baselines(task: str) -> None:
    run = strobe.train(small_graph(), "tgcn", task, epochs=2, model_options={"hidden": 4})
    assert run.problem.metric in run.test
    assert run.baselines["test"]
    assert run.baselines["validation"]
    assert run.problem.metric in run.summary()


def test_models_may_be_names_modules_or_functions() -> None:
    torch.manual_seed(0)
    module = TGCN(2, 4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run = strobe.train(small_graph(), module, NodeRegression(), epochs=2)
    assert run.model is module
    assert not same_tensors(before, module.state_dict())
    made = strobe.train(small_graph(), lambda inputs: TGCN(inputs, 5), "regression", epochs=1)
    assert made.model.width == 5


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tgcn'"):
        strobe.train(small_graph(), "tgnc")
    with pytest.raises(OptionError, match=r"self\.width"):
        strobe.train(small_graph(), nn.Linear(2, 2), "regression")
    with pytest.raises(OptionError, match="not 3"):
        strobe.train(small_graph(), 3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="made already"):
        strobe.train(small_graph(), TGCN(2, 4), model_options={"hidden": 4})


class Careless(nn.Module):
    """Says that it is 4 wide, and gives the first rows and columns of that alone."""

    width = 4

    def __init__(self, rows: int | None, columns: int) -> None:
        super().__init__()
        self.layer, self.rows, self.columns = nn.Linear(2, 4), rows, columns

    def forward(self, view: View) -> Tensor:
        return self.layer(view.x)[: self.rows, : self.columns]  # type: ignore[no-any-return]


@pytest.mark.parametrize("task", ["regression", "link-prediction"])
def test_a_model_that_does_not_give_each_cell_its_width_is_refused(task: str) -> None:
    for rows, columns in ((None, 3), (5, 4), (-1, 4)):
        with pytest.raises(OptionError, match=r"Careless must give a row of width 4 for each of the view's cells"):
            strobe.train(small_graph(), Careless(rows, columns), task, epochs=1)
    whole = Careless(None, 4)
    for _ in range(2):
        strobe.train(small_graph(), whole, task, epochs=1)
    assert len(whole._forward_hooks) == 1


def test_a_graph_may_be_a_directory(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "friends")
    run = strobe.train(tmp_path / "friends", "tgcn", "regression", epochs=1)
    assert run.to_json()["graph"] == "friends"


def test_the_task_that_fits_the_labels_is_chosen() -> None:
    assert strobe.train(small_graph(), "tgcn", epochs=1).job.task.name == "classification"
    assert strobe.train(small_graph().with_labels(None), "tgcn", epochs=1).job.task.name == "regression"


class Exploding(nn.Module):
    """Finite for some passes, then infinite in its weights or in what it says."""

    width = 2

    def __init__(self, good: int, what: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.good, self.what, self.passes = good, what, 0

    def forward(self, view: Any) -> torch.Tensor:
        self.passes += self.training
        bad = self.training and self.passes > self.good
        if bad and self.what == "weight":  # finite forward, infinite backward
            said = view.x[:, :2] * self.weight + 0 * torch.sqrt(self.weight - self.weight.detach())
            return torch.as_tensor(said)
        said = view.x[:, :2] * self.weight
        return torch.as_tensor(said * torch.inf if bad else said)


@pytest.mark.parametrize("what", ["loss", "weight"])
def test_divergence_names_the_epoch_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strobe.engine.checkpoint.store.SAVE_EVERY_S", 0.0)
    with pytest.raises(DivergedError, match=rf"{what}.* in epoch 3 .*lower --lr.*--clip"):
        strobe.train(small_graph(), Exploding(2, what), "regression", out=tmp_path / "run", epochs=9)
    kept = read_checkpoint(tmp_path / "run" / LAST)
    assert kept["epoch"] in (1, 2), "the second may still have been on its way to disk"
    assert all(value.isfinite().all() for value in kept["model"].values())


def test_clipping_bounds_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = []
    clip = nn.utils.clip_grad_norm_

    def watched(weights: Any, limit: float) -> Any:
        found = clip(weights, limit)
        norms.append(float(torch.stack([p.grad.norm() for p in weights if p.grad is not None]).norm()))
        return found

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", watched)
    strobe.train(small_graph(), "tgcn", "regression", epochs=2, window=2, clip=1e-3)
    assert len(norms) == 6
    assert max(norms) <= 1.001e-3


def test_evaluations_may_be_further_apart() -> None:
    run = strobe.train(small_graph(), "tgcn", "regression", epochs=5, evaluate_every=2)
    assert ["validation" in line for line in run.history] == [False, True, False, True, False]
    seldom = strobe.train(small_graph(), "tgcn", "regression", epochs=2, evaluate_every=5)
    assert seldom.best_epoch == 2
    assert "mse" in seldom.validation


def test_settings_come_as_a_value_or_by_name() -> None:
    run = strobe.train(small_graph(), "tgcn", "regression", settings=Settings(epochs=2, lr=0.5), lr=0.1)
    assert (run.settings.epochs, run.settings.lr) == (2, 0.1)
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        strobe.train(small_graph(), "tgcn", epoch=3)


def test_progress_reports_preparation_and_every_epoch() -> None:
    stages: list[tuple[str, int, int | None]] = []
    epochs: list[int] = []

    class Noted(Progress):
        def stage(self, what: str, done: int, total: int | None) -> None:
            stages.append((what, done, total))

        def epoch(self, line: dict[str, Any]) -> None:
            epochs.append(line["epoch"])

    strobe.train(small_graph(), "tgcn", "regression", epochs=3, window=2, progress=Noted())
    preparing = [done for what, done, total in stages if what == "preparing snapshots" and total == 7]
    assert preparing == [0, 2, 4, 6, 7]
    assert epochs == [1, 2, 3]


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_is_not_waited_for() -> None:
    with kill_on_second_interrupt():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_running_averages_that_overflow_end_the_run_instead_of_scores_that_are_no_numbers() -> None:
    rng = np.random.default_rng(1)
    edges = [rng.integers(0, 9, (2, 14)) for _ in range(8)]
    weights = [np.full(14, 3e38, np.float32)] * 8
    graph = from_edges(edges, weights=weights, num_nodes=9, x=rng.normal(size=(9, 3)))
    with pytest.raises(DivergedError):
        strobe.train(graph, "mpnn-lstm", "regression", epochs=2, model_options={"hidden": 4})
