from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strobe.cli.main import app
from strobe.cli.plan_options import read_plan
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.registry import AXES


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plans", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_every_plan_and_every_choice_is_listed_with_its_options() -> None:
    shown = run()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*PRESETS, *(choice for known in AXES.values() for choice in known)):
        assert any(line.startswith(f"{name} ") for line in lines), name
    for axis in AXES:
        assert any(line.lstrip("-").startswith(axis) for line in lines), axis
    assert "size=none groups=16" in shown
    assert "``" not in shown


def test_choices_of_plans_stand_side_by_side() -> None:
    shown = run()
    (row,) = (line for line in shown.splitlines() if line.startswith("pss ") and "in-order" in line)
    assert row.split()[:5] == ["pss", "by-snapshot", "full", "none", "relay"]
    assert "all: store full (distdy: delta), sync all-reduce (dynahb: average)" in shown
    assert "…" not in shown


def test_what_is_approximate_is_said_to_be() -> None:
    flat = " ".join(run().split())
    assert flat.count("Approximate.") == sum(not choice.exact for known in AXES.values() for choice in known.values())


def test_one_plan_is_a_table_of_its_choices() -> None:
    shown = run("relay:size=4")
    assert max(len(line) for line in shown.splitlines()) <= 80
    found = [line.split()[:2] for line in shown.splitlines() if line and not line.startswith(" ")]
    assert ["batching", "windows"] in found
    assert "size=4" in shown
    assert "exact: it trains as one rank would" in shown
    assert "approximate" in run("dbov")


@pytest.mark.parametrize("name", PRESETS)
def test_json_of_one_plan_is_a_file_that_can_be_used(name: str, tmp_path: Path) -> None:
    told = run(name, "--json")
    assert told.count("\n") == 1
    (tmp_path / "mine.json").write_text(told)
    assert read_plan(str(tmp_path / "mine.json")) == preset(name)


def test_json_of_all_is_one_line() -> None:
    told = run("--json")
    assert told.count("\n") == 1
    found = json.loads(told)
    assert {each["name"]: Plan.from_json(each["plan"]) for each in found["plans"]} == {
        name: preset(name) for name in PRESETS
    }
    assert {axis: [each["name"] for each in known] for axis, known in found["choices"].items()} == {
        axis: list(known) for axis, known in AXES.items()
    }
    summaries = [each["summary"] for known in found["choices"].values() for each in known]
    assert not [told for told in summaries if told.count("(") != told.count(")")]  # no sentence ends at et al.
