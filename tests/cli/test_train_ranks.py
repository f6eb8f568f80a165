"""``strobe train`` with several ranks: what it tells the engine, how it fails, and a few that really run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import strobe.engine
from strobe.cli import main
from strobe.cli.train import RunFailedError
from strobe.comm.base import CommError
from strobe.comm.launch import RankError
from strobe.engine.checkpoint import LAST
from strobe.engine.record import CONFIG, read_lines
from strobe.graph.synthetic import Social
from strobe.io.atomic import write_json
from strobe.plan import Plan, PlanError
from strobe.presets import preset

STROBE = str(Path(sys.executable).with_name("strobe"))
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SMALL = ("--task", "regression", "--hidden", "4", "--threads", "1")


@pytest.fixture(autouse=True)
def friends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph called friends in the directory the command runs in."""
    monkeypatch.chdir(tmp_path)
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True).write().save("friends")
    return tmp_path / "friends"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main.app, ["train", *map(str, arguments)], env={"COLUMNS": "80"})


def fake_training(
    monkeypatch: pytest.MonkeyPatch, ends_with: BaseException, begins: Path | None = None
) -> dict[str, Any]:
    """Lets training end with an error, where it ``begins`` after its configuration was written; what it was asked
    for."""
    asked: dict[str, Any] = {}

    def train(**options: Any) -> None:
        if begins is not None:
            write_json(begins / CONFIG, {})
        asked.update(options)
        raise ends_with

    monkeypatch.setattr(strobe.engine, "train", train)
    return asked


def test_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_training(monkeypatch, CommError("rank 0 stopped"))
    run("friends", "--ranks", 3, "--plan", "pss", "--time", "shuffle", "--deadline", 7, "--max-restarts", 2)
    wanted = {"ranks": 3, "deadline_s": 7.0, "max_restarts": 2}
    assert wanted.items() <= asked.items()
    assert asked["plan"].exchange.time.name == "shuffle"
    assert asked["plan"].placement == preset("pss").placement
    asked.clear()
    run("friends", "--time", "relay:groups=2")
    assert asked["plan"].placement == Plan().placement
    assert "ranks" not in asked


def test_a_bad_plan_is_refused_with_all_conflicts_before_any_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_ranks(*arguments: Any, **options: Any) -> None:
        raise AssertionError("no process may start")

    monkeypatch.setattr("strobe.engine.launch.run_ranks", run_ranks)
    error = run("friends", "--ranks", 2, "--structure", "none", "--time", "none").exception
    assert isinstance(error, PlanError)
    assert str(error).count("Choose ") == 2
    assert "needs whole snapshots" in str(error)
    assert "needs whole sequences" in str(error)
    assert not Path("runs").exists()


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    """The exit code of the program and what it said to stderr."""
    monkeypatch.setattr(sys, "argv", ["strobe", "train", "friends", "-o", "run", *arguments])
    with pytest.raises(SystemExit) as left:
        main.run()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [RankError("rank 1 was killed (signal 9) in epoch 2", 1), CommError("rank 0 stopped in epoch 2: relay")]
)
def test_a_rank_that_fails_ends_with_3_and_one_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_training(monkeypatch, error)
    assert ended(monkeypatch, capsys) == (3, f"error: {error}\n")


def test_a_failure_says_how_to_go_on_where_there_is_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RankError("rank 1 failed in epoch 2\nTraceback", 1)
    monkeypatch.setattr("strobe.engine.checkpoint.has_checkpoint", lambda path: path == Path("run"))
    Path("run").mkdir()
    how = "go on with: strobe train --resume --out run"
    fake_training(monkeypatch, error, begins=Path("run"))
    for said in ([], ["--overwrite"]):  # the second time in place of the first
        code, told = ended(monkeypatch, capsys, *said)
        assert code == 3
        assert told.splitlines()[-1] == how
    fake_training(monkeypatch, error)
    assert how not in ended(monkeypatch, capsys, "--overwrite")[1]  # what is there is the run before


def test_what_a_rank_refuses_ends_with_2_as_if_it_had_been_refused_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_training(monkeypatch, RankError("the loss in epoch 2 is not a finite number: try a lower --lr", 1))
    assert ended(monkeypatch, capsys) == (2, "error: the loss in epoch 2 is not a finite number: try a lower --lr\n")


def test_a_rank_of_torchrun_says_which_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    fake_training(monkeypatch, CommError("rank 3 stopped"))
    assert ended(monkeypatch, capsys) == (3, "error in rank 3: rank 3 stopped\n")
    fake_training(monkeypatch, KeyboardInterrupt())
    assert ended(monkeypatch, capsys) == (130, "")


def test_failures_are_no_mistakes_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_training(monkeypatch, RankError("rank 1 failed", 1))
    assert isinstance(run("friends").exception, RunFailedError)


@pytest.mark.usefixtures("ranks_are_threads")
def test_two_ranks_train_and_show_what_each_did() -> None:
    result = run("friends", *SMALL, "--epochs", 2, "--ranks", 2, "--plan", "pss", "-o", "run")
    assert result.exit_code == 0, (result.output, result.exception)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2 ranks on cpu: store full, placement by-snapshot, batching full," in lines
    rows = [line.split() for line in lines if re.match(r" +[01] ", line)]
    assert [row[0] for row in rows] == ["0", "1"]
    assert "training 2 epochs of 1 step on 2 ranks" in result.stderr
    kept = json.loads(Path("run/result.json").read_text())
    assert len(kept["ranks"]) == 2
    sent = sum(sum(rank["sent"].values()) for rank in kept["ranks"])
    assert sent > 0
    assert any(line.startswith("sent in an epoch: relay ") for line in lines)


def children(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_killed_rank_ends_all_with_3_and_the_run_goes_on_with_as_many(request: pytest.FixtureRequest) -> None:
    program = [STROBE, "train", "friends", *SMALL, "--ranks", "2", "--epochs", "1000000", "--patience", "0"]
    running = subprocess.Popen([*program, "-o", "run"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until = monotonic() + 120
    while not any(Path("run", LAST).glob("epoch-*")):
        assert monotonic() < until
        assert running.poll() is None, running.communicate()
        sleep(0.05)
    ranks = children(running.pid)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (3, ""), stderr
    (told,) = (line for line in stderr.splitlines() if line.startswith("error:"))
    assert re.match(r"error: rank 1 was killed \(signal 9\) in epoch \d+, step 1, \w+", told)
    assert stderr.splitlines()[-1] == "go on with: strobe train --resume --out run"
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    epoch = max(line["epoch"] for line in read_lines(Path("run")) if line["event"] == "epoch")
    request.getfixturevalue("ranks_are_threads")
    result = run("--resume", "--out", "run", "--epochs", epoch + 1, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert (found["epochs"], len(found["ranks"])) == (epoch + 1, 2)


def test_under_torchrun_one_rank_prints() -> None:
    program = [TORCHRUN, "--nproc-per-node", "2", "-m", "strobe", "train", "friends", *SMALL, "--epochs", "1", "--json"]
    done = subprocess.run([*program, "-o", "run"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert len(json.loads(done.stdout)["ranks"]) == 2
    assert done.stderr.count("training 1 epoch of 1 step on 2 ranks") == 1
