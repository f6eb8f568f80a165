"""Training on batches that ranks draw, out of what is local."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.batching import Batching, BatchSpec, Full, Groups, Hybrid, Vertices, Windows
from strobe.batching.base import StepResult
from strobe.engine.checkpoint import store
from strobe.engine.evaluation.evaluate import BackgroundScorer
from strobe.engine.run import Run
from strobe.engine.sources import khop_cache
from strobe.engine.sources.reservoir import ReservoirSource
from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, NoTimeExchange
from strobe.models import MODELS
from strobe.placement import LoadAware
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import FreeRunning, InOrder, Schedule
from strobe.schedule.base import Pacer
from strobe.sync import AllReduce, Average, Sync
from tests.support.runs import CtrlC, same_tensors, small_graph
from tests.support.trainer import Trainer, assert_same

_OBSERVE = ReservoirSource.observe
MakeTrainer = Callable[..., Trainer]

AT_ONCE = ("tgcn", "evolvegcn-o", "gat-lstm", "sage", "wd-gcn")
"""Models that convolve before they go along sequences."""


def plan_of(
    batching: Batching, *, hops: int | None = None, schedule: Schedule | None = None, sync: Sync | None = None
) -> Plan:
    return Plan(
        placement=LoadAware(),
        batching=batching,
        exchange=Exchange(structure=Cached(hops=hops), time=NoTimeExchange()),
        schedule=schedule or InOrder(),
        sync=sync or AllReduce(),
    )


@pytest.fixture
def trainer_of(monkeypatch: pytest.MonkeyPatch) -> MakeTrainer:
    def make(model: str = "tgcn", task: str = "regression") -> Trainer:
        trainer = Trainer(small_graph(), model, task)
        trainer.same_head(monkeypatch)
        return trainer

    return make


def weights(run: Run) -> dict[str, torch.Tensor]:
    named = {"model": run.model, "head": run.head}
    return {f"{part}.{name}": each for part, of in named.items() for name, each in of.state_dict().items()}


@pytest.mark.parametrize("model", MODELS)
def test_all_vertices_and_all_snapshots_are_the_full_batch(trainer_of: MakeTrainer, model: str) -> None:
    trainer = trainer_of(model)
    (one,) = trainer.train(Plan(), 1, epochs=2)
    (found,) = trainer.train(plan_of(Hybrid(snapshots=1.0, vertices=1.0)), 1, epochs=2)
    assert found.history[-1]["step"] == len(found.history), "an epoch is one step"
    assert_same([found], one)


BATCHINGS = (Full(), Windows(size=2), Hybrid(snapshots=1.0, vertices=1.0))


@pytest.mark.parametrize(
    ("model", "batching", "task", "num_ranks"),
    [
        (model, batching, *(("regression", 2), ("classification", 3))[k % 2])
        for k, (model, batching) in enumerate(product(AT_ONCE, BATCHINGS))
    ],
    ids=str,
)
def test_ranks_with_khop_caches_train_as_one_does(
    trainer_of: MakeTrainer, model: str, batching: Batching, task: str, num_ranks: int
) -> None:
    trainer = trainer_of(model, task)
    (one,) = trainer.train(Plan(batching=batching if isinstance(batching, Windows) else Full()), 1, epochs=2)
    runs = trainer.train(plan_of(batching), num_ranks, epochs=2)
    assert_same(runs, one)
    sent = {key for rank in runs[0].ranks for key in rank["sent"] if key.startswith(("forward", "backward/halo"))}
    assert not sent, "no row travels while a rank trains"


def test_seed_nodes_of_a_batch_are_targets_of_one_rank(trainer_of: MakeTrainer) -> None:
    trainer = trainer_of("tgcn")
    (one,) = trainer.train(Plan(batching=Vertices(size=7)), 1, epochs=2)
    assert_same(trainer.train(plan_of(Vertices(size=7)), 3, epochs=2), one)


def test_averaging_after_every_step_of_plain_descent_is_all_reduce(trainer_of: MakeTrainer) -> None:
    trainer, batching = trainer_of("tgcn"), Hybrid(snapshots=0.5, vertices=0.4)
    (summed, *_) = trainer.train(plan_of(batching), 2, epochs=2)
    assert_same(trainer.train(plan_of(batching, sync=Average(every=1)), 2, epochs=2), summed)


def test_batches_do_not_depend_on_the_speed_of_sampling(
    trainer_of: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, plan = (
        trainer_of("tgcn"),
        plan_of(Hybrid(snapshots=0.5, vertices=(0.3, 0.6), size_policy="random", steps_per_epoch=12)),
    )
    (one,) = trainer.train(plan, 1, epochs=2)
    ready = khop_cache.KHopCacheLoader.load_prepared_window

    def slow(hand: khop_cache.KHopCacheLoader, batch: BatchSpec) -> Any:
        time.sleep(random.uniform(0, 0.01))
        return ready(hand, batch)

    monkeypatch.setattr(khop_cache.KHopCacheLoader, "load_prepared_window", slow)
    assert_same(trainer.train(plan, 1, epochs=2), one)


@pytest.mark.parametrize("batching", [Hybrid(snapshots=0.4, vertices=0.3), Vertices(size=9, reservoir=1.0)], ids=str)
def test_every_sampled_batching_lowers_the_loss(trainer_of: MakeTrainer, batching: Batching) -> None:
    (run,) = trainer_of("tgcn").train(plan_of(batching), 1, epochs=8, optimizer="adam", lr=0.02)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


def test_sampling_is_in_the_ledger(trainer_of: MakeTrainer) -> None:
    runs = trainer_of("tgcn").train(plan_of(Hybrid(snapshots=0.4, vertices=0.3)), 2, epochs=1)
    for rank in runs[0].ranks:
        assert {"draw", "prefetch_overlapped_s"} <= set(rank["seconds"])
        assert rank["cells"] > 0


@pytest.mark.parametrize("sizes", ["fixed", "random", "learned"])
@pytest.mark.parametrize("sync", [Average(every=3), Average(every_s=0.002)], ids=str)
def test_free_running_ranks_end_with_the_same_weights(trainer_of: MakeTrainer, sizes: Any, sync: Sync) -> None:
    shares = 0.3 if sizes == "fixed" else (0.2, 0.5)
    batching = Hybrid(snapshots=0.5, vertices=shares, size_policy=sizes, steps_per_epoch=7)
    runs = trainer_of("tgcn").train(plan_of(batching, schedule=FreeRunning(), sync=sync), 3, epochs=2)
    for run in runs[1:]:
        torch.testing.assert_close(weights(run), weights(runs[0]), rtol=0, atol=0)
        assert run.test == runs[0].test


def test_free_running_ranks_with_random_delays_finish(trainer_of: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are held up at random, each for itself, all come to an end."""
    ready = khop_cache.KHopCacheLoader.load_prepared_window

    def held_up(hand: khop_cache.KHopCacheLoader, batch: BatchSpec) -> Any:
        time.sleep(random.choice((0, 0, 0.003)))
        return ready(hand, batch)

    monkeypatch.setattr(khop_cache.KHopCacheLoader, "load_prepared_window", held_up)
    trainer = trainer_of("tgcn")
    batching = Hybrid(snapshots=0.5, vertices=(0.2, 0.5), size_policy="learned", steps_per_epoch=5, memory=0.0)
    plan = plan_of(batching, schedule=FreeRunning(), sync=Average(every_s=0.004))
    for number in range(4):
        runs = trainer.train(plan, 2 + number % 2, epochs=2)
        torch.testing.assert_close(weights(runs[0]), weights(runs[-1]), rtol=0, atol=0)


