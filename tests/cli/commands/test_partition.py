from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.plan import PlanError
from tests.support.cli_runner import run_command

pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object) -> Result:
    return run_command("partition", *arguments)


def test_output_has_a_row_per_rank_totals_and_the_default() -> None:
    result = run("friends", "--ranks", 3, "-m", "wd-gcn", "--model-option", "layers=2", "--hidden", 8)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("wd-gcn on friends: 7 training snapshots, chunks on 3 ranks, placed in ")
    columns = ["rank", "load", "cells", "arcs", "edges", "time", "chunks", "median", "largest"]
    assert lines[2].split() == columns
    assert [line.split()[0] for line in lines[3:6]] == ["0", "1", "2"]
    assert lines[7].startswith("load, cells and arcs: largest over smallest ")
    assert lines[8].startswith("sent per epoch: ")
    assert lines[9].startswith("the default, time-blocks: ")
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
    assert run("friends", "--ranks", 2, "--json", "-o", "mine.svg", "--quiet").stderr == ""
    ElementTree.parse("mine.svg")


def test_chart_replaces_only_an_svg() -> None:
    Path("old.svg").write_text("<svg/>")
    run("friends", "--by", "hash", "--ranks", 2, "-o", "old.svg")
    assert len(Path("old.svg").read_text()) > 100
    Path("notes.txt").write_text("mine")
    for place, words in (("notes.txt", "is not replaced"), ("friends", "is a directory"), ("no/p.svg", "no directory")):
        with pytest.raises(OptionError, match=words):
            run("friends", "--by", "hash", "--ranks", 2, "-o", place)
    assert Path("notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["nowhere", "--ranks", "2"], FormatError, "no graph at nowhere"),
        (["friends", "--ranks", "2", "--by", "chunk"], UnknownNameError, "did you mean 'chunks'"),
        (["friends", "--ranks", "2", "--by", "chunks:per_rnk=2"], UnknownNameError, "did you mean 'per_rank'"),
        (["friends", "--ranks", "0"], OptionError, "at least 1 rank, not 0"),
        (["friends", "--ranks", "2", "--by", "replicated"], PlanError, "needs batches per rank"),
        (["friends", "--ranks", "2", "--structure", "none"], PlanError, "needs whole snapshots"),
        (["friends", "--ranks", "2", "--task-option", "ahead=2"], OptionError, "give --task"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], kind: type[StrobeError], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(*arguments)
    assert not Path("partition.svg").exists()


def test_help_has_examples() -> None:
    shown = " ".join(run("--help").stdout.split())
    for example in ("strobe partition social --ranks 8", "--by metis --ranks 4", "--placement chunks"):
        assert example in shown
