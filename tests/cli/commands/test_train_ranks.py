"""``strobe train`` with several ranks."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from strobe.cli import main
from strobe.cli.commands import train as module
from strobe.comm.base import CommError
from strobe.comm.launch.launcher import RankError
from strobe.engine.records.run_directory import CONFIG
from strobe.io.atomic import write_json
from strobe.plan import Plan, PlanError
from strobe.presets import preset

SMALL = ("--task", "regression", "--hidden", "4", "--threads", "1")


pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main.app, ["train", *map(str, arguments)], env={"COLUMNS": "80"})


def fake_training(
    monkeypatch: pytest.MonkeyPatch, ends_with: BaseException, begins: Path | None = None
) -> dict[str, Any]:
    """Let training fail, after it wrote the configuration of the run ``begins``; returns its arguments."""
    arguments: dict[str, Any] = {}

    def train(**options: Any) -> None:
        if begins is not None:
            write_json(begins / CONFIG, {})
        arguments.update(options)
        raise ends_with

    monkeypatch.setattr(module, "train_model", train)
    return arguments


def test_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = fake_training(monkeypatch, CommError("rank 0 stopped"))
    run("friends", "--ranks", 3, "--plan", "pss", "--time", "shuffle", "--deadline", 7, "--max-restarts", 2)
    wanted = {"ranks": 3, "deadline_s": 7.0, "max_restarts": 2}
    assert wanted.items() <= arguments.items()
    assert arguments["plan"].exchange.time.name == "shuffle"
    assert arguments["plan"].placement == preset("pss").placement
    arguments.clear()
    run("friends", "--time", "relay:pipeline_groups=2")
    assert arguments["plan"].placement == Plan().placement
    assert "ranks" not in arguments


def test_a_bad_plan_is_refused_with_all_conflicts_before_any_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_ranks(*arguments: Any, **options: Any) -> None:
        raise AssertionError("no process may start")

    monkeypatch.setattr("strobe.engine.launch.processes.run_ranks", run_ranks)
    error = run("friends", "--ranks", 2, "--structure", "none", "--time", "none").exception
    assert isinstance(error, PlanError)
    assert str(error).count("Choose ") == 2
    assert "needs whole snapshots" in str(error)
    assert "needs whole sequences" in str(error)
    assert not Path("runs").exists()


def run_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[Any, str]:
    """Run the program; returns its exit code and stderr."""
    monkeypatch.setattr(sys, "argv", ["strobe", "train", "friends", "-o", "run", *arguments])
    with pytest.raises(SystemExit) as left:
        main.run()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RankError("rank 1 was killed (signal 9) in epoch 2", 1), 3),
        (CommError("rank 0 stopped in epoch 2: relay"), 3),
        (RankError("the loss in epoch 2 is not a finite number: try a lower --lr", 1), 2),  # a rank refused an option
    ],
)
def test_failed_run_exits_with_its_code_and_one_message(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_training(monkeypatch, error)
    assert run_program(monkeypatch, capsys) == (code, f"error: {error}\n")


def test_failure_prints_how_to_resume_if_there_is_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RankError("rank 1 failed in epoch 2\nTraceback", 1)
    monkeypatch.setattr(module, "has_checkpoint", lambda path: path == Path("run"))
    Path("run").mkdir()
    how = "resume with: strobe train --resume --out run"
    fake_training(monkeypatch, error, begins=Path("run"))
    for options in ([], ["--overwrite"]):
        code, stderr = run_program(monkeypatch, capsys, *options)
        assert code == 3
        assert stderr.splitlines()[-1] == how
    fake_training(monkeypatch, error)
    assert how not in run_program(monkeypatch, capsys, "--overwrite")[1]  # the checkpoint is of the run before


def test_errors_under_torchrun_name_the_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    fake_training(monkeypatch, CommError("rank 3 stopped"))
    assert run_program(monkeypatch, capsys) == (3, "error in rank 3: rank 3 stopped\n")
    fake_training(monkeypatch, KeyboardInterrupt())
    assert run_program(monkeypatch, capsys) == (130, "")
    monkeypatch.setattr(module, "train_model", lambda **_: None)
    assert run("friends").output == ""  # only rank 0 prints the result


@pytest.mark.usefixtures("ranks_are_threads")
def test_two_ranks_train_and_print_a_row_each() -> None:
    result = run("friends", *SMALL, "--epochs", 2, "--ranks", 2, "--plan", "pss", "-o", "run")
    assert result.exit_code == 0, (result.output, result.exception)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2 ranks on cpu: store full, placement by-snapshot, batching full," in lines
    rows = [line.split() for line in lines if re.match(r" +[01] ", line)]
    assert [row[0] for row in rows] == ["0", "1"]
    assert "training 2 epochs of 1 step on 2 ranks" in result.stderr
    result_file = json.loads(Path("run/result.json").read_text())
    assert len(result_file["ranks"]) == 2
    sent = sum(sum(rank["sent"].values()) for rank in result_file["ranks"])
    assert sent > 0
    assert any(line.startswith("sent in an epoch: relay ") for line in lines)
