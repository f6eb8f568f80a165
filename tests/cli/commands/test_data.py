from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from strobe.cli.main import app
from strobe.cli.options.clock import make_clock
from strobe.errors import OptionError
from strobe.graph import open_graph
from strobe.graph.datasets import DATASETS
from strobe.graph.ingest import ByColumn, ByFile, Calendar, Clock, EventsEach, Every, Into

ROWS = "1 2 1100000000\n2 1 1100700000\n1 2 1100700001\n3 1 1102700001\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "collegemsg"
    folder.mkdir(parents=True)
    (folder / "CollegeMsg.txt").write_text(ROWS)
    return tmp_path / "data"


def strobe(*arguments: object, root: Path) -> Result:
    environment = {"STROBE_DATA": str(root), "COLUMNS": "80"}
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env=environment)


def test_list_shows_every_set_within_80_columns(root: Path) -> None:
    result = strobe("list", root=root)
    assert result.exit_code == 0
    for name in DATASETS:
        assert f" {name} " in result.stdout
    assert "…" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert "strobe data get NAME" in result.stderr


def test_list_shows_which_files_are_local_or_downloadable(root: Path) -> None:
    found = json.loads(strobe("list", "--json", root=root).stdout)
    files = {row["name"]: row["files"] for row in found["data_sets"]}
    assert found["data_dir"] == str(root)
    assert files["collegemsg"] == "local"
    assert files["soc-flickr-growth"] == "downloadable"
    assert files["as733"] == "manual"
    (local,) = json.loads(strobe("list", "--local", "--json", root=root).stdout)["data_sets"]
    assert local["name"] == "collegemsg"
    rows = json.loads(strobe("list", "--task", "classification", "--json", root=root).stdout)["data_sets"]
    assert rows
    assert all("node classification" in row["tasks"] for row in rows)


def test_get_writes_a_graph_and_prints_the_next_command(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "graph"
    result = strobe("get", "CollegeMsg", target, root=root)
    assert result.exit_code == 0, result.output
    graph = open_graph(target)
    assert (graph.num_nodes, len(graph)) == (3, 5)
    assert "Licence: none stated by SNAP" in result.stdout
    assert repr(graph) in result.stdout
    assert f"strobe inspect {target}" in result.stderr


def test_get_uses_the_clock_of_its_options(root: Path, tmp_path: Path) -> None:
    options = ("--per", "month", "--life", 2, "--presence", "always", "--data-dir", root)  # before the variable
    result = strobe("get", "collegemsg", tmp_path / "graph", *options, root=tmp_path / "elsewhere")
    assert result.exit_code == 0, result.output
    graph = open_graph(tmp_path / "graph")
    assert graph.times == ("2004-11", "2004-12")
    assert [snapshot.num_nodes for snapshot in graph] == [3, 3]
    assert graph[1].num_edges == 3


def test_get_names_the_graph_after_the_set(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert strobe("get", "collegemsg", root=root).exit_code == 0
    assert open_graph(tmp_path / "collegemsg").num_nodes == 3
    again = strobe("get", "collegemsg", root=root)
    assert isinstance(again.exception, OptionError)
    assert strobe("get", "collegemsg", "--overwrite", root=root).exit_code == 0


@pytest.mark.parametrize(
    ("chosen", "clock"),
    [
        ({}, None),
        ({"every": "12h"}, Every(43200, in_seconds=True)),
        ({"per": "week"}, Calendar("week")),
        ({"events": 10}, EventsEach(10)),
        ({"snapshots": 5}, Into(5)),
        ({"column": "t"}, ByColumn("t")),
        ({"column": 0}, ByColumn(0)),
        ({"per_file": True}, ByFile()),
    ],
)
def test_each_option_makes_a_clock(chosen: dict[str, object], clock: Clock | None) -> None:
    options: dict[str, object] = {"every": None, "per": None, "events": None, "snapshots": None, **chosen}
    assert make_clock(**options) == clock  # type: ignore[arg-type]
