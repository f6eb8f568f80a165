"""Odd options of ``ingest`` and odd arguments of ``strobe ingest``, one or two at a time, the others valid."""

from __future__ import annotations

import encodings.aliases
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from strobe.graph.ingest import ByColumn, ByFile, Calendar, EventsEach, Every, Into, NodeTable, TextOptions, ingest

_NUMBERS: list[Any] = [0, -1, 1, 2, 1.5, 10**20, -(10**20), True, None, "3", float("nan"), float("inf"), 10**400]
_TEXTS: list[Any] = ["", "x", "\0", "é", "src ", "SRC", None, 3, -1, 99, 1.5, True, b"src", ("src",), "a" * 5000, []]
_TEXTS.append("\udc80")
_DURATIONS = ["1", "7d", "0.5", "1_0", "١", "", "9" * 400, "1e3", " 3 ", "5 w", "inf", "0s"]
_MARKS: list[Any] = [None, ["a", "b"], ["a"], ["a", "a", "b"], [], ("b", "a"), "ab", [1, None], range(3)]
_FLAGS = ["--skip-bad-rows", "--json", "--undirected", "--overwrite", "--fill-missing"]
_LENGTHS: list[Any] = [*_NUMBERS, 1e-320, 1e308, 0.1, Fraction(1, 3), 10**6]
_CODECS = sorted({*encodings.aliases.aliases.values(), "utf-8", "UTF8", "utf-8-sig", "nope", "", "utf\0", "../x"})


def call(rng: random.Random, folder: Path) -> None:
    """Call ``ingest`` with odd options; it may only succeed or raise ``StrobeError``."""
    path = folder / "events.csv"
    path.write_text("src,dst,time,weight,mark\n1,2,3,4,a\n2,3,5,1,b\n7,1,4,2.5,a\n")
    options: dict[str, Any] = {"src": "src", "dst": "dst", "time": "time", "weight": "weight", "clock": Every(1)}
    makers: dict[str, Callable[[], Any]] = {
        "src": lambda: rng.choice(_TEXTS),
        "dst": lambda: rng.choice(_TEXTS),
        "time": lambda: rng.choice(_TEXTS),
        "weight": lambda: rng.choice(_TEXTS),
        "life": lambda: rng.choice(_NUMBERS),
        "num_nodes": lambda: rng.choice(_NUMBERS),
        "max_nodes": lambda: rng.choice(_NUMBERS),
        "max_snapshots": lambda: rng.choice(_NUMBERS),
        "renumber": lambda: rng.choice([False, True]),
        "directed": lambda: rng.choice([False, True]),
        "self_loops": lambda: rng.choice([False, True]),
        "ids": lambda: rng.choice(["integer", "string", *_TEXTS]),
        "time_unit": lambda: rng.choice(["number", "s", "ms", "iso", *_TEXTS]),
        "repeated": lambda: rng.choice(["keep", "count", "sum", "last", *_TEXTS]),
        "presence": lambda: rng.choice(["active", "seen", "always", *_TEXTS]),
        "memory": lambda: rng.choice(["64MB", "512MB", "0", "-5GB", "512", "1e3", "", None, 5, "9" * 50 + "GB", "x"]),
        "clock": lambda: _clock(rng),
        "text": lambda: TextOptions(rng.choice([None, *map(chr, range(130)), *_TEXTS]), rng.choice([None, True, False]),
                                    rng.choice(_CODECS)),
        "rejects": lambda: rng.choice([folder, path, "", "\0", "/proc/nope/x", folder / "new" / "r.csv", 3, "\udc80"]),
        "skip_bad_rows": lambda: True,
        "out": lambda: rng.choice([folder / "graph", path, folder, "", "\0", "/proc/nope/graph", folder / "a/b", 3]),
        "overwrite": lambda: rng.choice([True, False]),
        "nodes": lambda: _node_table(rng, path),
        "count_pairs": lambda: True,
        "info": lambda: rng.choice([None, {}, {"a": 1}]),
    }  # fmt: skip
    for name in rng.sample(sorted(makers), rng.choice([1, 1, 2, 3])):
        options[name] = makers[name]()
    sources: list[Any] = [path, str(path), [path], [path, path], (path,)]
    if rng.random() < 0.1:
        sources = [[], None, 7, "", b"x", {}, [None], folder]
    ingest(rng.choice(sources), **options)


