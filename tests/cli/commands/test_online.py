from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from strobe.api import train, train_online
from strobe.cli import main
from strobe.cli.commands import online as module
from strobe.cli.errors import RunInterruptedError
from strobe.cli.options.run_directory import RunDirectoryOptions
from strobe.cli.progress import SnapshotLines
from strobe.engine.online.loop import OnlineConfig
from strobe.engine.records.run_directory import read_lines
from strobe.errors import InputError, OptionError, StrobeError
from strobe.graph import Degrees, from_edges, open_graph
from strobe.placement import Hash
from strobe.presets import preset

EVENTS = ("--src", "payer", "--dst", "payee", "--time", "at", "--per", "day")
SMALL = ("--task", "link-prediction", "--hidden", "4", "--threads", "1", "--fit-snapshots", "4")


@pytest.fixture(autouse=True)
def payments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine days of payments in a directory called payments, where the command runs."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "payments"
    folder.mkdir()
    first = datetime(2024, 1, 1, tzinfo=UTC)
    for day in range(9):
        at = (first + timedelta(days=day)).date()
        rows = [f"u{k},u{(k * (1 + day % 2) + 1) % 12},{at}" for k in range(12)]
        write(folder / f"{at}.csv", rows)
    return folder


def write(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["payer,payee,at", *rows, ""]))


def strobe(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, ["online", *arguments])


def refused(kind: type[StrobeError], *arguments: str) -> str:
    result = strobe(*arguments)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def test_skipped_rows_are_reported(payments: Path) -> None:
    once = strobe("payments", *EVENTS, *SMALL, "--once", "--out", "run")
    assert once.exit_code == 0, once.output
    assert "trained on 8 snapshots" in once.output
    assert "2024-01-04  ap" in once.output
    assert "skipped" not in once.output
    write(payments / "later.csv", ["u1,u2,2024-01-03", "u1,u2,2024-01-11", "u1,,2024-01-11"])
    stopped = refused(InputError, "--resume", "--once", "--out", "run")
    assert "column 'payee': '' is empty" in stopped
    assert stopped.endswith("resume with: strobe online --resume --out run")
    resumed = strobe("--resume", "--once", "--skip-bad-rows", "--out", "run")
    assert "skipped 1 row that arrived too late" in resumed.output
    assert "skipped 1 bad row" in resumed.output
    assert "2024-01-10  no examples" in resumed.output
    result = json.loads(Path("run/result.json").read_text())
    assert result["source"] == {"rows": 9 * 12 + 2, "late_rows": 1, "bad_rows": 1, "comment_lines": 0}
    assert Path("run/graph.rejects.csv").exists()
    assert len(open_graph("run/graph")) == 11
    assert Path("run/online.svg").read_text().startswith("<svg")
    assert "choose another place" in refused(OptionError, "run/graph", *SMALL, "--out", "run", "--overwrite")
    assert "nothing at nowhere" in refused(InputError, "nowhere", *SMALL, "--out", "run", "--overwrite")
    assert len(open_graph("run/graph")) == 11


def test_invalid_arguments_are_refused_before_waiting_for_events(payments: Path) -> None:
    out = ("--out", "run")
    for path in payments.iterdir():
        path.unlink()
    live = ("payments", *EVENTS, *SMALL, *out)
    assert "at least 4 snapshots, not 3" in refused(OptionError, *live, "--fit-snapshots", "3")
    assert "dcrnn convolves" in refused(OptionError, *live, "--model", "dcrnn")
    assert "no labels" in refused(StrobeError, *live, "--task", "classification")
    assert "take batching sampled" in refused(OptionError, *live, "--plan", "relay")
    assert "which is followed" in refused(OptionError, *live[:-1], "payments/run")
    assert not Path("run").exists()
    assert not list(payments.iterdir())


def test_run_is_replaced_only_if_the_new_one_is_valid(payments: Path) -> None:
    assert strobe("payments", *EVENTS, *SMALL, "--once", "--out", "run").exit_code == 0
    before = contents(Path("run"))
    again = ("payments", *SMALL, "--once", "--out", "run", "--overwrite")
    wrong = refused(InputError, *again, *EVENTS[2:], "--src", "payr")
    assert "'payer'?" in wrong
    assert "resume with" not in wrong
    write(payments / "later.csv", ["u1,u2,2024-01-11", "u1,,2024-01-11"])
    assert "is empty" in refused(InputError, *again, *EVENTS)
    assert contents(Path("run")) == before
    replaced = strobe(*again, *EVENTS, "--skip-bad-rows")
    assert replaced.exit_code == 0, replaced.output
    assert "skipped 1 bad row" in replaced.output
    assert Path("run/graph.rejects.csv").exists()
    assert len(open_graph("run/graph")) == 11
    other = strobe("payments", *EVENTS, *SMALL, "--once", "--out", "other", "--skip-bad-rows")
    assert losses(Path("run")) == losses(Path("other")), other.output
    assert sorted(path.name for path in Path().iterdir()) == ["other", "payments", "run"]


