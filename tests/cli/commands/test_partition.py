from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from tests.support.cli_runner import run_command

pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object) -> Result:
    return run_command("partition", *arguments)


def test_output_has_a_row_per_rank_totals_and_the_default() -> None:
    result = run("friends", "--ranks", 3, "-m", "wd-gcn", "--model-option", "layers=2", "--hidden", 8)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("wd-gcn on friends: 7 training snapshots, chunks on 3 ranks, placed in ")
    assert lines[2].split()[-3:] == ["chunks", "median", "largest"]
    assert [line.split()[0] for line in lines[3:6]] == ["0", "1", "2"]
    assert [line.split()[0] for line in lines[7:10]] == ["load,", "sent", "the"]
    assert "chunks s" in lines[9]  # sends, or saves
    assert "chart: partition.svg" in result.stderr
    assert ElementTree.parse("partition.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_only_placement_chunks_has_columns_of_chunks() -> None:
    shown = run("friends", "--by", "time-blocks", "--ranks", 2).stdout
    assert "time-blocks on 2 ranks" in shown
    assert "chunks" not in shown
    assert "the default" not in shown  # it is the default
    assert "chunks:per_rank=4 on 2 ranks" in run("friends", "--by", "chunks:per_rank=4", "--ranks", 2).stdout


def test_exchanges_windows_and_tasks_match_training() -> None:
    arguments = ("friends", "--by", "by-snapshot", "--ranks", 2, "-m", "wd-gcn", "--json")
    relayed, shuffled, cut = (
        json.loads(run(*arguments, *more).stdout)
        for more in ((), ("--time", "shuffle", "--structure", "none"), ("--window", 2, "--seed", 3))
    )
    assert set(relayed["ranks"][0]["sent"]) == {"relay"}
    assert set(shuffled["ranks"][0]["sent"]) == {"shuffle"}
    assert "carry" in cut["ranks"][1]["sent"]
    assert "embeddings of sampled pairs" in run("friends", "--ranks", 2, "--task", "link-prediction").stdout


def test_table_of_many_ranks_is_shortened() -> None:
    lines = run("friends", "--by", "hash", "--ranks", 40).stdout.splitlines()
    numbers = [line.split()[0] for line in lines[3:35]]
    assert numbers[-3:] == ["29", "…", "39"]


def test_json_is_one_line_and_writes_a_chart_only_with_out() -> None:
    result = run("friends", "--ranks", 2, "--json", "--quiet")
    assert result.stdout.count("\n") == 1
    assert len(json.loads(result.stdout)["ranks"]) == 2
    assert not Path("partition.svg").exists()
    Path("mine.svg").write_text("<svg/>")  # an SVG may be replaced
    assert run("friends", "--ranks", 2, "--json", "-o", "mine.svg", "--quiet").stderr == ""
    ElementTree.parse("mine.svg")
