"""Runs that learn while snapshots arrive: the same weights as if all had been there, whatever happens on the way."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch

from strobe import placement
from strobe.api import open_run, train, train_online
from strobe.comm import SingleRankComm
from strobe.engine.checkpoint import store
from strobe.engine.checkpoint.store import LAST, read_checkpoint
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.online.loop import OnlineConfig, train_online_on_rank
from strobe.engine.online.result import OnlineResult
from strobe.engine.online.trainer import GRAPH
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import read_lines
from strobe.engine.run import evaluate
from strobe.errors import InputError, OptionError
from strobe.graph import Degrees, DynamicGraph, PerCell, open_graph
from strobe.graph.convert import from_edges
from strobe.graph.follow import follow
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import make_task
from tests.support.kills import forked, is_running
from tests.support.ranks import as_threads
from tests.support.runs import same_tensors, small_graph

TASKS = ("regression", "link-prediction", "classification")
CHANGES: dict[str, Any] = {"fit_snapshots": 4, "threads": 1, "precision": "float64"}


def labelled_graph() -> DynamicGraph:
    """With labels of cells: where labels are of nodes, for all time, a graph that is there keeps some nodes for tests,
    which one that arrives cannot."""
    graph = small_graph()
    assert graph.labels is not None
    return graph.with_labels(PerCell(np.concatenate([np.asarray(snapshot.y) for snapshot in graph])))


def plan_of(**options: Any) -> Plan:
    plan = preset("distdy", **({"window": 3, "size": 100, "fanouts": 2} | options))
    return replace(plan, placement=placement.Online(window=3, slack=1.5))


def watching(graph: DynamicGraph, **options: Any) -> OnlineConfig:
    return OnlineConfig(
        open_source=lambda into: follow(graph, into=into), source_config={"name": "people"}, poll_s=0.01, **options
    )


def watched(graph: DynamicGraph, out: Path, task: str = "regression", **options: Any) -> OnlineResult:
    place = {name: options.pop(name) for name in ("resume", "progress") if name in options}
    chosen = watching(graph, **options)
    return train_online(chosen, "sage", task, out=out, plan=plan_of(), model_options={"hidden": 4}, **CHANGES, **place)


def path_of(result: OnlineResult) -> Path:
    assert result.path is not None
    return result.path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> OnlineResult:
    """A run over all snapshots, at ``path``."""
    return watched(small_graph(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("task", TASKS)
def test_online_and_offline_training_give_the_same_bits(tmp_path: Path, task: str) -> None:
    graph = labelled_graph()
    given: Any = make_task(task, candidates="seen") if task == "link-prediction" else task  # others depend on new nodes
    offline = train(graph, "sage", given, plan=plan_of(), model_options={"hidden": 4}, epochs=1, **CHANGES)
    learnt = len(offline.problem.split.train)
    online = watched(graph, tmp_path / "run", given, snapshots=learnt)
    assert len(online.history) == learnt
    assert same_tensors(dict(online.weights["model"]), dict(offline.model.state_dict()))
    assert same_tensors(dict(online.weights["head"]), dict(offline.head.state_dict()))
    arrived = open_graph(tmp_path / "run" / GRAPH)
    for t, snapshot in enumerate(arrived):
        assert snapshot.nodes.tolist() == graph[t].nodes.tolist()
        assert [each.tolist() for each in snapshot.edges()[:2]] == [each.tolist() for each in graph[t].edges()[:2]]


def test_every_snapshot_is_evaluated_before_it_is_trained_on(whole: OnlineResult, tmp_path: Path) -> None:
    """By the weights that a run has which stopped just before."""
    graph = small_graph()
    assert [line["epoch"] for line in whole.history] == list(range(1, 10))
    assert ["validation" in line for line in whole.history] == [False] * 3 + [True] * 6  # scales know the first four
    before = watched(graph, tmp_path / "before", snapshots=6)
    run = open_run(tmp_path / "before", graph=graph)
    assert same_tensors(dict(run.model.state_dict()), dict(before.weights["model"]))
    run.problem.split = run.problem.with_online_split(6).split
    found = evaluate(run, "validation")
    assert found.metrics == pytest.approx(whole.history[6]["validation"], rel=1e-12)
    assert found.baselines == whole.history[6]["baselines"]
    assert whole.metrics["mse"] == pytest.approx(
        sum(line["validation"]["mse"] for line in whole.history[3:]) / 6, rel=1e-12
    )


def test_ranks_train_as_one_does(tmp_path: Path) -> None:
    graph = small_graph()

    def train_on(num_ranks: int, window: int | None) -> OnlineResult:
        settings = CHANGES | {"optimizer": "sgd", "lr": 0.1, "window": window}
        plan = plan_of(size=250)
        given = TrainRequest(None, "sage", "link-prediction", {"hidden": 4}, None, settings, None, plan)
        config, out = watching(graph, snapshots=6), OutputConfig(tmp_path / str(num_ranks))
        if num_ranks == 1:
            return train_online_on_rank(config, given, out, Progress(), SingleRankComm())
        return as_threads(lambda comm: train_online_on_rank(config, given, out, Progress(), comm), num_ranks)[0]

    alone = train_on(1, None)
    for shared in (train_on(2, None), train_on(3, 3)):
        for part in ("model", "head"):
            torch.testing.assert_close(shared.weights[part], alone.weights[part], rtol=1e-9, atol=1e-12)
        losses, expected = ([line["loss"] for line in each.history] for each in (shared, alone))
        assert losses == pytest.approx(expected, rel=1e-9)
        assert shared.metrics == pytest.approx(alone.metrics, rel=1e-9)


class StopError(Exception):
    """Somebody pulls the plug."""


class Plug(Progress):
    """Pulled after ``after`` reports."""

    def __init__(self, after: int) -> None:
        self.left = after

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            raise StopError

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._count()

    def step(self, epoch: int, step: int) -> None:
        self._count()

    def epoch(self, line: dict[str, Any]) -> None:
        self._count()


def test_a_run_stopped_anywhere_resumes_to_the_same_bits(
    whole: OnlineResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small_graph()
    for number, every_s in enumerate((0.0, 1e9)):  # it saves after each snapshot, or never but at the end
        monkeypatch.setattr(store, "SAVE_EVERY_S", every_s)
        out, after, stops = tmp_path / str(number), random.Random(number), 0
        while True:
            try:
                found = watched(graph, out, resume=stops > 0, progress=Plug(after.randint(3, 14)))
                break
            except StopError:
                stops += 1
                if every_s and stops == 3:
                    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
        assert stops >= 2
        assert [line["epoch"] for line in found.history] == list(range(1, 10))
        assert [line["loss"] for line in found.history] == [line["loss"] for line in whole.history]
        assert same_tensors(dict(found.weights["model"]), dict(whole.weights["model"]))
        lines = [line for line in read_lines(out) if line["event"] == "epoch"]
        assert [line["epoch"] for line in lines] == list(range(1, 10))


def test_a_killed_run_loses_nothing(whole: OnlineResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    out, drawn = tmp_path / "killed", random.Random(1)
    lines = out / "record.jsonl"
    for resume in (False, True):
        begun = len(lines.read_bytes()) if resume else 0
        child = forked(partial(watched, small_graph(), out, resume=resume))
        while is_running(child) and not (lines.exists() and len(lines.read_bytes()) > begun):
            sleep(0.002)
        sleep(drawn.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = watched(small_graph(), out, resume=True)
    assert [line["epoch"] for line in found.history] == list(range(1, 10))
    assert same_tensors(dict(found.weights["model"]), dict(whole.weights["model"]))
    assert same_tensors(read_checkpoint(out / LAST)["optimizer"], read_checkpoint(path_of(whole) / LAST)["optimizer"])


def test_a_run_resumes_with_another_number_of_ranks(whole: OnlineResult, tmp_path: Path) -> None:
    graph, out = small_graph(), tmp_path / "run"
    given = TrainRequest(None, "sage", "regression", {"hidden": 4}, None, CHANGES, None, plan_of())
    as_threads(
        lambda comm: train_online_on_rank(watching(graph, snapshots=5), given, OutputConfig(out), Progress(), comm), 2
    )
    watched(graph, out, resume=True, snapshots=7)  # alone
    resumed = OutputConfig(out, resume=True)
    found = as_threads(
        lambda comm: train_online_on_rank(watching(graph), TrainRequest(), resumed, Progress(), comm), 2
    )[0]
    torch.testing.assert_close(found.weights["model"], whole.weights["model"], rtol=1e-6, atol=1e-8)


def test_impossible_online_runs_are_refused(tmp_path: Path) -> None:
    graph = small_graph()
    with pytest.raises(OptionError, match="take batching sampled, or windows of 1 snapshot"):
        train_online(watching(graph), "sage", out=tmp_path / "a", plan="relay")
    with pytest.raises(OptionError, match="fitted to 40"):
        train_online(watching(graph), "sage", out=tmp_path / "b", fit_snapshots=40)
    strangers = from_edges([[[2 * t], [2 * t + 1]] for t in range(9)], nodes=[[2 * t, 2 * t + 1] for t in range(9)])
    with pytest.raises(InputError, match=r"target of the training .* is known.*\n.*about the first 5 snapshots"):
        train_online(
            watching(strangers.with_features(Degrees())), "sage", "regression", out=tmp_path / "e", fit_snapshots=5
        )
    plan = replace(plan_of(), placement=placement.TimeBlocks())
    given = TrainRequest(None, "sage", None, None, None, CHANGES, None, plan)
    with pytest.raises(OptionError, match="arrive one by one: take online"):
        as_threads(
            lambda comm: train_online_on_rank(watching(graph), given, OutputConfig(tmp_path / "c"), Progress(), comm), 2
        )
    with pytest.raises(OptionError, match="say which model"):
        train_online(watching(graph), None, out=tmp_path / "d")


def test_snapshots_trained_on_are_not_a_test_part(whole: OnlineResult) -> None:
    with pytest.raises(OptionError, match="judged each snapshot before it learnt from it"):
        evaluate(path_of(whole))
    assert evaluate(path_of(whole), "all", graph=small_graph(1)).metrics
    assert open_run(path_of(whole)).predict("next").num_rows


def test_an_online_run_and_an_offline_run_resume_as_such(tmp_path: Path) -> None:
    graph = small_graph()
    watched(graph, tmp_path / "watches", snapshots=4)
    train(graph, "sage", "regression", out=tmp_path / "trains", epochs=1)
    with pytest.raises(OptionError, match=r"strobe online --resume, or train another on .*/watches/graph"):
        train(None, None, out=tmp_path / "watches", resume=True)
    with pytest.raises(OptionError, match="strobe train --resume"):
        train_online(watching(graph), None, out=tmp_path / "trains", resume=True)
    assert len(watched(graph, tmp_path / "watches", resume=True).history) == 9
