from __future__ import annotations

import json
from pathlib import Path

import pytest

from strobe.batching import Hybrid
from strobe.cli.options.plan import RankOptions, num_ranks, override_choices, read_plan, split_plans
from strobe.engine.records.run_directory import FORMAT, VERSION
from strobe.engine.settings import Settings
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.exchange import Halo, Relay
from strobe.io.checksum import write_checksummed_json
from strobe.placement import BySnapshot, Metis
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.registry import AXES
from strobe.report.summary import choices_by_axis, format_choice
from strobe.sync import Average

DEEP = '{"exchange": {"time": "none", "structure": ' + '{"name": "stale", "inner":' * 300 + '"halo"' + "}" * 302


def test_plan_is_a_preset_with_options_or_a_file(tmp_path: Path) -> None:
    assert read_plan("relay:size=8,pipeline_groups=4") == preset("relay", size=8, pipeline_groups=4)
    assert read_plan("psg:stride=none") == preset("psg", stride=None)
    several = preset("dynahb", vertices=(0.02, 0.05), snapshots=0.5, size_policy="random")
    assert read_plan("dynahb:vertices=0.02,0.05,size_policy=random,snapshots=0.5") == several
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(preset("dbos").to_json()))
    assert read_plan(str(path)) == preset("dbos")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ("\x00\x01", "JSON"),
        ("[]", "placement"),
        ('{"batchin": "full"}', "'batching'"),
        ('{"time": "relay"}', "exchange"),
        ('{"batching": {"name": "windows", "size": "x"}}', "whole number"),
        ('{"store": true}', "store"),
        ('{"store": {"name": ["full"]}}', "store"),
        ('{"exchange": {"structure": {"name": "stale", "inner": 3}, "time": "none"}}', "structure"),
        ('{"exchange": {"structure": {"name": "stale", "inner": "relay"}, "time": "none"}}', "structure"),
        ('{"batching": {"name": "windows", "size": 1e999}}', "finite"),
        ('{"batching": {"name": "windows", "size": NaN}}', "finite"),
        ('{"batching": {"name": "windows", "size": %s}}' % ("9" * 40), "size"),
        ('{"batching": {"name": "windows", "size": %s}}' % ("9" * 5000), "mine.json"),
        ('{"batching": {"name": "hybrid", "vertices": [[0.1]]}}', "vertices"),
        ('{"store": "full", "store": "delta"}', "'store'"),
        ('{"a":' * 100_000, "nested"),
        (DEEP, "nested|inner"),
    ],
    ids=lambda text: text[:60],
)
def test_file_without_a_plan_is_refused(text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(StrobeError, match=word):
        read_plan(str(tmp_path / "mine.json"))


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("rely", UnknownNameError, "'relay'"),
        ("relay:pipline_groups=2", UnknownNameError, "'pipeline_groups'"),
        ("relay:pipeline_groups=two", OptionError, "'two'"),
        ("relay:8", OptionError, "name=value"),
        ("nowhere.json", OptionError, "nowhere.json"),
        ("placement=hsh", UnknownNameError, "'hash'"),
        ("time=rely", UnknownNameError, "'relay'"),
        ("batching=windows:siz=3", UnknownNameError, "'size'"),
        ("sync=average:every=often", OptionError, "'often'"),
    ],
)
def test_unknown_plan_or_choice_is_refused(text: str, kind: type[StrobeError], word: str) -> None:
    axis, _, choice = text.partition("=")
    with pytest.raises(kind, match=word):
        override_choices(Plan(), {axis: choice}) if axis in AXES else read_plan(text)


def test_choices_change_one_axis_each() -> None:
    plan = override_choices(preset("pss"), {"placement": "metis", "structure": "halo"})
    assert plan.placement == Metis()
    assert plan.exchange.structure == Halo()
    assert plan.exchange.time == Relay(pipeline_groups=1)  # as the preset has it
    plan = override_choices(Plan(), {"placement": "by-snapshot:round_robin=no", "batching": "hybrid:vertices=0.1"})
    assert (plan.placement, plan.batching) == (BySnapshot(round_robin=False), Hybrid(vertices=0.1))


@pytest.mark.parametrize("name", PRESETS)
def test_formatted_choice_is_parsed_back(name: str) -> None:
    plan = preset(name)
    texts = {axis: format_choice(axis, choice) for axis, choice in choices_by_axis(plan.to_json()).items()}
    assert override_choices(Plan(), texts) == plan


def test_plans_are_split_at_commas_and_keep_their_options() -> None:
    plans = ["pss", "relay:size=8,pipeline_groups=4", "relay:pipeline_groups=1", "mine.json"]
    plans += ["dynahb:vertices=0.02,0.05,size_policy=random", "relay"]
    assert split_plans(",".join(plans)) == split_plans(", ".join(plans)) == plans
    assert split_plans(",") == []


def test_choices_override_the_named_plan() -> None:
    assert RankOptions().to_arguments() == {}
    assert RankOptions(plan="pss", sync="average:every=3").to_arguments() == {
        "plan": override_choices(preset("pss"), {"sync": "average:every=3"})
    }
    assert RankOptions(
        sync="average:every=3", ranks=2, deadline=5.0, backend="gloo", max_restarts=1
    ).to_arguments() == {
        "plan": Plan(sync=Average(every=3)),
        "ranks": 2,
        "deadline_s": 5.0,
        "backend": "gloo",
        "max_restarts": 1,
    }


def test_omitted_options_are_those_of_the_resumed_run(tmp_path: Path) -> None:
    model = {"name": "tgcn", "options": {}, "by_name": True}
    rest = {"graph": None, "fingerprint": None, "model": model, "task": {"name": "regression"}, "problem": {}}
    config = {"format": FORMAT, "version": VERSION, "ranks": 3, "plan": preset("pss").to_json(), **rest}
    config["settings"] = Settings().to_json()
    write_checksummed_json(tmp_path / "config.json", config)
    assert RankOptions().to_arguments(tmp_path) == {"ranks": 3}
    assert RankOptions(ranks=2).to_arguments(tmp_path) == {"ranks": 2}
    assert RankOptions(sync="average").to_arguments(tmp_path)["plan"] == override_choices(
        preset("pss"), {"sync": "average"}
    )


def test_ranks_and_restarts_belong_to_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (num_ranks(), num_ranks(3)) == (1, 3)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert num_ranks() == 4
    assert RankOptions(ranks=4).to_arguments() == {}
    assert RankOptions().to_arguments(tmp_path / "on another host") == {}
    with pytest.raises(OptionError, match="--ranks"):
        RankOptions(ranks=2).to_arguments()
    with pytest.raises(OptionError, match="--max-restarts"):
        RankOptions(max_restarts=2).to_arguments()
