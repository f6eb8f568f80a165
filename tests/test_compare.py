from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from strobe.comm.launch.launcher import RankError
from strobe.compare import PlanResult, add_loss_differences, compare, measure_run, sort_by_epoch_time
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.exchange import Exchange, NoExchange, NoTimeExchange
from strobe.placement import BySequence
from strobe.plan import Plan
from strobe.presets import preset
from tests.support.runs import Noisy, small_graph

MISFIT = Plan(placement=BySequence(), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange()))


class FakeRun:
    """A run of two ranks, without the run: epochs of given seconds, the first of them slow."""

    def __init__(self, *seconds: float, loss: float = 0.5, plan: Plan | None = None) -> None:
        self.job = SimpleNamespace(plan=Plan() if plan is None else plan)
        self.history = [
            {"epoch": epoch, "step": 3 * epoch, "loss": loss / epoch, "train_s": took, "memory_bytes": 7}
            | {"ranks": [self._ledger(epoch, rank, took) for rank in range(2)]}
            for epoch, took in enumerate(seconds, 1)
        ]

    @staticmethod
    def _ledger(epoch: int, rank: int, took: float) -> dict[str, Any]:
        return {
            "sent": {"forward/halo": 100, "backward/halo": 50, "sync/gradients": 10},
            "seconds": {"exposed_comm_s": took / 4, "straggler_wait_s": rank * took / 4},
            "total_s": took,
            "cells": 10 * (rank + 1),
            "arcs": 20 * (rank + 1),
            "memory_bytes": 1000 * (rank + 1) - epoch,
        }


def fake(monkeypatch: pytest.MonkeyPatch, *results: FakeRun | Exception) -> list[dict[str, Any]]:
    """Lets training give these, one after the other; what it was asked for."""
    asked: list[dict[str, Any]] = []
    left = list(results)

    def train(*arguments: Any, **options: Any) -> Any:
        asked.append({"graph": arguments[0], "model": arguments[1], "task": arguments[2], **options})
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr("strobe.compare.train", train)
    return asked


def of(run: FakeRun) -> PlanResult:
    return measure_run("pts", preset("pts"), run)  # type: ignore[arg-type]


def test_the_first_epoch_warms_up_and_is_not_measured() -> None:
    found = of(FakeRun(9.0, 1.0, 2.0, 4.0))
    assert found.epoch_s == 2.0
    assert found.exposed_share == pytest.approx(1 / 4)
    assert found.sent == {"halo": 300, "gradients": 20}
    assert found.sent_bytes == 320
    assert of(FakeRun(9.0)).epoch_s == 9.0
    assert found.work_imbalance == 2.0
    assert found.compute_imbalance == pytest.approx(3 / 2)
    assert found.memory_bytes == 1999  # the rank with the most, in the epoch with the most
    assert (found.steps, found.loss) == (3, 0.125)
    values = json.loads(json.dumps(found.to_json()))
    assert Plan.from_json(values["plan"]) == preset("pts")
    assert values["sent_bytes"] == sum(values["sent"].values())


def test_one_rank_has_no_bytes_and_no_load() -> None:
    run = FakeRun(2.0, 1.0)
    for line in run.history:
        del line["ranks"]
    found = of(run)
    assert (found.sent, found.compute_imbalance, found.exposed_share) == ({}, None, None)
    assert (found.epoch_s, found.memory_bytes) == (1.0, 7)


def test_all_plans_get_the_same_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_graph().save(tmp_path / "friends")
    asked = fake(monkeypatch, FakeRun(1.0), FakeRun(1.0))
    mine = Plan()
    compare(tmp_path / "friends", "dcrnn", plans=["pss", mine], ranks=3, epochs=4, seed=7, model_options={"hops": 1})
    assert [each.pop("plan") for each in asked] == [preset("pss"), mine]
    assert asked[0] == asked[1]
    wanted = {"ranks": 3, "epochs": 4, "patience": 0, "evaluate_every": 5, "seed": 7, "model_options": {"hops": 1}}
    assert wanted.items() <= asked[0].items()
    assert asked[0]["graph"] == str(tmp_path / "friends")


