from __future__ import annotations

import json
from pathlib import Path

import pytest

import strobe
from strobe.cli import main

EVENTS = "payer,payee,at,amount\nann,bob,2024-01-31,2.5\nbob,eve,2024-02-01,1\nann,bob,2024-02-02,4\n"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text(EVENTS)
    return tmp_path / "events.csv"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the program's entry point; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["strobe", *arguments])
    with pytest.raises(SystemExit) as left:
        main.run()
    return int(left.value.code or 0)


COLUMNS = ("--src", "payer", "--dst", "payee", "--time", "at", "--weight", "amount")


def test_table_becomes_a_graph_with_a_summary(
    events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "ingest", "events.csv", *COLUMNS, "--per", "month", "-o", "g") == 0
    shown = capsys.readouterr()
    assert "3 events in" in shown.out
    assert "3 nodes, 2 snapshots (2024-01 … 2024-02)" in shown.out
    assert "strobe inspect g" in shown.err
    assert strobe.open("g")[1].num_edges == 2


def test_json_is_one_line(events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "ingest", "events.csv", *COLUMNS, "--events", "2", "-o", "g", "--json", "--undirected")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    result = json.loads(lines[0])
    assert (result["nodes"], result["snapshots"], result["rows"], result["bad_rows"]) == (3, 2, 3, 0)
    assert not strobe.open("g").directed


def test_bad_rows_exit_with_2_and_write_nothing(
    events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events.write_text(EVENTS + "ann,bob,soon,1\n")
    assert run(monkeypatch, "ingest", "events.csv", *COLUMNS, "--per", "month", "-o", "g") == 2
    shown = capsys.readouterr()
    assert "events.csv, line 5: column 'at': 'soon' is not a date" in shown.err
    assert "Traceback" not in shown.err
    assert sorted(path.name for path in events.parent.iterdir()) == ["events.csv"]


def test_skipped_bad_rows_are_reported(
    events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events.write_text(EVENTS + "ann,bob,soon,1\n")
    assert run(monkeypatch, "ingest", "events.csv", *COLUMNS, "--per", "month", "-o", "g", "--skip-bad-rows") == 0
    assert "skipped 1 bad row, see g.rejects.csv" in capsys.readouterr().err
    assert "soon" in Path("g.rejects.csv").read_text()


def test_a_node_table_is_joined(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("people.csv").write_text("name,age,country\nann,30,NO\nbob,40,DK\n")
    table = ("--nodes", "people.csv", "--node-id", "name", "--features", "age", "--label", "country", "--fill-missing")
    assert run(monkeypatch, "ingest", "events.csv", *COLUMNS, "--per", "year", *table, "-o", "g") == 0
    graph = strobe.open("g")
    assert graph[0].x is not None
    assert graph[0].x.tolist() == [[30.0], [40.0], [0.0]]
    assert graph.info["classes"] == ["DK", "NO"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "choose how to cut time into snapshots"),
        (("--per", "month", "--events", "3"), "both cut time into snapshots"),
        (("--per", "fortnight"), "calendar unit must be one of hour, day, week, month, quarter, year, not 'fortnight'"),
        (("--per", "month", "--repeated", "twice"), "repeated must be one of keep, count, sum, last"),
        (("--per", "month", "--label", "x"), "add --nodes FILE"),
        (("--per", "month", "--life", "0"), "at least one snapshot"),
    ],
)
def test_invalid_options_are_refused(
    events: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    reason: str,
) -> None:
    assert run(monkeypatch, "ingest", "events.csv", *COLUMNS, *arguments, "-o", "g") == 2
    assert reason in capsys.readouterr().err.replace("\n", " ")


def test_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == f"strobe {strobe.__version__}"
