from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import strobe
from strobe.batching import Full, Groups, Windows
from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Relay
from strobe.plan import Plan
from strobe.presets import PRESETS, describe, preset

SYSTEMS = re.compile(r"\b(dgc|dynahb|dygnex|distdy|flaredtdg)\b", re.IGNORECASE)

every_preset = pytest.mark.parametrize("name", PRESETS)


@every_preset
def test_preset_passes_plan_check_on_any_number_of_ranks(name: str) -> None:
    for num_ranks in (1, 2, 4, 6):
        preset(name).check(num_ranks)


@every_preset
def test_preset_round_trips_through_json(name: str) -> None:
    plan = preset(name)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@every_preset
def test_preset_documents_every_axis_on_one_screen(name: str) -> None:
    assert len(inspect.getsource(PRESETS[name]).splitlines()) <= 50
    rows = re.findall(r"^ *\| (\w+)", PRESETS[name].__doc__ or "", re.MULTILINE)
    assert rows == ["axis", "store", "placement", "batching", "structure", "time", "schedule", "sync"]


@every_preset
def test_preset_table_matches_the_plan(name: str) -> None:
    plan = preset(name)
    choices = {axis: choice.name for axis, choice in plan.axes() if axis != "exchange"}
    choices |= {"structure": plan.exchange.structure.name, "time": plan.exchange.time.name}
    table = dict(re.findall(r"^ *\| (\w+) +\| ([\w-]+)", PRESETS[name].__doc__ or "", re.MULTILINE))
    assert {axis: table[axis] for axis in choices} == choices


def test_all_presets_are_different_plans() -> None:
    plans = [str(preset(name)) for name in PRESETS]
    assert len(set(plans)) == len(plans)


def test_presets_are_described_by_name() -> None:
    described = dict(describe())
    assert list(described) == list(PRESETS)
    assert described["pss-ts"].startswith("Whole snapshots, then whole sequences")
    assert all(line.endswith(".") for line in described.values())


def test_options_change_the_plan() -> None:
    assert preset("dbos", size=3).batching == Windows(size=3)
    assert preset("psg", size=6, stride=None).batching == Groups(size=6)
    assert preset("relay").batching == Full()
    assert preset("relay", size=5, pipeline_groups=2).batching == Windows(size=5)
    assert preset("relay", pipeline_groups=2).exchange.time == Relay(pipeline_groups=2)


def test_unknown_preset_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="no preset named 'pss_ts'; did you mean 'pss-ts'"):
        preset("pss_ts")


def test_unknown_or_mistyped_option_raises() -> None:
    with pytest.raises(UnknownNameError, match="no option of preset dbos named 'window'"):
        preset("dbos", window=3)
    with pytest.raises(OptionError, match="size of preset dbos must be a whole number, not 'all'"):
        preset("dbos", size="all")


def test_strategies_do_not_name_the_systems_that_use_them() -> None:
    root = Path(strobe.__file__).parent
    axes = ("store", "placement", "batching", "exchange", "schedule", "sync", "engine", "comm", "view", "models")
    files = [file for axis in axes for file in (root / axis).rglob("*.py")] + [root / "plan.py", root / "registry.py"]
    assert len(files) > 30
    named = [
        file.name
        for file in files
        if SYSTEMS.search(re.sub(r"benchmarks[./]\w+", "", file.read_text(encoding="utf-8")))
    ]
    assert not named
