from __future__ import annotations

import json
from pathlib import Path

from strobe.cli.options.plan import read_plan
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.registry import AXES
from tests.support.cli_runner import run_command


def run(*arguments: object) -> str:
    return run_command("plans", *arguments).stdout


def test_lists_every_plan_and_choice_with_options() -> None:
    shown = run()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*PRESETS, *(choice for known in AXES.values() for choice in known)):
        assert any(line.startswith(f"{name} ") for line in lines), name
    for axis in AXES:
        assert any(line.lstrip("-").startswith(axis) for line in lines), axis
    assert "size=none pipeline_groups=16" in shown
    assert "``" not in shown
    assert "…" not in shown
    (row,) = (line for line in lines if line.startswith("pss ") and "in-order" in line)
    assert row.split()[:5] == ["pss", "by-snapshot", "full", "none", "relay"]
    assert "store full (distdy: delta)" in shown
    approximate = sum(not choice.exact for known in AXES.values() for choice in known.values())
    assert " ".join(shown.split()).count("Approximate.") == approximate


def test_one_plan_is_shown_as_a_table_of_choices_or_as_json(tmp_path: Path) -> None:
    shown = run("relay:size=4")
    assert max(len(line) for line in shown.splitlines()) <= 80
    found = [line.split()[:2] for line in shown.splitlines() if line and not line.startswith(" ")]
    assert ["batching", "windows"] in found
    assert "size=4" in shown
    assert "exact: it trains as one rank does" in shown
    assert "approximate" in run("dbov")
    (tmp_path / "mine.json").write_text(run("relay:size=4", "--json"))
    assert read_plan(str(tmp_path / "mine.json")) == preset("relay", size=4)


def test_json_of_all_is_one_line() -> None:
    shown = run("--json")
    assert shown.count("\n") == 1
    found = json.loads(shown)
    assert {each["name"]: Plan.from_json(each["plan"]) for each in found["plans"]} == {
        name: preset(name) for name in PRESETS
    }
    assert {axis: [each["name"] for each in known] for axis, known in found["choices"].items()} == {
        axis: list(known) for axis, known in AXES.items()
    }
    summaries = [each["summary"] for known in found["choices"].values() for each in known]
    assert not [text for text in summaries if text.count("(") != text.count(")")]  # no sentence ends at et al.