def test_a_graph_in_memory_is_saved_once_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake(monkeypatch, FakeRun(1.0), FakeRun(1.0))
    compare(small_graph(), plans=["pss", "pts"])
    (path,) = {each["graph"] for each in asked}
    assert not Path(path).exists()


def test_a_plan_that_fails_has_its_reason_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = RankError("rank 1 was killed (signal 9) in epoch 2\nTraceback …", 1)
    fake(monkeypatch, StrobeError("does not fit:\n- a"), FakeRun(1.0, 1.0), dead, FakeRun(2.0, 2.0, loss=0.6))
    done: list[str] = []
    told: list[tuple[str, int, int]] = []
    found = compare(
        small_graph(),
        plans={"a": Plan(), "b": Plan(), "c": Plan(), "d": Plan()},
        on_plan=lambda *plan: told.append(plan),
        on_result=lambda result: done.append(result.name),
    )
    killed = "rank 1 was killed (signal 9) in epoch 2"
    assert [each.reason for each in found] == ["does not fit:\n- a", None, killed, None]
    assert [each.loss_difference for each in found] == [None, 0.0, None, pytest.approx(0.05)]
    assert done == ["a", "b", "c", "d"]
    assert told[0] == ("a", 1, 4)
    assert [each.name for each in sort_by_epoch_time(found)] == ["b", "d"]


def test_differences_are_to_the_first_that_ran() -> None:
    plan = Plan()
    found = add_loss_differences(
        [PlanResult(name="a", plan=plan, reason="no"), PlanResult(name="b", plan=plan, loss=2.0), of(FakeRun(1.0))]
    )
    assert [each.loss_difference for each in found] == [None, 0.0, -1.5]
    assert add_loss_differences([]) == []


def test_a_plan_is_measured_when_its_batches_have_their_order_or_it_says_that_it_was_not() -> None:
    run = FakeRun(1.0, 2.0, 3.0)
    for line in run.history[:2]:
        line["profiled"] = True
    assert (of(run).epoch_s, of(run).only_profiled) == (3.0, False)
    run.history[2]["profiled"] = True
    assert (of(run).epoch_s, of(run).only_profiled) == (2.5, True)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"plans": []}, OptionError, "no plans"),
        ({"plans": "pss"}, OptionError, "plans are a list"),
        ({"plans": ["pxx"]}, UnknownNameError, "no preset named 'pxx'"),
        ({"plans": ["pss"], "model": "tgnc"}, UnknownNameError, "did you mean 'tgcn'"),
        ({"plans": ["pss"], "model": Noisy(2)}, OptionError, "fresh weights, but this Noisy"),
        ({"plans": ["pss"], "patience": 3}, OptionError, "leave out patience"),
        ({"plans": ["pss"], "ranks": 0}, OptionError, "at least 1 rank"),
        ({"plans": ["pss"], "lrr": 1}, UnknownNameError, "did you mean 'lr'"),
    ],
)
def test_what_is_wrong_for_every_plan_is_refused_before_the_first(
    wrong: dict[str, Any], kind: type[StrobeError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake(monkeypatch)
    with pytest.raises(kind, match=words):
        compare(small_graph(), **wrong)
    assert asked == []


def test_a_rank_of_torchrun_does_not_start_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="under torchrun"):
        compare(small_graph(), plans=["pss"])


@pytest.mark.usefixtures("ranks_are_threads")
def test_exact_plans_on_two_ranks_come_to_the_same_loss() -> None:
    def model(inputs: int) -> nn.Module:
        from strobe.models import make_model

        return make_model("tgcn", inputs, hidden=4)

    found = compare(small_graph(), model, "regression", plans=["pts", "pss"], epochs=2, threads=1, precision="float64")
    assert [each.reason for each in found] == [None, None]
    assert found[1].loss_difference == pytest.approx(0, abs=1e-12)
    assert found[1].sent["relay"] > 0
    assert found[0].work_imbalance is not None
    assert all(each.memory_bytes and each.memory_bytes > 1 << 20 for each in found)
    assert sort_by_epoch_time(found)
