from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

import pytest

from strobe.cli import main
from strobe.cli.options.run import read_options
from strobe.cli.options.training import option_hints
from strobe.engine.checkpoint.store import has_checkpoint
from strobe.engine.records.run_directory import read_lines, read_result
from strobe.errors import OptionError
from strobe.graph import open_graph
from strobe.graph.datasets import catalog
from tests.support.cli_runner import run_command
from tests.support.kills import forked

QUICK = ("--epochs", 2, "--hidden", 4, "--task", "regression")


pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object) -> str:
    return run_command("train", *arguments).stdout


def config(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    return found


def test_output_fits_80_columns_and_compares_with_baselines() -> None:
    shown = run("friends", *QUICK)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "\x1b" not in shown
    for words in ("training loss", "validation mse", "tgcn on friends, regression", "last value", "2 epochs in"):
        assert words in shown
    assert "than last value" in shown


def test_json_is_one_line_and_nothing_else() -> None:
    shown = run("friends", *QUICK, "--json")
    assert shown.count("\n") == 1
    found = json.loads(shown)
    assert found["run"] == "runs/friends-tgcn"
    assert found["test"]["mse"] > 0
    assert found == read_result(Path("runs/friends-tgcn"))


def test_runs_without_out_are_numbered_and_the_latest_is_resumed() -> None:
    for _ in range(2):
        assert "training loss" not in run("friends", *QUICK, "-q")
    assert {path.name for path in Path("runs").iterdir()} == {"friends-tgcn", "friends-tgcn-2"}
    run("friends", "--resume", "--epochs", 3, "-q")
    assert config("runs/friends-tgcn-2")["settings"]["epochs"] == 3
    assert config("runs/friends-tgcn")["settings"]["epochs"] == 2


def test_resume_needs_only_the_run_directory() -> None:
    run("friends", *QUICK, "--model", "dcrnn", "--model-option", "hops=1", "-o", "run", "-q")
    before = config("run")
    run("--resume", "--out", "run", "--epochs", 3, "--model-option", "hops=1", "--hidden", 4, "-q")
    after = config("run")
    assert after["model"] == before["model"] == {**after["model"], "name": "dcrnn"}
    assert after["model"]["options"] == {"hidden": 4, "hops": 1}
    assert after["settings"] == before["settings"] | {"epochs": 3}
    assert json.loads(Path("run/result.json").read_text())["epochs"] == 3


def test_options_reach_the_settings_the_model_and_the_task() -> None:
    chosen = ["--lr", 0.02, "--window", 3, "--clip", 1, "--patience", 5, "--seed", 7, "--threads", 1]
    chosen += ["--fit-snapshots", 7, "--eval-history", 3]
    chosen += ["--optimizer", "sgd", "--precision", "float64"]
    chosen += ["--model-option", "layers=2", "--task-option", "ahead=2", "--task-option", "from-last=no"]
    run("friends", *QUICK, *chosen, "-o", "run", "-q")
    found = config("run")
    assert found["model"]["options"] == {"hidden": 4, "layers": 2}
    assert (found["task"]["ahead"], found["task"]["from_last"]) == (2, False)
    wanted: dict[str, Any] = {"lr": 0.02, "window": 3, "clip": 1.0, "patience": 5, "seed": 7, "threads": 1}
    wanted |= {"optimizer": "sgd", "precision": "float64", "fit_snapshots": 7, "eval_history": 3}
    assert wanted.items() <= found["settings"].items()


def test_data_set_is_trained_on_by_name(monkeypatch: pytest.MonkeyPatch, friends: Path) -> None:
    monkeypatch.delenv("STROBE_DATA", raising=False)
    monkeypatch.setattr(
        catalog.DATASETS["collegemsg"].loader.__class__, "load", lambda self, request: open_graph(friends)
    )
    monkeypatch.setattr("strobe.graph.datasets.catalog.folders.fetch", lambda *arguments: {})
    run("CollegeMsg", *QUICK, "-o", "run", "-q")
    assert config("run")["graph"] == {"data_set": "collegemsg"}


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_exits_with_130_and_prints_how_to_resume() -> None:
    endless = ("--task", "regression", "--epochs", "1000000", "--patience", "0", "--threads", "1")

    def program() -> None:
        sys.argv = ["strobe", "train", "friends", *endless, "--out", "run"]
        with Path("stdout").open("w") as sys.stdout, Path("stderr").open("w") as sys.stderr:
            main.run()

    running = forked(program)
    deadline = monotonic() + 60
    while not has_checkpoint(Path("run")):
        assert monotonic() < deadline
        sleep(0.05)
    os.kill(running, signal.SIGINT)
    _, status = os.waitpid(running, 0)
    stdout, stderr = Path("stdout").read_text(), Path("stderr").read_text()
    assert os.waitstatus_to_exitcode(status) == 130, stderr
    assert stdout == ""
    assert "resume with: strobe train --resume --out run" in stderr
    assert "Traceback" not in stderr
    assert "unfinished files" not in stderr
    epochs = 1 + max(line["epoch"] for line in read_lines(Path("run")) if line["event"] == "epoch")
    assert json.loads(run("--resume", "--out", "run", "--epochs", epochs, "--json"))["epochs"] == epochs


def test_options_are_parsed_by_their_types() -> None:
    hints = {"a": int, "b": float, "c": bool, "d": int | None, "e": list[int], "f": str, "g": Literal["x", "y"]}
    pairs = ["a=1_000", "b=1e-3", "c=no", "d=none", "e=8,16", "f=x=y", "g=y"]
    found = read_options(pairs, hints, "nothing")
    assert found == {"a": 1000, "b": 1e-3, "c": False, "d": None, "e": (8, 16), "f": "x=y", "g": "y"}
    assert read_options(["d=3"], hints, "nothing") == {"d": 3}
    for wrong in ("a=1.5", "b=x", "c=maybe", "d=x", "e=1,x", "g=z"):
        with pytest.raises(OptionError, match="must be"):
            read_options([wrong], hints, "nothing")
    assert "inputs" not in option_hints("model", "tgcn")
