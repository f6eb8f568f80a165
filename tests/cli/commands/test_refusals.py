"""Invalid arguments of all commands: an error of the right kind that names the word, before anything is written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from strobe.errors import DownloadError, FormatError, InputError, OptionError, StrobeError, UnknownNameError
from strobe.plan import PlanError
from tests.support.cli_runner import run_command

EVENTS = "payer,payee,at\nann,bob,2024-01-31\nbob,eve,2024-02-01\n"
INGEST = "ingest events.csv --src payer --dst payee --time at -o graph"
ONLINE = "online events.csv --src payer --dst payee --time at --task link-prediction --out runs/live"
PARTITION = "partition friends --ranks 2"
GET = "data get collegemsg graph"


@pytest.mark.parametrize(
    ("line", "kind", "word"),
    [
        ("train fiends", FormatError, "fiends"),
        ("train", OptionError, "give a graph"),
        ("train friends --model tgnc", UnknownNameError, "'tgcn'"),
        ("train friends --task regresion", UnknownNameError, "'regression'"),
        ("train friends --model-option layrs=2", UnknownNameError, "'layers'"),
        ("train friends --model-option layers", OptionError, "name=value"),
        ("train friends --task-option ahead=2", OptionError, "--task"),
        ("train friends --epochs 0", OptionError, "epochs"),
        ("train friends --device gpu", OptionError, "cuda"),
        ("train friends --optimizer adm", OptionError, "'adm'"),
        ("train friends --window 2 --batching windows:size=3", OptionError, "--window 2"),
        ("train friends --resume", FormatError, "friends-tgcn"),
        ("train --resume --out nowhere", FormatError, "nowhere"),
        ("online", OptionError, "give a source"),
        ("online --resume", OptionError, "--out RUN"),
        ("online events.csv --per day", OptionError, "--per need .*--src"),
        ("online events.csv --src payer --per day", OptionError, "--dst"),
        (ONLINE, OptionError, "--per month"),
        (f"{ONLINE} --per day --src payr", InputError, "'payer'"),
        (INGEST, OptionError, "--snapshots 50"),
        (f"{INGEST} --per month --events 3", OptionError, "--per and --events"),
        (f"{INGEST} --per fortnight", OptionError, "'fortnight'"),
        (f"{INGEST} --per month --label x", OptionError, "--nodes"),
        (f"{GET} --every soon", OptionError, "soon"),
        ("data get as733 graph", DownloadError, "as733.npz"),
        ("data list --task clasification", UnknownNameError, "'node classification'"),
        ("simulate friends --plan ,", OptionError, "plan"),
        ("simulate friends --network fast", OptionError, "1gbit"),
        ("simulate friends --network local --ranks 10000", OptionError, "10000"),
        ("simulate friends --window 0", OptionError, "window"),
        ("partition nowhere --ranks 2", FormatError, "nowhere"),
        ("partition friends --ranks 0", OptionError, "not 0"),
        (f"{PARTITION} --by chunk", UnknownNameError, "'chunks'"),
        (f"{PARTITION} --by replicated", PlanError, "batches per rank"),
        (f"{PARTITION} --structure none", PlanError, "whole snapshots"),
        (f"{PARTITION} -o friends", OptionError, "directory"),
        (f"{PARTITION} -o events.csv", OptionError, "SVG"),
        (f"{PARTITION} -o no/p.svg", OptionError, "no directory"),
        ("compare friends --ranks 0", OptionError, "1 rank"),
        ("inspect nowhere", FormatError, "nowhere"),
        ("inspect collegemsg", OptionError, "strobe data get collegemsg"),
        ("inspect friends --html events.csv", OptionError, "HTML"),
        ("inspect friends --snapshots=a:b", OptionError, "--snapshots"),
        ("inspect friends --snapshots=20:", OptionError, "--snapshots"),
        ("evaluate nowhere", FormatError, "nowhere"),
        ("predict nowhere -o next.xls", OptionError, "next.xls"),
        ("predict nowhere -o no/next.parquet", OptionError, "exists"),
        ("predict nowhere -o events.csv", OptionError, "--overwrite"),
    ],
)
@pytest.mark.usefixtures("friends")
def test_invalid_arguments_are_refused(
    line: str, kind: type[StrobeError], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("data/collegemsg")
    folder.mkdir(parents=True)
    (folder / "CollegeMsg.txt").write_text("1 2 1100000000\n2 1 1100700000\n")
    monkeypatch.setenv("STROBE_DATA", "data")
    Path("events.csv").write_text(EVENTS)
    before = sorted(Path().rglob("*"))
    with pytest.raises(kind, match=word):
        run_command(*shlex.split(line))
    assert [path for path in sorted(Path().rglob("*")) if path not in before and path.name != "runs"] == []
    assert Path("events.csv").read_text() == EVENTS