def _node_table(rng: random.Random, path: Path) -> NodeTable:
    given: dict[str, Any] = {
        "source": rng.choice([path, {"id": [1, 2], "x": [1, 2]}, None, 5]),
        "id": rng.choice(["src", "id", 0, None]),
        "features": rng.choice([(), ("x",), ("weight",), "x", (0,)]),
        "label": rng.choice([None, "mark", 9]),
        "time": rng.choice([None, "time", "x"]),
        "missing": rng.choice(["zero", "error", "no"]),
    }
    return NodeTable(**given)


def _clock(rng: random.Random) -> Any:
    match rng.randrange(7):
        case 0:
            return Every(rng.choice(_LENGTHS))
        case 1:
            return Every.parse(rng.choice(_DURATIONS))
        case 2:
            return Calendar(rng.choice(["hour", "day", "week", "month", "quarter", "year", *_TEXTS]))
        case 3:
            return EventsEach(rng.choice(_NUMBERS))
        case 4:
            return Into(rng.choice(_NUMBERS))
        case 5:
            values: Any = rng.choice(
                [None, ["a", "b"], ["a"], ["a", "a", "b"], [], ("b", "a"), "ab", [1, None], range(3)]
            )
            return ByColumn(rng.choice(["mark", 4, *_TEXTS]), values)
        case _:
            return rng.choice([ByFile(), None, "month", 5, Every, object()])


def arguments(rng: random.Random, folder: Path) -> list[str]:
    """Arguments of ``strobe ingest``, one or two of them odd."""
    path = folder / "events.csv"
    path.write_text("src,dst,time,weight,mark\n1,2,3,4,a\n2,3,5,1,b\n7,1,4,2.5,a\n")
    given = {"--time": "time", "--every": "2", "-o": str(folder / "graph")}
    odd = {
        "--src": ["0", "²", "-1", "99", "", "x", "é"],
        "--time": ["2", "²", "99", "", "x"],
        "--every": ["1d", "0", "-1", "1_0", "١", "nan", "", "9" * 400, "0.1", "1e-5"],
        "--per": ["month", "fortnight", ""],
        "--events": ["2", "0", "-1", "x", "9" * 30],
        "--snapshots": ["2", "0", "-1", "x", "9" * 30],
        "--by-column": ["mark", "4", "²", ""],
        "--max-snapshots": ["1", "0", "-1", "x", "9" * 30],
        "--life": ["2", "0", "-1", "9" * 30, "x"],
        "--ids": ["integer", "string", "x", ""],
        "--time-unit": ["number", "iso", "ms", "x"],
        "--repeated": ["count", "x"],
        "--presence": ["seen", "x"],
        "--delimiter": [",", "", "é", "\t", '"', ";;"],
        "--encoding": ["latin-1", "utf-7", "idna", "utf-16", "", "nope"],
        "--rejects": [str(path), str(folder), "", str(folder / "r.csv"), str(folder / "graph" / "x")],
        "--memory": ["64MB", "x", "", "-1"],
        "--nodes": [str(path), str(folder), "nowhere"],
        "--node-id": ["src", "²", "x"],
        "--features": ["weight", "", ",", "x,", "0,3"],
        "--label": ["mark", "x"],
        "--node-time": ["time", "x"],
        "-o": [str(path), str(folder), "", str(folder / "a" / "b")],
    }
    for name in rng.sample(sorted(odd), rng.choice([1, 2, 2, 3])):
        given[name] = rng.choice(odd[name])
        if name in ("--per", "--events", "--snapshots", "--by-column") and rng.random() < 0.8:
            given.pop("--every", None)
    flags = [flag for flag in _FLAGS if rng.random() < 0.3]
    flags += rng.choice([[], [], ["--header"], ["--no-header"], ["--per-file"]])
    return ["ingest", str(path), *(part for pair in given.items() for part in pair), *flags]