def test_trained_run_stays_if_the_source_is_refused(payments: Path) -> None:
    train(from_edges([[[0, 1], [1, 2]]] * 8).with_features(Degrees()), "sage", "regression", out="run", epochs=1)
    before = contents(Path("run"))
    refused(InputError, "payments", *EVENTS[2:], "--src", "payr", *SMALL, "--out", "run", "--overwrite")
    assert contents(Path("run")) == before


WHOLE = ("--plan", "relay", "--window", "1")


def test_steps_on_whole_snapshots_are_options(payments: Path) -> None:
    update = ("--steps-per-snapshot", "3", "--validation-share", "0.4", "--patience", "1", "--reset-optimizer",
              "--replay", "1", "--replay-memory", "2")  # fmt: skip
    once = ("payments", *EVENTS, *SMALL, "--model", "roland", *WHOLE, "--once")
    run = strobe(*once, *update, "--out", "run")
    assert run.exit_code == 0, run.output
    settings = json.loads(Path("run/config.json").read_text())["settings"]
    assert (settings["steps_per_snapshot"], settings["validation_share"]) == (3, 0.4)
    assert (settings["patience"], settings["reset_optimizer"]) == (1, True)
    assert (settings["replay"], settings["replay_memory"]) == (1, 2)
    lines = [line for line in read_lines(Path("run")) if line["event"] == "epoch"]
    assert all("best_step" in line for line in lines)
    assert len(lines) < lines[-1]["step"] <= 3 * len(lines)
    write(payments / "later.csv", ["u1,u2,2024-01-11", "u2,u3,2024-01-11"])
    assert strobe("--resume", "--once", "--out", "run").exit_code == 0
    assert strobe(*once, *update, "--out", "other").exit_code == 0
    assert losses(Path("run")) == losses(Path("other"))
    assert "give --steps-per-snapshot" in refused(OptionError, *once, "--passes", "2", "--out", "a")
    assert "give validation_share" in refused(OptionError, *once, "--patience", "2", "--out", "b")
    assert "whole snapshot" in refused(OptionError, *once[:-5], "--steps-per-snapshot", "2", "--once", "--out", "c")
    assert not any(Path(name).exists() for name in "abc")


def test_a_run_started_from_python_is_resumed_there() -> None:
    graph = from_edges([[[0, 1, 2], [1, 2, 0]]] * 6).with_features(Degrees())
    options: dict[str, Any] = {"plan": "relay", "window": 1, "fit_snapshots": 4, "threads": 1}
    train_online(graph, "roland", "link-prediction", out="run", **options)
    assert "started from Python" in refused(OptionError, "--resume", "--out", "run")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def losses(run: Path) -> list[Any]:
    return [line["loss"] for line in read_lines(run) if line["event"] == "epoch"]


def test_ctrl_c_before_a_checkpoint_has_no_hint_to_resume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train_online", stopped)
    config = OnlineConfig(open_source=lambda into: pytest.fail("the source must not be opened"))
    with pytest.raises(RunInterruptedError, match="before the first checkpoint"):
        module._run_online(config, tmp_path / "run", True, RunDirectoryOptions(), {})


def test_options_override_the_plan_of_the_resumed_run() -> None:
    plan = preset("distdy", size=7)
    earlier = {"ranks": 3, "plan": plan.to_json()}
    assert module.OnlineRankOptions().to_arguments(earlier, None) == {"ranks": 3}
    passed = module.OnlineRankOptions().to_arguments(earlier, passes=4)["plan"]
    assert passed == preset("distdy", size=7, passes=4)
    hashed = module.OnlineRankOptions(placement="hash").to_arguments(None, None)["plan"]
    assert hashed == replace(preset("distdy"), placement=Hash())


def test_line_per_snapshot_has_score_and_best_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"snapshot": "2024-01-08", "train_s": 1.0, "evaluate_s": 0.5, "loss": 0.25}
    scores = {"metric": "mse", "higher_is_better": False, "validation": {"mse": 0.5}}
    baselines = {"baselines": {"mean": {"mse": 0.75}, "last value": {"mse": 0.25}}}
    lines = SnapshotLines(Console(width=200), None)
    for each in (line | scores | baselines, line, line | {"snapshot": "2024-01-08T01:00:00", "loss": None}):
        lines.epoch(each)
    assert capsys.readouterr().out.splitlines() == [
        "2024-01-08  mse 0.5000 (baseline 0.2500, last value), loss 0.2500, 1.5 s",
        "2024-01-08  not evaluated, loss 0.2500, 1.5 s",
        "2024-01-08T01:00:00  no examples, 1.5 s",
    ]
