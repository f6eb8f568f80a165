from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from strobe.cli.commands import compare as module
from strobe.cli.commands.compare import compare_table
from strobe.cli.errors import RunInterruptedError
from strobe.compare import PlanResult
from strobe.plan import Plan
from strobe.presets import preset
from tests.support.cli_runner import run_command

pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object, code: int = 0) -> Result:
    return run_command("compare", *arguments, code=code)


def done(name: str, epoch_s: float, **more: Any) -> PlanResult:
    values: dict[str, Any] = {
        "sent": {"halo": 5 << 20, "gradients": 1 << 10, "scalars": 3.0},
        "compute_imbalance": 1.25,
        "work_imbalance": None,
        "exposed_share": 0.5,
        "memory_bytes": 300 << 20,
        "loss": 0.5,
        "loss_difference": 0.0,
    }
    return PlanResult(name=name, plan=Plan(), epoch_s=epoch_s, **(values | more))


REFUSED = PlanResult(name="odd", plan=Plan(), reason="does not fit:\n- one\n- two")


def fake(monkeypatch: pytest.MonkeyPatch, *results: PlanResult, stop_after: int | None = None) -> dict[str, Any]:
    arguments: dict[str, Any] = {}

    def compare(**options: Any) -> list[PlanResult]:
        arguments.update(options)
        for number, result in enumerate(results, 1):
            options["on_plan"](result.name, number, len(results))
            options["on_result"](result)
            if number == stop_after:
                raise KeyboardInterrupt
        return list(results)

    monkeypatch.setattr(module, "compare_plans", compare)
    return arguments


def test_plan_that_only_profiled_its_batches_is_named() -> None:
    profiled, psg = done("mine.json", 0.04, only_profiled=True), done("psg", 0.04)
    assert any("mine.json only profiled" in line for line in compare_table([psg, profiled]))
    assert not any("only profiled" in line for line in compare_table([psg, done("mine.json", 0.04)]))


def test_table_has_costs_bytes_reasons_and_the_fastest() -> None:
    lines = compare_table([done("pts", 0.04), REFUSED, done("relay", 0.02, sent={"relay": 2048.0, "scalars": 3.0})])
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert rows[1] == ["pts", "40", "ms", "50%", "1.25", "–", "300.0", "MiB", "0.5000", "0"]
    bytes_at = next(k for k, line in enumerate(lines) if line.startswith("sent per epoch"))
    assert rows[bytes_at][3:] == ["halo", "relay", "other", "total"]
    assert rows[bytes_at + 1] == ["pts", "5.0", "MiB", "–", "1.0", "KiB", "5.0", "MiB"]
    assert rows[bytes_at + 2] == ["relay", "–", "2.0", "KiB", "3", "B", "2.0", "KiB"]
    assert lines[-5:-1] == ["odd did not run: does not fit:", "  - one", "  - two", ""]
    assert lines[-1] == "relay has the fastest epoch, 20 ms; the next, pts, takes 2.0 times as long"


def test_last_line_qualifies_the_fastest_plan() -> None:
    close = " ".join(compare_table([done("a", 0.1), done("b", 0.104, sent={"halo": 9.0}, loss_difference=-0.1)]))
    assert "takes 1.04 times as long, which more --epochs might change" in close
    assert "b sends the fewest bytes, 9 B" in close
    assert "losses differ where a plan takes other steps or is approximate" in close
    assert compare_table([done("a", 0.1)])[-1] == "a has the fastest epoch, 100 ms"
    assert compare_table([REFUSED])[-1] == "no plan ran"
    silent = compare_table([done("a", 0.1, sent={}, exposed_share=None, compute_imbalance=None)])
    assert not any("sent" in line for line in silent)


def test_options_reach_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = fake(monkeypatch, done("a", 0.1))
    plans = "pss,relay:size=4,pipeline_groups=2,pss"
    chosen = ["--model", "dcrnn", "--hidden", 4, "--seed", 7, "--precision", "float64", "--threads", 1]
    run("friends", "--plans", plans, "--ranks", 3, "--epochs", 2, "--deadline", 9, *chosen)
    assert arguments["plans"] == {
        "pss": preset("pss"),
        "relay:size=4,pipeline_groups=2": preset("relay", size=4, pipeline_groups=2),
        "pss (2)": preset("pss"),
    }
    wanted: dict[str, Any] = {"graph": "friends", "model": "dcrnn", "model_options": {"hidden": 4}, "ranks": 3}
    wanted |= {"epochs": 2, "deadline_s": 9.0, "seed": 7, "precision": "float64", "threads": 1}
    assert wanted.items() <= arguments.items()


def test_json_is_one_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, done("a", 0.1, loss=float("nan")), REFUSED)
    result = run("friends", "--plans", "pss,pts", "--json")
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert [each["name"] for each in found["plans"]] == ["a", "odd"]
    assert found["plans"][0]["loss"] is None
    assert found["plans"][1]["reason"] == REFUSED.reason


def test_comparison_without_a_plan_that_ran_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, REFUSED)
    result = run("friends", "--plans", "pss", code=2)
    assert "odd did not run: does not fit:" in result.stdout


def test_ctrl_c_shows_finished_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, done("a", 0.1), done("b", 0.2), stop_after=1)
    with pytest.raises(RunInterruptedError, match="stopped: 1 of 2 plans were compared"):
        run("friends", "--plans", "pss,pts")


@pytest.mark.usefixtures("ranks_are_threads")
def test_plans_are_run_and_compared() -> None:
    (Path("odd.json")).write_text('{"exchange": {"structure": "none", "time": "none"}, "placement": "hash"}')
    quick = ("--task", "regression", "--hidden", 4, "--epochs", 2, "--threads", 1)
    result = run("friends", "--plans", "odd.json,pss", "--ranks", 2, *quick)
    assert "tgcn on friends: 2 ranks, 2 epochs" in result.stdout
    assert "odd.json did not run: the plan does not fit together on 2 ranks:" in result.stdout
    assert "pss has the fastest epoch" in result.stdout
    assert "pss (2/2): training 2 epochs of 1 step on 2 ranks" in result.stderr
    assert not Path("runs").exists()
