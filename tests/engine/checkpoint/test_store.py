from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from shutil import copytree
from threading import Event
from typing import Any

import pytest
import torch
from torch import nn

import strobe
from strobe.batching import Groups, Hybrid, Trapezoid
from strobe.engine import Progress
from strobe.engine.checkpoint import store
from strobe.engine.checkpoint.serialization import write_tree
from strobe.engine.checkpoint.store import BEST, LAST, Checkpoints, TrainState, has_checkpoint, read_checkpoint
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.machine import random_state
from strobe.engine.run import Run
from strobe.engine.settings import Settings
from strobe.engine.train import train_on_rank
from strobe.errors import FormatError, OptionError
from strobe.exchange import Cached, Exchange, NoTimeExchange
from strobe.placement import Metis, Replicated
from strobe.plan import Plan
from strobe.schedule import Greedy
from tests.support.kills import forked
from tests.support.ranks import as_threads
from tests.support.runs import CtrlC, Noisy, same_tensors, small_graph

HYBRID = Plan(
    batching=Hybrid(snapshots=0.5, vertices=(0.2, 0.5), size_policy="random", steps_per_epoch=2),
    exchange=Exchange(structure=Cached(), time=NoTimeExchange()),
)
TRAPEZOID = Plan(placement=Metis(chunks=4), batching=Trapezoid(full=1, decayed=2, min_keep=0.5, search_every=1))
SCHEDULED = Plan(placement=Replicated(), batching=Groups(size=2), schedule=Greedy())
FIRST = "epoch-000001.safetensors"
CHOSEN: dict[str, Any] = {"window": 2, "clip": 1.0, "patience": 0}


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "unstopped"
    strobe.train(small_graph(), Noisy, "regression", out=path, epochs=6, **CHOSEN)
    return path


def same_checkpoints(first: Path, second: Path) -> bool:
    """Whether two runs ended with the same weights, optimiser, random numbers and best weights."""
    return same_tensors(read_checkpoint(first / LAST), read_checkpoint(second / LAST))


def epochs_of(path: Path) -> list[int]:
    lines = [json.loads(line) for line in (path / "record.jsonl").read_text().splitlines()]
    return [line["epoch"] for line in lines if line["event"] == "epoch"]


def test_three_epochs_and_three_more_end_with_the_bits_of_six(unstopped: Path, tmp_path: Path) -> None:
    strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=3, **CHOSEN)
    assert not same_checkpoints(tmp_path / "run", unstopped)
    resumed = strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True, epochs=6)
    assert same_checkpoints(tmp_path / "run", unstopped)
    assert epochs_of(tmp_path / "run") == [line["epoch"] for line in resumed.history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("at", [(1, 1), (6, 3)])
def test_ctrl_c_within_an_epoch_costs_that_epoch_only(unstopped: Path, tmp_path: Path, at: tuple[int, int]) -> None:
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=6, progress=CtrlC(*at), **CHOSEN)
    assert epochs_of(tmp_path / "run") == list(range(1, at[0]))
    strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True)
    assert same_checkpoints(tmp_path / "run", unstopped)


def test_epochs_after_the_last_checkpoint_are_repeated(
    unstopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 1e9)  # the first epoch is saved, then none
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=6, progress=CtrlC(5, 1), **CHOSEN)
    assert epochs_of(tmp_path / "run") == [1, 2, 3, 4]
    assert read_checkpoint(tmp_path / "run" / LAST)["epoch"] == 1
    strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True)
    assert epochs_of(tmp_path / "run") == [1, 2, 3, 4, 5, 6]
    assert same_checkpoints(tmp_path / "run", unstopped)


