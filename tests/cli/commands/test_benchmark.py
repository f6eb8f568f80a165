from __future__ import annotations

import json
from pathlib import Path

import pytest

from strobe.cli.commands.benchmark import _list_models
from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.protocols import base
from tests.protocols.test_tgb import write_stream
from tests.support.cli_runner import run_command

OWN = """
from dataclasses import dataclass

from strobe.protocols import Protocol, ProtocolRequest, ProtocolResult, register


@dataclass(frozen=True, kw_only=True)
class Constant(Protocol):
    def run(self, request: ProtocolRequest) -> ProtocolResult:
        seeds = request.seed_values
        if 2 in seeds and request.epochs == 99:
            raise KeyboardInterrupt
        values = tuple(1.0 + seed for seed in seeds)
        return ProtocolResult(
            protocol=self.name, data=self.choose_data(request.data), method=self.choose_model(request.model),
            metric=self.metric, seeds=seeds, validation=values, test=values, coverage=1.0, more={"MAE": values},
        )


register(Constant(
    name="constant", description="Says the seed.", citation="No one, 2024", data_sets=("none",), models=("mine",),
    metric="RMSE", more_metrics=("MAE",), higher_is_better=False, snapshots="a", split="b", negatives="c", update="d",
))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(base, "_PROTOCOLS", dict(base._PROTOCOLS))
    monkeypatch.setenv("STROBE_DATA", str(write_stream(tmp_path)))
    return tmp_path


def test_list_describes_every_protocol() -> None:
    shown = run_command("benchmark", "list")
    assert "tgbl-wiki" in shown.stdout
    assert "strobe benchmark NAME" in shown.stderr
    rows = {row["name"]: row for row in json.loads(run_command("benchmark", "list", "--json").stdout)["protocols"]}
    assert {"evolvegcn", "roland-fixed", "dysat", "tgcn-los-loop"} < set(rows)
    row = rows["tgbl-wiki"]
    assert (row["name"], row["data_sets"], row["metric"]) == ("tgbl-wiki", ["wikipedia_jodie"], "MRR")
    assert {"snapshots", "split", "negatives", "update", "citation", "models"} <= set(row)


def test_help_says_what_a_protocol_fixes() -> None:
    shown = run_command("benchmark", "tgbl-wiki", "--help").stdout
    for word in ("quantiles of time", "all other pages", "MRR", "pair-network", "NeurIPS 2023"):
        assert word in shown


def test_help_lists_models_with_equal_endings_together() -> None:
    models = ["b+x", "a+x", "b+x+y", "a+x+y", "b", "a", "rule", "other+x"]
    assert _list_models(models) == "b, a, each also with +x, +x+y; rule; other+x"
    assert _list_models(()) == ""


def test_a_run_is_shown_beside_baselines_and_published_rows(folder: Path) -> None:
    target = folder / "result.json"
    shown = run_command("benchmark", "tgbl-wiki", "--seeds", 2, "--epochs", 1, "--json", target)
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    lines = {line.split("  ")[0]: line for line in shown.stdout.splitlines()}
    assert "this run" in lines["pair-network"]
    assert "±" in lines["pair-network"]
    assert "baseline" in lines["most-recent-first"]
    assert "second hand" in lines["HTGN"]
    assert "checked" in lines["EdgeBank, unlimited"]
    assert "coverage 100%" in shown.stdout
    content = json.loads(target.read_text())
    assert content["result"]["seeds"] == [0, 1]
    assert len(content["baselines"]) == 6
    assert {row["confidence"] for row in content["published"]} == {"checked", "second hand"}


def test_a_baseline_can_be_the_model(folder: Path) -> None:
    shown = run_command("benchmark", "tgbl-wiki", "--model", "edgebank").stdout
    [line] = [line for line in shown.splitlines() if "this run" in line]
    assert line.startswith("edgebank ")
    assert "pair-network" not in shown


def test_a_protocol_of_a_file_runs_by_name(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    shown = run_command("benchmark", "--register", folder / "own.py", "constant", "--seeds", 3).stdout
    assert "constant on none, RMSE: mine, 3 seeds" in shown
    assert shown.count("2.0000 ± 1.0000") == 3  # validation, test and MAE
    assert "MAE" in shown.splitlines()[2]


def test_an_interrupted_run_shows_the_seeds_it_has_finished(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    target = folder / "result.json"
    arguments = ("--register", folder / "own.py", "constant", "--epochs", 99, "--json", target)
    shown = run_command("benchmark", *arguments, code=130)
    assert "constant on none, RMSE: mine, 2 seeds of 3 (interrupted)" in shown.stdout
    assert json.loads(target.read_text())["result"]["seeds"] == [0, 1]


def test_errors_name_what_is_wrong(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tgbl-wiki'"):
        run_command("benchmark", "tgbl-wiky")
    with pytest.raises(UnknownNameError, match="did you mean 'edgebank'"):
        run_command("benchmark", "tgbl-wiki", "--model", "edgebnk")
    with pytest.raises(OptionError, match="seeds"):
        run_command("benchmark", "tgbl-wiki", "--seeds", 0)
    with pytest.raises(InputError, match="no file"):
        run_command("benchmark", "--register", folder / "absent.py", "list")
