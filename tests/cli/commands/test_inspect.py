from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from strobe.cli.commands.inspect import sparkline
from strobe.errors import FormatError
from strobe.graph import from_edges
from tests.support.cli_runner import run_command


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    edges = [np.stack([np.arange(t), np.arange(t) + 1]) for t in (3, 5, 4)]
    nodes = [np.arange(t + 1) for t in (3, 5, 4)]
    path = tmp_path / "rails"
    from_edges(edges, nodes=nodes, times=["2024-01", "2024-02", "2024-03"], directed=False).save(path)
    return path


def run(*arguments: object) -> str:
    return run_command("inspect", *arguments).stdout


def test_tables_have_sizes_churn_bytes_and_imbalance(saved: Path) -> None:
    shown = run(saved)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "\x1b" not in shown
    assert "…  " not in shown  # nothing is cut
    for words in ("rails  6 nodes · 3 snapshots (2024-01 … 2024-03)", "undirected", "max/mean 1.25", "as deltas"):
        assert words in shown
    rows = {line[1:18].strip(): line[18:].split() for line in shown.splitlines() if line.startswith(" ")}
    assert rows["edges"] == ["12", "4", "3", "5", "▅█▇"]
    assert rows["departures"] == ["1", "0", "0", "1", "▁█"]
    assert rows["new edges"][:3] == ["20.0%", "0.0%", "40.0%"]


def test_json_is_one_line(saved: Path) -> None:
    shown = run(saved, "--json")
    assert shown.count("\n") == 1
    found = json.loads(shown)
    assert found["num_cells"] == 15
    assert found["snapshots"]["edges"] == [3, 5, 4]
    assert found["verified"] is False


def test_html_page_is_written(saved: Path, tmp_path: Path) -> None:
    assert "rails" in run(saved, "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "rails"}


def test_verify_detects_a_flipped_bit(saved: Path) -> None:
    assert json.loads(run(saved, "--verify", "--json"))["verified"] is True
    damaged = bytearray((saved / "col.npy").read_bytes())
    damaged[-1] ^= 1
    (saved / "col.npy").write_bytes(damaged)
    with pytest.raises(FormatError, match=r"col\.npy is damaged"):
        run(saved, "--verify")


def test_snapshots_are_selected(saved: Path) -> None:
    assert json.loads(run(saved, "--json", "--snapshots", "1:"))["snapshots"]["time"] == ["2024-02", "2024-03"]
    assert json.loads(run(saved, "--json", "--snapshots=-1:"))["num_edges"] == 4
    assert "1 snapshot (2024-01)" in run(saved, "--snapshots", ":1")


def test_graphs_without_snapshots_or_edges_have_tables(tmp_path: Path) -> None:
    from_edges([]).save(tmp_path / "none")
    from_edges([[[], []]] * 2, num_nodes=3).save(tmp_path / "quiet")
    assert "0 snapshots" in run(tmp_path / "none", "--html", tmp_path / "page.html")
    assert "3 nodes · 2 snapshots (0 … 1)" in run(tmp_path / "quiet")


def test_sparklines_start_at_zero_and_show_anything_above_it() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 1, 500, 1000]) == "▁▂▅█"
    assert sparkline(list(range(100)), width=8) == "▂▂▃▄▅▆▇█"
    assert len(sparkline(np.ones(1000).tolist())) == 24