class Kill(Progress):
    """Kills its own process in the middle of an epoch."""

    def step(self, epoch: int, step: int) -> None:
        if (epoch, step) == (4, 2):
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_resumes_to_the_same_bits(unstopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = forked(
        lambda: strobe.train(small_graph(), Noisy, "regression", out=out, epochs=6, progress=Kill(), **CHOSEN)
    )
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert epochs_of(out) == [1, 2, 3]
    strobe.train(small_graph(), Noisy, out=out, resume=True)
    assert same_checkpoints(out, unstopped)


def assert_goes_on_with_another_number_of_ranks(folder: Path, before: int, after: int) -> None:
    chosen: dict[str, Any] = {"task": "regression", "window": 2, "precision": "float64", "threads": 1}
    small_graph().save(folder / "graph")
    unstopped = strobe.train(folder / "graph", "tgcn", epochs=2, **chosen)
    strobe.train(folder / "graph", "tgcn", epochs=1, out=folder / "run", ranks=before, **chosen)
    resumed = strobe.train(None, None, epochs=2, out=folder / "run", resume=True, ranks=after)
    assert [line["epoch"] for line in resumed.history] == [1, 2]
    assert (len(resumed.ranks) or 1) == after
    for line, wanted in zip(resumed.history, unstopped.history, strict=True):
        assert line["loss"] == pytest.approx(wanted["loss"], rel=1e-9)
        assert line["validation"]["mse"] == pytest.approx(wanted["validation"]["mse"], rel=1e-9)
    assert resumed.test["mse"] == pytest.approx(unstopped.test["mse"], rel=1e-9)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3)])
@pytest.mark.usefixtures("ranks_are_threads")
def test_a_run_resumes_with_another_number_of_ranks(tmp_path: Path, before: int, after: int) -> None:
    assert_goes_on_with_another_number_of_ranks(tmp_path, before, after)


@pytest.mark.usefixtures("ranks_are_forks")
def test_a_run_of_one_process_resumes_as_two(tmp_path: Path) -> None:
    assert_goes_on_with_another_number_of_ranks(tmp_path, 1, 2)


def test_resumed_ranks_have_the_history(tmp_path: Path) -> None:
    given = TrainRequest(small_graph(), "tgcn", "regression", changes={"epochs": 2, "threads": 1})

    def trained(resume: bool) -> list[Run]:
        place = OutputConfig(tmp_path / "run", resume=resume)
        return as_threads(lambda comm: train_on_rank(given, place, Progress(), comm), 2)

    before = trained(resume=False)
    after = trained(resume=True)  # no epoch is left, but the best is looked up on every rank
    losses = [line["loss"] for line in before[0].history]
    assert [[line["loss"] for line in run.history] for run in after] == [losses, losses]
    assert after[0].test == after[1].test


def a_state(epoch: int = 0) -> TrainState:
    """A state in the middle of a run."""
    torch.manual_seed(epoch)
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    state = TrainState(model, head, torch.optim.Adam([*model.parameters(), *head.parameters()]))
    for value in range(epoch):
        head(model(torch.rand(3, 2))).sum().backward()
        state.optimizer.step()
        state.epoch = value + 1
        state.record_metric(float(value), higher_is_better=True)
        state.history.append({"epoch": state.epoch, "loss": float(value)})
    state.random = [random_state() for _ in range(2)]
    return state


def saved(kept: Checkpoints, state: TrainState) -> dict[str, Any]:
    """What a checkpoint must give back."""
    kept.save(state)
    kept.wait()
    return without_history(state)


def without_history(state: TrainState) -> dict[str, Any]:
    return {name: value for name, value in state.state_dict().items() if name != "history"}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Checkpoints]:
    found = Checkpoints(tmp_path)
    yield found
    found.close()


def test_a_checkpoint_gives_back_all_that_was_saved(kept: Checkpoints) -> None:
    wanted = saved(kept, a_state(3))
    assert same_tensors(read_checkpoint(kept.folder / LAST), wanted)
    fresh = a_state()
    assert kept.restore(fresh)
    assert same_tensors(without_history(fresh), wanted)
    assert (fresh.epoch, fresh.best, fresh.best_epoch, fresh.evaluations_without_improvement) == (3, 2.0, 3, 0)


def test_other_ranks_load_the_state_that_rank_0_has_read() -> None:
    first, other = a_state(3), a_state()
    first.history[-1]["ranks"] = [{"bytes": 1}, {"bytes": 2}]  # what only the first rank tells of
    first.random[1] = random_state()
    here = torch.rand(4)
    other.load_state_dict(first.state_dict(), rank=1)
    assert torch.equal(torch.rand(4), here)
    assert same_tensors(other.state_dict(), first.state_dict())
    assert [line["loss"] for line in other.history] == [0.0, 1.0, 2.0]
    assert not any("ranks" in line for line in other.history)
    first.load_state_dict(first.state_dict(), rank=0)
    assert "ranks" in first.history[-1]


