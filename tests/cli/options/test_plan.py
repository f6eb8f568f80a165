from __future__ import annotations

import json
from pathlib import Path

import pytest

from strobe.batching import Hybrid, Windows
from strobe.cli.options.plan import RankOptions, num_ranks, override_choices, read_plan, split_plans
from strobe.engine.records.run_directory import FORMAT, VERSION
from strobe.engine.settings import Settings
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.exchange import Halo, Relay
from strobe.io.checksum import write_checksummed_json
from strobe.placement import BySnapshot, Metis
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.report.summary import choices_by_axis, format_choice
from strobe.store import Delta
from strobe.sync import Average

DEEP = '{"exchange": {"time": "none", "structure": ' + '{"name": "stale", "inner":' * 300 + '"halo"' + "}" * 302


def test_plan_is_a_preset_with_options() -> None:
    assert read_plan("pss") == preset("pss")
    assert read_plan("relay:size=8,pipeline_groups=4") == preset("relay", size=8, pipeline_groups=4)
    assert read_plan("psg:stride=none") == preset("psg", stride=None)


def test_plan_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(preset("dbos").to_json()))
    assert read_plan(str(path)) == preset("dbos")
    path.write_text('{"batching": "windows"}')
    assert read_plan(str(path)) == Plan(batching=Windows())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold a plan: a plan is an object with the axes store, placement"),
        ('{"batchin": "full"}', "did you mean 'batching'"),
        ('{"time": "relay"}', 'time belongs to "exchange"'),
        ('{"batching": "fll"}', "did you mean 'full'"),
        ('{"batching": {"name": "windows", "size": "x"}}', "size of batching windows must be a whole number"),
        ('{"store": true}', "store is the name of a choice"),
        ('{"store": ["full"]}', "store is the name of a choice"),
        ('{"store": {"name": ["full"]}}', "no store named"),
        ('{"sync": {"name": {}}}', "no sync named"),
        ('{"exchange": [1]}', "one for the structure and one for the time stage"),
        ('{"exchange": {"structure": {"name": "stale", "inner": 3}, "time": "none"}}', "structure is the name"),
        ('{"exchange": {"structure": {"name": "stale", "inner": "relay"}, "time": "none"}}', "no structure choice"),
        ('{"batching": {"name": "windows", "size": 1e999}}', "not a finite number"),
        ('{"batching": {"name": "windows", "size": NaN}}', "not a finite number"),
        ('{"batching": {"name": "windows", "size": %s}}' % ("9" * 40), "size of batching windows"),
        ('{"batching": {"name": "hybrid", "vertices": %s}}' % ("9" * 400), "vertices of batching hybrid"),
        ('{"batching": {"name": "windows", "size": %s}}' % ("9" * 5000), "mine.json"),
        ('{"batching": {"name": "hybrid", "vertices": [[0.1]]}}', "vertices of batching hybrid"),
        ('{"store": "full", "store": "delta"}', "'store' stands twice"),
        ('{"a":' * 100_000, "nested too deeply"),
        (DEEP, "nested too deeply|inner"),
    ],
)
def test_file_without_a_plan_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(StrobeError, match=words):
        read_plan(str(tmp_path / "mine.json"))


def test_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(bytes(range(256)))
    with pytest.raises(OptionError, match="is not JSON"):
        read_plan(str(tmp_path / "mine.json"))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("rely", UnknownNameError, "no plan named 'rely'; did you mean 'relay'"),
        ("relay:pipline_groups=2", UnknownNameError, "did you mean 'pipeline_groups'"),
        (
            "relay:pipeline_groups=two",
            OptionError,
            "of the plan relay must be a whole number, not 'two'",
        ),
        ("relay:8", OptionError, "name=value, not '8'"),
        ("nowhere.json", OptionError, "strobe plans NAME --json > nowhere.json"),
    ],
)
def test_unknown_plan_is_refused(text: str, kind: type[StrobeError], words: str) -> None:
    with pytest.raises(kind, match=words):
        read_plan(text)


def test_store_is_chosen_with_options() -> None:
    plan = RankOptions(store="delta:segments=8,window=4").to_arguments()["plan"]
    assert plan == Plan(store=Delta(segments=8, window=4))
    assert RankOptions(store="delta").to_arguments()["plan"] == Plan(store=Delta())


def test_choices_change_one_axis_each() -> None:
    plan = override_choices(preset("pss"), {"placement": "metis", "structure": "halo"})
    assert plan.placement == Metis()
    assert plan.exchange.structure == Halo()
    assert plan.exchange.time == Relay(pipeline_groups=1)  # as the preset has it
    assert override_choices(Plan(), {"placement": "by-snapshot:round_robin=no"}).placement == BySnapshot(
        round_robin=False
    )
    assert override_choices(Plan(), {}) == Plan()


@pytest.mark.parametrize("name", PRESETS)
def test_formatted_choice_is_parsed_back(name: str) -> None:
    plan = preset(name)
    texts = {axis: format_choice(axis, choice) for axis, choice in choices_by_axis(plan.to_json()).items()}
    assert override_choices(Plan(), texts) == plan


@pytest.mark.parametrize(
    ("axis", "text", "words"),
    [
        ("placement", "hsh", "no placement named 'hsh'; did you mean 'hash'"),
        ("time", "rely", "no time choice named 'rely'; did you mean 'relay'"),
        ("batching", "windows:siz=3", "did you mean 'size'"),
        ("sync", "average:every=often", "every of sync average must be a whole number"),
    ],
)
def test_unknown_choice_is_refused(axis: str, text: str, words: str) -> None:
    with pytest.raises(StrobeError, match=words):
        override_choices(Plan(), {axis: text})


def test_plans_are_split_at_commas_and_keep_their_options() -> None:
    assert split_plans("pss, relay:size=8,pipeline_groups=4,mine.json") == [
        "pss",
        "relay:size=8,pipeline_groups=4",
        "mine.json",
    ]
    assert split_plans("relay,relay:pipeline_groups=1") == ["relay", "relay:pipeline_groups=1"]
    assert split_plans("dynahb:vertices=0.02,0.05,size_policy=random,relay") == [
        "dynahb:vertices=0.02,0.05,size_policy=random",
        "relay",
    ]
    assert split_plans(",") == []


def test_an_option_may_have_several_values() -> None:
    plan = read_plan("dynahb:vertices=0.02,0.05,size_policy=random,snapshots=0.5")
    assert plan == preset("dynahb", vertices=(0.02, 0.05), snapshots=0.5, size_policy="random")
    assert override_choices(plan, {"batching": "hybrid:vertices=0.1"}).batching == Hybrid(vertices=0.1)


def test_choices_override_the_named_plan() -> None:
    assert RankOptions().to_arguments() == {}
    assert RankOptions(plan="pss", sync="average:every=3").to_arguments() == {
        "plan": override_choices(preset("pss"), {"sync": "average:every=3"})
    }
    assert RankOptions(sync="average:every=3", ranks=2, deadline=5.0, max_restarts=1).to_arguments() == {
        "plan": Plan(sync=Average(every=3)),
        "ranks": 2,
        "deadline_s": 5.0,
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
    with pytest.raises(OptionError, match="one of 4 ranks that torchrun has started: leave --ranks out"):
        RankOptions(ranks=2).to_arguments()
    with pytest.raises(OptionError, match="leave ours out"):
        RankOptions(max_restarts=2).to_arguments()
