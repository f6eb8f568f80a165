from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import strobe
from strobe.engine import checkpoint
from strobe.engine.checkpoint import Checkpoints, State, read
from strobe.engine.settings import Settings
from strobe.errors import FormatError, OptionError
from tests.engine.runs import CtrlC, Noisy, same_checkpoints, small_graph

CHOSEN: dict[str, Any] = {"window": 2, "clip": 1.0, "patience": 0}


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "unstopped"
    strobe.train(small_graph(), Noisy, "regression", out=path, epochs=6, **CHOSEN)
    return path


def epochs_of(path: Path) -> list[int]:
    lines = [json.loads(line) for line in (path / "record.jsonl").read_text().splitlines()]
    return [line["epoch"] for line in lines if line["event"] == "epoch"]


def test_three_epochs_and_three_more_end_with_the_bits_of_six(unstopped: Path, tmp_path: Path) -> None:
    strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=3, **CHOSEN)
    assert not same_checkpoints(tmp_path / "run", unstopped)
    resumed = strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True, epochs=6)
    assert same_checkpoints(tmp_path / "run", unstopped)
    assert epochs_of(tmp_path / "run") == [line["epoch"] for line in resumed.history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("at", [(1, 1), (3, 2), (6, 3)])
def test_ctrl_c_within_an_epoch_costs_that_epoch_only(unstopped: Path, tmp_path: Path, at: tuple[int, int]) -> None:
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=6, progress=CtrlC(*at), **CHOSEN)
    assert epochs_of(tmp_path / "run") == list(range(1, at[0]))
    strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True)
    assert same_checkpoints(tmp_path / "run", unstopped)


def test_epochs_after_the_last_checkpoint_are_repeated(
    unstopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 1e9)  # the first epoch is saved, then none
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), Noisy, "regression", out=tmp_path / "run", epochs=6, progress=CtrlC(5, 1), **CHOSEN)
    assert epochs_of(tmp_path / "run") == [1, 2, 3, 4]
    assert read(tmp_path / "run" / "last.pt")["epoch"] == 1
    strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True)
    assert epochs_of(tmp_path / "run") == [1, 2, 3, 4, 5, 6]
    assert same_checkpoints(tmp_path / "run", unstopped)


KILLED = """
import os, signal, sys
import strobe
from strobe.engine import Progress, checkpoint
from tests.engine.runs import Noisy, small_graph
checkpoint.SAVE_EVERY_S = 0.0
class Kill(Progress):
    def step(self, epoch, step):
        if (epoch, step) == (4, 2):
            os.kill(os.getpid(), signal.SIGKILL)
strobe.train(small_graph(), Noisy, "regression", out=sys.argv[1], epochs=6, window=2, clip=1.0, patience=0,
             progress=Kill())
"""


def test_a_killed_process_is_gone_on_with(unstopped: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run")], cwd=root, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert epochs_of(tmp_path / "run") == [1, 2, 3]
    strobe.train(small_graph(), Noisy, out=tmp_path / "run", resume=True)
    assert same_checkpoints(tmp_path / "run", unstopped)


def a_state() -> State:
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    return State(model, head, torch.optim.Adam([*model.parameters(), *head.parameters()]))


def test_judging_copies_the_best_weights_and_counts_the_rest() -> None:
    state = a_state()
    for epoch, value in enumerate([3.0, 1.0, 2.0, 1.0], 1):
        with torch.no_grad():
            state.head.bias.fill_(epoch)  # type: ignore[operator]
        state.epoch = epoch
        state.judge(value, higher_is_better=False)
    assert (state.best, state.best_epoch, state.stale) == (1.0, 2, 2)
    state.use_best()
    assert state.head.state_dict()["bias"].item() == 2


def test_a_higher_metric_may_be_the_better_one() -> None:
    state = a_state()
    for epoch, value in enumerate([0.5, 0.7, 0.6], 1):
        state.epoch = epoch
        state.judge(value, higher_is_better=True)
    assert (state.best, state.best_epoch, state.stale) == (0.7, 2, 1)


def test_a_checkpoint_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, kept = a_state(), Checkpoints(tmp_path)
    kept.save(state, now=True)
    before = (tmp_path / "last.pt").read_bytes()

    def full(value: object, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        kept.save(state, now=True)
    assert (tmp_path / "last.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_a_damaged_checkpoint_is_named(unstopped: Path, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes((unstopped / "last.pt").read_bytes()[:-500])
    with pytest.raises(FormatError, match=r"last\.pt is damaged"):
        read(tmp_path / "last.pt")


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a checkpoint ran code",))


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    torch.save({"model": _Evil()}, tmp_path / "last.pt")
    with pytest.raises(FormatError, match="damaged"):
        read(tmp_path / "last.pt")


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
    tmp_path: Path, graph: int, model: str, changes: dict[str, Any], words: str
) -> None:
    out = tmp_path / "run"
    strobe.train(small_graph(), "tgcn", "regression", out=out, epochs=1, model_options={"hidden": 8})
    kept = (out / "last.pt").read_bytes()
    with pytest.raises(OptionError, match="cannot go on as something else") as error:
        strobe.train(small_graph(graph), model, changes.pop("task", None), out=out, resume=True, **changes)
    assert words in str(error.value)
    assert (out / "last.pt").read_bytes() == kept


def test_settings_that_decide_nothing_may_change() -> None:
    free = Settings(epochs=7, patience=1, recompute=2, device="cpu", threads=1)
    assert free.fixed() == Settings().fixed()


def test_a_metric_that_is_no_number_is_never_the_best() -> None:
    model = nn.Linear(1, 1)
    state = State(model, nn.Identity(), torch.optim.Adam(model.parameters()))
    for epoch, value in enumerate([float("nan"), 0.5, float("nan"), 0.4], 1):
        state.epoch = epoch
        state.judge(value, higher_is_better=False)
    assert (state.best, state.best_epoch, state.stale) == (0.4, 4, 0)