def test_an_additional_rank_keeps_its_random_state() -> None:
    state = a_state(1)  # of two ranks
    torch.manual_seed(7)
    wanted = torch.rand(4)
    torch.manual_seed(7)
    state.load_state_dict(state.state_dict(), rank=2)
    assert torch.equal(torch.rand(4), wanted)


def test_a_folder_without_a_checkpoint_leaves_a_state_alone(kept: Checkpoints) -> None:
    state = a_state(2)
    wanted = state.state_dict()
    assert not has_checkpoint(kept.folder)
    assert not kept.restore(state)
    assert same_tensors(state.state_dict(), wanted)
    with pytest.raises(FormatError, match="no checkpoint"):
        read_checkpoint(kept.folder / LAST)


def test_training_continues_while_a_checkpoint_is_written(kept: Checkpoints) -> None:
    state, go = a_state(2), Event()
    wanted = without_history(state)
    kept.save(state, first=go.wait)
    assert not kept.is_due()  # though every epoch may be saved
    with torch.no_grad():
        for weight in state.model.parameters():
            weight.zero_()
    state.optimizer.state.clear()
    state.random.clear()
    assert not has_checkpoint(kept.folder)
    go.set()
    kept.wait()
    assert same_tensors(read_checkpoint(kept.folder / LAST), wanted)
    assert kept.is_due()


@pytest.mark.parametrize("then", [lambda kept: kept.save(a_state(3)), Checkpoints.wait, Checkpoints.close])
def test_a_failed_write_raises_and_leaves_the_checkpoint_before(
    kept: Checkpoints, monkeypatch: pytest.MonkeyPatch, then: Callable[[Checkpoints], None]
) -> None:
    wanted = saved(kept, a_state(1))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        state = a_state(2)
        state.best_weights = None
        kept.save(state)
        with pytest.raises(OSError, match="No space"):
            then(kept)
    assert same_tensors(read_checkpoint(kept.folder / LAST), wanted)
    assert {path.name for path in kept.folder.iterdir()} == {LAST, BEST}
    assert [path.name for path in (kept.folder / LAST).iterdir()] == ["epoch-000001.safetensors"]


def test_the_two_newest_checkpoints_are_retained(kept: Checkpoints) -> None:
    for epoch in (1, 2, 9, 10):
        saved(kept, a_state(epoch))
    saved(kept, a_state(10))  # the end of a run that has just saved its last epoch
    assert sorted(path.name for path in (kept.folder / LAST).iterdir()) == [
        f"epoch-{k:06d}.safetensors" for k in (9, 10)
    ]
    assert read_checkpoint(kept.folder / BEST)["epoch"] == 10


class Killed(BaseException):
    """Not an error that anything could handle."""


