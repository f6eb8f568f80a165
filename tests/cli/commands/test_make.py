from __future__ import annotations

from pathlib import Path

import pytest

from strobe.cli.commands.data import parse_count
from strobe.errors import OptionError, StrobeError
from strobe.graph import open_graph
from strobe.graph.synthetic import Changing, Generator, Growth, PublishedShape, Social, Uneven
from tests.support.cli_runner import run_command

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
    result = run_command("data", "make", command, target, *options)
    graph = open_graph(target)
    assert graph == CASES[line].write()
    assert graph.info == CASES[line].info()
    assert repr(graph) in result.output
    assert f"strobe inspect {target}" in result.output


def test_graph_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    line = ("data", "make", "growth", tmp_path / "made", "--snapshots", "2", "--nodes", "9", "--edges", "5")
    run_command(*line)
    with pytest.raises(StrobeError, match="overwrite"):
        run_command(*line)
    run_command(*line, "--overwrite")


def test_invalid_option_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="churn"):
        run_command("data", "make", "social", tmp_path / "made", "--churn", 2)
    assert list(tmp_path.iterdir()) == []


def test_counts_are_whole_numbers_with_units() -> None:
    assert [parse_count(text) for text in ("2000", "2_000", "2,000", "2K", "2e3", "0.002M")] == [2_000] * 6
    for wrong in ("", "k", "1.5", "many", "inf", "nan", "1e400"):
        with pytest.raises(OptionError, match="is not a whole number"):
            parse_count(wrong)
