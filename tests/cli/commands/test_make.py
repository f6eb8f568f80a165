from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strobe.cli.commands.make import app, parse_count
from strobe.errors import OptionError, StrobeError
from strobe.graph import open_graph
from strobe.graph.synthetic import Changing, Generator, Growth, PublishedShape, Social, Uneven

CASES: dict[str, Generator] = {
    "social --nodes 2_00 --edges 1K --snapshots 4 --labels --directed --seed 3": Social(
        nodes=200, edges=1_000, snapshots=4, labels=True, directed=True, seed=3
    ),
    "uneven --cells 2e3 --edges 1K --snapshots 10 --mean-length 5 --length-spread 1 --edge-spread 9": Uneven(
        cells=2_000, edges=1_000, snapshots=10, mean_length=5, length_spread=1, edge_spread=9
    ),
    "changing --size 10k-m --nodes 100 --edges 200 --hot 0.1 --features 8 --edge-change 0.5": Changing(
        nodes=100, edges=200, hot=0.1, features=8, edge_change=0.5
    ),
    "growth --snapshots 9 --nodes 50 --edges 90 --curve saturating --constant-nodes": Growth(
        snapshots=9, nodes=50, edges=90, curve="saturating", constant_nodes=True
    ),
    "shapes --shape slashdot --scale 0.005 --features 3": PublishedShape(shape="slashdot", scale=0.005, features=3),
}


@pytest.mark.parametrize("line", CASES)
def test_command_writes_the_generated_graph(line: str, tmp_path: Path) -> None:
    command, *options = line.split()
    target = tmp_path / "made"
    result = CliRunner().invoke(app, [command, str(target), *options])
    assert result.exit_code == 0, result.output
    graph = open_graph(target)
    assert graph == CASES[line].write()
    assert graph.info == CASES[line].info()
    assert repr(graph) in result.output
    assert f"strobe inspect {target}" in result.output


def test_graph_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    line = ["growth", str(tmp_path / "made"), "--snapshots", "2", "--nodes", "9", "--edges", "5"]
    assert CliRunner().invoke(app, line).exit_code == 0
    again = CliRunner().invoke(app, line)
    assert isinstance(again.exception, StrobeError)
    assert CliRunner().invoke(app, [*line, "--overwrite"]).exit_code == 0


def test_invalid_option_leaves_no_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["social", str(tmp_path / "made"), "--churn", "2"])
    assert isinstance(result.exception, OptionError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "number"), [("2000", 2_000), ("2_000", 2_000), ("2,000", 2_000), ("1.5M", 1_500_000), ("2e9", 2 * 10**9)]
)
def test_counts_are_parsed(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5", "many", "inf", "nan", "1e400"])
def test_invalid_count_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not a whole number"):
        parse_count(text)