class Death:
    """The process dies just before its nth step on the disk: that and all that it would do then does not happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.steps, self.after = 0, after
        for owner, name in (
            (Path, "mkdir"),
            (Path, "open"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "unlink"),
            (os, "fsync"),
        ):
            monkeypatch.setattr(owner, name, self.mortal(getattr(owner, name)))

    def mortal(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def lived(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if self.steps > self.after:
                raise Killed
            return step(*arguments, **options)

        return lived


def died_after(steps: int, folder: Path, states: list[TrainState]) -> bool:
    """Saves states; the process dies in the last. Says whether it did."""
    folder.mkdir()
    kept = Checkpoints(folder)
    for state in states[:-1]:
        saved(kept, state)
    with pytest.MonkeyPatch.context() as patch:
        Death(patch, after=steps)
        try:
            saved(kept, states[-1])
        except Killed:
            return True
        finally:
            kept.close()
    return False


def test_whenever_a_process_dies_there_is_a_whole_checkpoint(tmp_path: Path) -> None:
    states = [a_state(epoch) for epoch in (1, 2, 3)]
    wanted = {state.epoch: without_history(state) for state in states}
    found: list[int] = []
    while died_after(len(found), folder := tmp_path / str(len(found)), states):
        last = read_checkpoint(folder / LAST)
        assert same_tensors(last, wanted[last["epoch"]])
        assert read_checkpoint(folder / BEST)["epoch"] >= last["best_epoch"]
        Checkpoints(folder).remove_unfinished()
        assert all(path.name.startswith("epoch-") for path in (folder / LAST).iterdir())
        found.append(last["epoch"])
    assert found == sorted(found)  # the old one up to some step, the new one from there on
    assert {2, 3} == set(found)
    assert len(found) > 8


def damaged(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    if how == "cut off":
        path.write_bytes(content[:middle])
    else:
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["cut off", "one bit"])
def test_a_damaged_checkpoint_is_named(kept: Checkpoints, how: str) -> None:
    saved(kept, a_state(1))
    damaged(kept.folder / LAST / FIRST, how)
    state = a_state()
    before = state.state_dict()
    with pytest.raises(FormatError, match=rf"{FIRST} is damaged"):
        kept.restore(state)
    assert same_tensors(state.state_dict(), before)


def test_the_checkpoint_before_a_damaged_one_is_offered_and_not_taken(kept: Checkpoints) -> None:
    wanted = saved(kept, a_state(1))
    saved(kept, a_state(2))
    second = kept.folder / LAST / FIRST.replace("1", "2")
    damaged(second, "one bit")
    with pytest.raises(FormatError, match=rf"{FIRST}, is whole: remove {second}"):
        kept.restore(a_state())
    second.unlink()
    assert same_tensors(read_checkpoint(kept.folder / LAST), wanted)


def test_the_best_weights_if_damaged_are_named(unstopped: Path, tmp_path: Path) -> None:
    (tmp_path / BEST).write_bytes((unstopped / BEST).read_bytes()[:-500])
    with pytest.raises(FormatError, match=rf"{BEST} is damaged"):
        read_checkpoint(tmp_path / BEST)


WEIGHTS: dict[str, Any] = {"model": {"a": torch.arange(6.0)}, "head": {}, "epoch": 3, "metric": 0.5}


@pytest.mark.parametrize(
    "value", [None, [], {}, WEIGHTS | {"model": 3}, WEIGHTS | {"epoch": "x"}, WEIGHTS | {"epoch": -1}]
)
def test_forged_weights_are_refused(tmp_path: Path, value: Any) -> None:
    write_tree(tmp_path / BEST, WEIGHTS)
    assert same_tensors(read_checkpoint(tmp_path / BEST), WEIGHTS)
    write_tree(tmp_path / BEST, value)
    with pytest.raises(FormatError, match=rf"{BEST} is damaged"):
        read_checkpoint(tmp_path / BEST)


@pytest.mark.parametrize(
    ("values", "higher_is_better", "expected"),
    [
        ([3.0, 1.0, 2.0, 1.0], False, (1.0, 2, 2)),
        ([0.5, 0.7, 0.6], True, (0.7, 2, 1)),
        ([math.nan, 0.5, math.nan, 0.4], False, (0.4, 4, 0)),
    ],
)
def test_the_best_weights_are_copied_and_other_evaluations_counted(
    values: list[float], higher_is_better: bool, expected: tuple[float, int, int]
) -> None:
    state = a_state()
    for epoch, value in enumerate(values, 1):
        with torch.no_grad():
            state.head.bias.fill_(epoch)  # type: ignore[operator]
        state.epoch = epoch
        state.record_metric(value, higher_is_better=higher_is_better)
    assert (state.best, state.best_epoch, state.evaluations_without_improvement) == expected
    state.use_best()
    assert state.head.state_dict()["bias"].item() == expected[1]


@pytest.fixture(scope="module")
def trained_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Plan], Path]:
    """Runs of two epochs, one of each plan."""

    @cache
    def trained(plan: Plan) -> Path:
        out = tmp_path_factory.mktemp("runs") / "run"
        options = {"hidden": 8}
        strobe.train(small_graph(), "tgcn", "regression", out=out, epochs=2, plan=plan, model_options=options)
        return out

    return trained


@pytest.mark.parametrize(
    ("graph", "model", "changes", "words"),
    [
        (1, "tgcn", {}, "graph checksum was"),
        (0, "dcrnn", {}, "model name was 'tgcn' and is 'dcrnn'"),
        (0, "tgcn", {"model_options": {"hidden": 4}}, "model hidden was 8 and is 4"),
        (0, "tgcn", {"task": "classification"}, "task name was 'regression' and is 'classification'"),
        (0, "tgcn", {"lr": 0.5}, "setting lr was 0.01 and is 0.5"),
    ],
)
def test_a_run_cannot_go_on_as_something_else(
    trained_with: Callable[[Plan], Path], graph: int, model: str, changes: dict[str, Any], words: str
) -> None:
    out = trained_with(Plan())
    kept = read_checkpoint(out / LAST)
    with pytest.raises(OptionError, match="cannot go on as something else") as error:
        strobe.train(small_graph(graph), model, out=out, resume=True, **changes)
    assert words in str(error.value)
    assert same_tensors(read_checkpoint(out / LAST), kept)


def test_settings_that_decide_nothing_may_change() -> None:
    free = Settings(epochs=7, patience=1, recompute=2, device="cpu", threads=1)
    assert free.fixed() == Settings().fixed()


STATES: list[tuple[str, Plan, Callable[[Any], Any]]] = [
    ("source", HYBRID, lambda found: found["ranks"][0].pop("random")),
    ("source", HYBRID, lambda found: found["ranks"][0].update(reservoir=[])),
    ("source", HYBRID, lambda found: found["ranks"][0].update(size=7)),
    ("source", HYBRID, lambda found: found["ranks"][0].update(kind=7)),
    ("source", TRAPEZOID, lambda found: found["ranks"].__setitem__(0, 3)),
    ("source", TRAPEZOID, lambda found: found["ranks"][0].update(nodes={})),
    ("policy", TRAPEZOID, lambda found: found.update(min_keep=[])),
    ("policy", TRAPEZOID, lambda found: found.update(decayed=10**9)),
    ("policy", TRAPEZOID, lambda found: found.update(more=1)),
    ("source", SCHEDULED, lambda found: found["shared"].pop("epochs")),
    ("source", SCHEDULED, lambda found: found["shared"].update(steps=[[[99]]])),
    ("optimizer", SCHEDULED, lambda found: found["state"][0].pop("exp_avg")),
    ("optimizer", SCHEDULED, lambda found: found["state"][0].update(exp_avg=torch.zeros(1, 2, 3))),
    ("optimizer", SCHEDULED, lambda found: found["state"].update({99: {}})),
    ("random", SCHEDULED, lambda found: found[0].pop("torch")),
    ("epoch", SCHEDULED, lambda found: 10**12),
    ("evaluations_without_improvement", SCHEDULED, lambda found: "x"),
    ("parts", HYBRID, lambda found: found.update(source=3)),
    ("parts", HYBRID, lambda found: found["source"].pop("ranks")),
    ("parts", HYBRID, lambda found: found["source"].update(ranks=3)),
    ("parts", SCHEDULED, lambda found: found["source"].pop("shared")),
    ("parts", SCHEDULED, lambda found: found["source"].update(shared=3)),
    ("parts", TRAPEZOID, lambda found: found.update(policy=3)),
    ("parts", TRAPEZOID, lambda found: found.update(exchange=3)),
]


@pytest.mark.parametrize(("name", "plan", "forge"), STATES, ids=[f"{name}-{k}" for k, (name, *_) in enumerate(STATES)])
def test_a_forged_state_is_refused(
    trained_with: Callable[[Plan], Path], tmp_path: Path, name: str, plan: Plan, forge: Callable[[Any], Any]
) -> None:
    out = copytree(trained_with(plan), tmp_path / "run")
    found = read_checkpoint(out / LAST)
    if name in ("epoch", "evaluations_without_improvement"):
        found[name] = forge(found[name])
    else:
        forge(found["parts"][name] if name in ("source", "policy") else found[name])
    write_tree(out / LAST / FIRST.replace("1", "2"), found)
    with pytest.raises(FormatError):
        strobe.train(small_graph(), None, out=out, resume=True, epochs=3)
