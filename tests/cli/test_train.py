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
from typer.testing import CliRunner

from strobe.cli.main import app
from strobe.cli.run_options import model_hints, read_options, task_hints
from strobe.cli.train import RunInterruptedError
from strobe.engine.checkpoint import has_checkpoint
from strobe.engine.record import read_result
from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.graph.synthetic import Social
from strobe.options import in_words

QUICK = ("--epochs", 2, "--hidden", 4, "--task", "regression")


@pytest.fixture(autouse=True)
def friends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph called friends in the directory the command runs in."""
    monkeypatch.chdir(tmp_path)
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True).write().save("friends")
    return tmp_path / "friends"


def run(*arguments: object) -> str:
    """The command's stdout; an error a user can mend is raised as in a program."""
    result = CliRunner().invoke(app, ["train", *map(str, arguments)], env={"COLUMNS": "80"})
    if isinstance(result.exception, StrobeError | RunInterruptedError):
        raise result.exception
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def config(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    return found


def test_what_is_printed_fits_80_columns_and_compares_with_trivial_answers() -> None:
    shown = run("friends", *QUICK)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "\x1b" not in shown
    for words in ("training loss", "validation mse", "tgcn on friends, regression", "last value", "2 epochs in"):
        assert words in shown
    assert "than last value" in shown


def test_quiet_prints_the_result_only() -> None:
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


def test_runs_without_a_place_are_numbered_and_the_latest_is_resumed() -> None:
    for _ in range(2):
        run("friends", *QUICK, "-q")
    assert {path.name for path in Path("runs").iterdir()} == {"friends-tgcn", "friends-tgcn-2"}
    run("friends", "--resume", "--epochs", 3, "-q")
    assert config("runs/friends-tgcn-2")["settings"]["epochs"] == 3
    assert config("runs/friends-tgcn")["settings"]["epochs"] == 2


def test_a_resumed_run_needs_nothing_but_its_place() -> None:
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
    chosen += ["--fit", 7, "--eval-history", 3]
    chosen += ["--optimiser", "sgd", "--precision", "float64"]
    chosen += ["--model-option", "layers=2", "--task-option", "ahead=2", "--task-option", "from-last=no"]
    run("friends", *QUICK, *chosen, "-o", "run", "-q")
    found = config("run")
    assert found["model"]["options"] == {"hidden": 4, "layers": 2}
    assert (found["task"]["ahead"], found["task"]["from_last"]) == (2, False)
    wanted: dict[str, Any] = {"lr": 0.02, "window": 3, "clip": 1.0, "patience": 5, "seed": 7, "threads": 1}
    wanted |= {"optimiser": "sgd", "precision": "float64", "fit": 7, "eval_history": 3}
    assert wanted.items() <= found["settings"].items()


def test_a_data_set_is_trained_on_by_name(monkeypatch: pytest.MonkeyPatch, friends: Path) -> None:
    from strobe.graph import open_graph
    from strobe.graph.datasets import catalog

    monkeypatch.setattr(
        catalog.DATA_SETS["collegemsg"].loader.__class__, "load", lambda self, request: open_graph(friends)
    )
    monkeypatch.setattr("strobe.graph.datasets.catalog.folders.fetch", lambda *arguments: {})
    run("CollegeMsg", *QUICK, "-o", "run", "-q")
    assert config("run")["graph"] == {"data_set": "collegemsg"}


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["fiends"], FormatError, "no graph at fiends, and no data set"),
        ([], OptionError, "say which graph"),
        (["friends", "--model", "tgnc"], UnknownNameError, "did you mean 'tgcn'"),
        (["friends", "--task", "regresion"], UnknownNameError, "did you mean 'regression'"),
        (["friends", "--model-option", "layrs=2"], UnknownNameError, "did you mean 'layers'"),
        (["friends", "--model-option", "layers=two"], OptionError, "must be a whole number, not 'two'"),
        (["friends", "--model-option", "layers"], OptionError, "name=value"),
        (["friends", "--task-option", "ahead=2"], OptionError, "give --task"),
        (["friends", "--epochs", "0"], OptionError, "epochs must be at least 1"),
        (["friends", "--device", "gpu"], OptionError, "a device is auto, cpu, cuda"),
        (["friends", "--optimiser", "adm"], OptionError, "must be adam or sgd, not 'adm'"),
        (["friends", "--resume"], FormatError, "to resume"),
        (["--resume", "--out", "nowhere"], FormatError, "there is no run at nowhere"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    arguments: list[str], kind: type[StrobeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run(*arguments)
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    assert not Path("nowhere").exists()


PROGRAM = [str(Path(sys.executable).with_name("strobe")), "train", "friends", "--task", "regression", "--out", "run"]


def test_ctrl_c_ends_with_130_and_says_how_to_go_on() -> None:
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
    assert "go on with: strobe train --resume --out run" in stderr
    assert "Traceback" not in stderr
    assert "what was being written is gone" not in stderr
    shown = run("--resume", "--out", "run", "--epochs", 1_000_000, "--patience", 1, "-q")
    assert "stopped early" in shown


def test_mistakes_end_with_2_and_one_sentence() -> None:
    done = subprocess.run(PROGRAM[:2], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: say which graph to train on")
    assert done.stderr.count("\n") == 1


def test_options_are_typed_by_what_they_are_for() -> None:
    hints = {"a": int, "b": float, "c": bool, "d": int | None, "e": list[int], "f": str}
    pairs = ["a=1_000", "b=1e-3", "c=no", "d=none", "e=8,16", "f=x=y"]
    found = read_options(pairs, hints, "nothing")
    assert found == {"a": 1000, "b": 1e-3, "c": False, "d": None, "e": (8, 16), "f": "x=y"}
    assert read_options(["d=3"], hints, "nothing") == {"d": 3}
    for wrong in ("a=1.5", "b=x", "c=maybe", "d=x", "e=1,x"):
        with pytest.raises(OptionError, match="must be"):
            read_options([wrong], hints, "nothing")
    assert in_words(int | None) == "a whole number or none"
    assert read_options(["target=labels"], task_hints("regression"), "it") == {"target": "labels"}
    with pytest.raises(OptionError, match="degrees or features or labels, not 'lables'"):
        read_options(["target=lables"], task_hints("regression"), "it")
    assert "inputs" not in model_hints("tgcn")


def test_a_window_that_is_said_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="--batching windows:size=3 and --window 2 both cut snapshots"):
        run("friends", "--window", 2, "--batching", "windows:size=3")
