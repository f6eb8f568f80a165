from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from strobe.cli.options.run import read_options
from strobe.cli.options.training import model_hints, task_hints
from strobe.engine.checkpoint.store import has_checkpoint
from strobe.engine.records.run_directory import read_result
from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.graph import open_graph
from strobe.graph.datasets import catalog
from strobe.options import describe_type
from tests.support.cli_runner import run_command

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


def test_quiet_prints_only_the_result() -> None:
    shown = run("friends", *QUICK, "--quiet")
    assert "training loss" not in shown
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
        run("friends", *QUICK, "-q")
    assert {path.name for path in Path("runs").iterdir()} == {"friends-tgcn", "friends-tgcn-2"}
    run("friends", "--resume", "--epochs", 3, "-q")
    assert config("runs/friends-tgcn-2")["settings"]["epochs"] == 3
    assert config("runs/friends-tgcn")["settings"]["epochs"] == 2


def test_resume_needs_only_the_run_directory() -> None:
    run("friends", *QUICK, "--model", "dcrnn", "--model-option", "hops=1", "-o", "run", "-q")
    before = config("run")
    run("--resume", "--out", "run", "--epochs", 3, "-q")
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
    monkeypatch.setattr(
        catalog.DATASETS["collegemsg"].loader.__class__, "load", lambda self, request: open_graph(friends)
    )
    monkeypatch.setattr("strobe.graph.datasets.catalog.folders.fetch", lambda *arguments: {})
    run("CollegeMsg", *QUICK, "-o", "run", "-q")
    assert config("run")["graph"] == {"data_set": "collegemsg"}


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["fiends"], FormatError, "no graph at fiends, and no data set"),
        ([], OptionError, "give a graph"),
        (["friends", "--model", "tgnc"], UnknownNameError, "did you mean 'tgcn'"),
        (["friends", "--task", "regresion"], UnknownNameError, "did you mean 'regression'"),
        (["friends", "--model-option", "layrs=2"], UnknownNameError, "did you mean 'layers'"),
        (["friends", "--model-option", "layers=two"], OptionError, "must be a whole number, not 'two'"),
        (["friends", "--model-option", "layers"], OptionError, "name=value"),
        (["friends", "--task-option", "ahead=2"], OptionError, "give --task"),
        (["friends", "--epochs", "0"], OptionError, "epochs must be at least 1"),
        (["friends", "--device", "gpu"], OptionError, "a device is auto, cpu, cuda"),
        (["friends", "--optimizer", "adm"], OptionError, "must be adam or sgd, not 'adm'"),
        (["friends", "--resume"], FormatError, "to resume"),
        (["--resume", "--out", "nowhere"], FormatError, "there is no run at nowhere"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_written(
    arguments: list[str], kind: type[StrobeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run(*arguments)
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    assert not Path("nowhere").exists()


PROGRAM = [str(Path(sys.executable).with_name("strobe")), "train", "friends", "--task", "regression", "--out", "run"]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_exits_with_130_and_prints_how_to_resume() -> None:
    arguments = [*PROGRAM, "--epochs", "1000000", "--patience", "0"]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        deadline = monotonic() + 60
        while not has_checkpoint(Path("run")):
            assert monotonic() < deadline
            assert running.poll() is None, running.communicate()
            sleep(0.05)
        os.kill(running.pid, signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)
    finally:
        running.kill()  # a million epochs
    assert running.returncode == 130, stderr
    assert stdout == ""
    assert "resume with: strobe train --resume --out run" in stderr
    assert "Traceback" not in stderr
    assert "unfinished files" not in stderr
    shown = run("--resume", "--out", "run", "--epochs", 1_000_000, "--patience", 1, "-q")
    assert "stopped early" in shown


def test_errors_exit_with_2_and_one_sentence() -> None:
    done = subprocess.run(PROGRAM[:2], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: give a graph to train on")
    assert done.stderr.count("\n") == 1


def test_options_are_parsed_by_their_types() -> None:
    hints = {"a": int, "b": float, "c": bool, "d": int | None, "e": list[int], "f": str}
    pairs = ["a=1_000", "b=1e-3", "c=no", "d=none", "e=8,16", "f=x=y"]
    found = read_options(pairs, hints, "nothing")
    assert found == {"a": 1000, "b": 1e-3, "c": False, "d": None, "e": (8, 16), "f": "x=y"}
    assert read_options(["d=3"], hints, "nothing") == {"d": 3}
    for wrong in ("a=1.5", "b=x", "c=maybe", "d=x", "e=1,x"):
        with pytest.raises(OptionError, match="must be"):
            read_options([wrong], hints, "nothing")
    assert describe_type(int | None) == "a whole number or none"
    assert read_options(["target=labels"], task_hints("regression"), "it") == {"target": "labels"}
    with pytest.raises(OptionError, match="degrees or features or labels, not 'lables'"):
        read_options(["target=lables"], task_hints("regression"), "it")
    assert "inputs" not in model_hints("tgcn")


def test_window_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="--batching windows:size=3 and --window 2 both cut snapshots"):
        run("friends", "--window", 2, "--batching", "windows:size=3")