def test_groups_may_run_free(trainer_of: MakeTrainer) -> None:
    plan = replace(preset("psg", size=2), schedule=FreeRunning(async_evaluation=False), sync=Average(every=2))
    runs = trainer_of("tgcn").train(replace(plan, batching=Groups(size=2, stride=1)), 3, epochs=2)
    torch.testing.assert_close(weights(runs[0]), weights(runs[2]), rtol=0, atol=0)


def test_a_generator_that_raises_stops_the_run_with_its_traceback(
    trainer_of: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, made = khop_cache.KHopCacheLoader.load_prepared_window, []

    def breaks(hand: khop_cache.KHopCacheLoader, batch: BatchSpec) -> Any:
        made.append(batch)
        if len(made) == 3:
            raise ZeroDivisionError("a generator gave up")
        return ready(hand, batch)

    monkeypatch.setattr(khop_cache.KHopCacheLoader, "load_prepared_window", breaks)
    with pytest.raises(ZeroDivisionError, match="gave up") as caught:
        trainer_of("tgcn").train(plan_of(Hybrid(snapshots=0.4, vertices=0.1)), 1)
    assert "breaks" in [entry.name for entry in caught.traceback]


def test_background_evaluation_gives_the_same_metrics_later(trainer_of: MakeTrainer) -> None:
    trainer = trainer_of("tgcn")
    batching = Hybrid(snapshots=0.5, vertices=0.3, steps_per_epoch=4)
    free = {"beside": FreeRunning(), "between": FreeRunning(async_evaluation=False)}
    plans = {name: plan_of(batching, schedule=each, sync=Average(every=4)) for name, each in free.items()}
    for num_ranks in (1, 2):
        beside, between = (trainer.train(plans[name], num_ranks, epochs=3)[0] for name in ("beside", "between"))
        assert [line["loss"] for line in beside.history] == [line["loss"] for line in between.history]
        validated = {line["epoch"]: line["validation"]["mse"] for line in between.history}
        evaluated = [line for line in beside.history if "evaluated_epoch" in line]
        judged = {line["evaluated_epoch"]: line["validation"]["mse"] for line in evaluated}
        assert judged
        assert len(validated) == len(beside.history)
        assert judged == pytest.approx({epoch: validated[epoch] for epoch in judged}, rel=1e-9)
        assert beside.best_epoch == min(judged, key=judged.__getitem__)
        assert beside.validation["mse"] == pytest.approx(judged[beside.best_epoch])


@pytest.mark.parametrize("done_in", [99, 3])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_evaluations_that_end_with_training_are_all_in_the_history(
    done_in: int, num_ranks: int, trainer_of: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation of the first epoch is done after training, or in the last epoch, whose line has its own, too."""
    poll, polls = BackgroundScorer.poll, count(1)

    def slow(scorer: BackgroundScorer, *, wait: bool = False) -> Any:
        return poll(scorer, wait=True) if wait or next(polls) == done_in else None

    monkeypatch.setattr(BackgroundScorer, "poll", slow)
    plan = plan_of(Hybrid(steps_per_epoch=2), schedule=FreeRunning(), sync=Average(every=2))
    for run in trainer_of("tgcn").train(plan, num_ranks, epochs=3):
        assert {line["epoch"]: line["evaluated_epoch"] for line in run.history if "validation" in line} == {1: 1, 3: 3}
        best = run.history[run.best_epoch - 1]
        assert run.validation == best["validation"]


def test_a_failing_background_evaluation_stops_the_run(
    trainer_of: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> Any:
        raise ZeroDivisionError("no score")

    monkeypatch.setattr("strobe.engine.evaluation.evaluate.score", breaks)
    with pytest.raises(ZeroDivisionError, match="no score"):
        trainer_of("tgcn").train(plan_of(Hybrid(), schedule=FreeRunning(), sync=Average(every=5)), 1)


@pytest.mark.parametrize("sizes", ["random", "learned"])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path: Path, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)

    def observe(source: ReservoirSource, result: StepResult, pacer: Pacer) -> None:  # no clock decides
        _OBSERVE(source, result._replace(seconds=0.01), pacer)

    monkeypatch.setattr(ReservoirSource, "observe", observe)
    batching = Hybrid(snapshots=(0.3, 0.5), vertices=0.3, size_policy=sizes, steps_per_epoch=6)
    plan = plan_of(batching, schedule=FreeRunning(async_evaluation=False), sync=Average(every=4))
    given: dict[str, Any] = {"task": "regression", "epochs": 4, "threads": 1, "plan": plan, "patience": 0}
    whole = strobe.train(small_graph(), "tgcn", **given, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), "tgcn", **given, out=tmp_path / "run", progress=CtrlC(3, 2))
    again = strobe.train(small_graph(), None, out=tmp_path / "run", resume=True)
    assert again.history[-1]["epoch"] == 4
    assert same_tensors(weights(again), weights(whole))


def test_a_cache_that_is_too_large_is_refused_with_its_size(trainer_of: MakeTrainer) -> None:
    plan = replace(plan_of(Hybrid()), exchange=Exchange(structure=Cached(memory=0.001), time=NoTimeExchange()))
    with pytest.raises(OptionError, match=r"takes [0-9.]+ (B|KiB|MiB), but only 1.0 KiB"):
        trainer_of("evolvegcn-o").train(plan, 1)


def test_pairs_are_refused_where_a_batch_has_one_end_only(trainer_of: MakeTrainer) -> None:
    with pytest.raises(OptionError, match="other end of a pair"):
        trainer_of("tgcn", "link-prediction").train(plan_of(Hybrid()), 1)
    with pytest.raises(OptionError, match="other end of a pair"):
        trainer_of("tgcn", "link-prediction").train(plan_of(Full()), 1)


def test_a_rank_without_nodes_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = strobe.from_edges([np.array([[0, 1], [1, 0]])] * 8, num_nodes=2)
    trainer = Trainer(graph, "tgcn", "regression")
    trainer.same_head(monkeypatch)
    for schedule, sync in ((InOrder(), AllReduce()), (FreeRunning(), Average(every=2))):
        plan = plan_of(Hybrid(vertices=0.5, snapshots=0.5), schedule=schedule, sync=sync)
        runs = trainer.train(plan, 3, epochs=2)
        torch.testing.assert_close(weights(runs[0]), weights(runs[2]), rtol=0, atol=0)
