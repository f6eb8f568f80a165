from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

import strobe
from strobe.errors import InputError
from tests.support.cli_runner import run_command

EVENTS = "payer,payee,at,amount\nann,bob,2024-01-31,2.5\nbob,eve,2024-02-01,1\nann,bob,2024-02-02,4\n"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text(EVENTS)
    return tmp_path / "events.csv"


def run(*arguments: str) -> Result:
    return run_command("ingest", "events.csv", *COLUMNS, *arguments, "-o", "g")


COLUMNS = ("--src", "payer", "--dst", "payee", "--time", "at", "--weight", "amount")


def test_table_becomes_a_graph_with_a_summary(events: Path) -> None:
    shown = run("--per", "month")
    assert "3 events in" in shown.stdout
    assert "3 nodes, 2 snapshots (2024-01 … 2024-02)" in shown.stdout
    assert "strobe inspect g" in shown.stderr
    assert strobe.open("g")[1].num_edges == 2


def test_json_is_one_line(events: Path) -> None:
    (line,) = run("--events", "2", "--json", "--undirected").stdout.splitlines()
    result = json.loads(line)
    assert (result["nodes"], result["snapshots"], result["rows"], result["bad_rows"]) == (3, 2, 3, 0)
    assert not strobe.open("g").directed


def test_bad_rows_are_refused_or_skipped_and_reported(events: Path) -> None:
    events.write_text(EVENTS + "# a comment\nann,bob,soon,1\nann,bob,2124-01-01,1\n")
    with pytest.raises(InputError, match=r"line 6: column 'at': 'soon'"):
        run("--per", "month")
    assert sorted(path.name for path in events.parent.iterdir()) == ["events.csv"]
    shown = run("--per", "month", "--skip-bad-rows").stderr
    for words in ("skipped 1 bad row, see g.rejects.csv", "skipped 1 comment line", "1,198 of 1,201 snapshots"):
        assert words in shown
    assert "soon" in Path("g.rejects.csv").read_text()


def test_a_node_table_is_joined(events: Path) -> None:
    Path("people.csv").write_text("name,age,country\nann,30,NO\nbob,40,DK\n")
    table = ("--nodes", "people.csv", "--node-id", "name", "--features", "age", "--label", "country", "--fill-missing")
    run("--per", "year", *table)
    graph = strobe.open("g")
    assert graph[0].x is not None
    assert graph[0].x.tolist() == [[30.0], [40.0], [0.0]]
    assert graph.info["classes"] == ["DK", "NO"]
