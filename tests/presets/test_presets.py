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
from strobe.presets import PRESETS, preset

SYSTEMS = re.compile(r"\b(dgc|dynahb|dygnex|distdy|flaredtdg)\b", re.IGNORECASE)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_is_a_valid_plan_with_a_docstring_of_one_screen_and_a_row_per_axis(name: str) -> None:
    plan, doc = preset(name), PRESETS[name].__doc__ or ""
    for num_ranks in (1, 2, 4, 6):
        plan.check(num_ranks)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert len(inspect.getsource(PRESETS[name]).splitlines()) <= 50
    assert doc.splitlines()[0].endswith(".")
    choices = {axis: choice.name for axis, choice in plan.axes() if axis != "exchange"}
    choices |= {"structure": plan.exchange.structure.name, "time": plan.exchange.time.name}
    table = dict(re.findall(r"^ *\| (\w+) +\| ([\w-]+)", doc, re.MULTILINE))
    assert {axis: name for axis, name in table.items() if axis != "axis"} == choices


def test_all_presets_are_different_plans() -> None:
    plans = [str(preset(name)) for name in PRESETS]
    assert len(set(plans)) == len(plans)


def test_options_change_the_plan() -> None:
    assert preset("dbos", size=3).batching == Windows(size=3)
    assert preset("psg", size=6, stride=None).batching == Groups(size=6)
    assert preset("relay").batching == Full()
    assert preset("relay", size=5, pipeline_groups=2).batching == Windows(size=5)
    assert preset("relay", pipeline_groups=2).exchange.time == Relay(pipeline_groups=2)


def test_unknown_names_suggest_the_nearest_and_mistyped_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="'pss-ts'"):
        preset("pss_ts")
    with pytest.raises(UnknownNameError, match="'window'"):
        preset("dbos", window=3)
    with pytest.raises(OptionError, match="'all'"):
        preset("dbos", size="all")


def test_strategies_do_not_name_the_systems_that_use_them() -> None:
    root = Path(strobe.__file__).parent
    axes = ("store", "placement", "batching", "exchange", "schedule", "sync", "engine", "comm", "view", "models")
    files = [file for axis in axes for file in (root / axis).rglob("*.py")] + [root / "plan.py", root / "registry.py"]
    assert len(files) > 30
    texts = {file.name: re.sub(r"benchmarks[./]\w+", "", file.read_text(encoding="utf-8")) for file in files}
    assert not [name for name, text in texts.items() if SYSTEMS.search(text)]
