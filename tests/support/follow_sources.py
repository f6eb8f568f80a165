"""Sources that events are added to, and the graph of all of them at once to compare with."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strobe.graph import DynamicGraph
from strobe.graph.ingest import Clock, ingest
from strobe.graph.ingest.options import IngestOptions

Event = tuple[Any, Any, float, float]  # source, destination, time, weight
HEADER = "src,dst,time,weight\n"


class Place(ABC):
    """Where events are added."""

    @abstractmethod
    def add(self, events: Sequence[Event]) -> None: ...


class Folder(Place):
    """A directory; files are CSV and Parquet in turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        path.mkdir()

    def add(self, events: Sequence[Event]) -> None:
        self.count += 1
        if self.count % 2 or not events:
            target = self.path / f"{self.count:03}.csv"
            target.with_suffix(".tmp").write_text(HEADER + lines(events))
        else:
            target = self.path / f"{self.count:03}.parquet"
            columns = zip(*events, strict=True)
            table = pa.table(dict(zip(("src", "dst", "time", "weight"), columns, strict=True)))
            pq.write_table(table, target.with_suffix(".tmp"))
        target.with_suffix(".tmp").rename(target)


class Text(Place):
    """A text file; every other addition ends in the middle of a line, which the next one completes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rest = HEADER
        path.write_text("")

    def add(self, events: Sequence[Event]) -> None:
        text = self._rest + lines(events)
        cut = len(text) if self._rest and self._rest != HEADER else max(len(self._rest), len(text) - 3)
        with self.path.open("a") as file:
            file.write(text[:cut])
        self._rest = text[cut:]

    def end(self) -> None:
        with self.path.open("a") as file:
            file.write(self._rest)
        self._rest = ""


class Database(Place):
    """A table of an SQLite database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE 'the events' (src, dst, time, weight)")

    def add(self, events: Sequence[Event]) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executemany("INSERT INTO 'the events' VALUES (?, ?, ?, ?)", events)


def lines(events: Sequence[Event]) -> str:
    return "".join(f"{src},{dst},{time},{weight}\n" for src, dst, time, weight in events)


def options(clock: Clock, **others: Any) -> IngestOptions:
    return IngestOptions(**{"src": "src", "dst": "dst", "time": "time", "weight": "weight", "clock": clock, **others})


def offline(events: Sequence[Event], chosen: IngestOptions) -> DynamicGraph:
    """What ``ingest`` makes of all events."""
    src, dst, time, weight = zip(*events, strict=True)
    table = {"src": np.array(src), "dst": np.array(dst), "time": np.array(time), "weight": np.array(weight, np.float32)}
    names = ("src", "dst", "time", "weight", "clock", "ids", "time_unit", "directed", "life", "repeated")
    given = {name: getattr(chosen, name) for name in (*names, "self_loops", "presence")}
    return ingest(table, **given)


Named = tuple[Any, set[Any], list[tuple[Any, Any, float | None]]]


def named(graph: DynamicGraph) -> list[Named]:
    """Every snapshot by the names of its nodes: its time, who is there, its edges."""
    assert graph.names is not None
    shown: list[Named] = []
    names = list(graph.names)
    for snapshot in graph:
        src, dst, weight = snapshot.edges()
        listed = []
        for k, (u, v) in enumerate(zip(src, dst, strict=True)):
            ends = (names[u], names[v])
            ends = ends if graph.directed else (min(ends), max(ends))
            listed.append((*ends, None if weight is None else round(float(weight[k]), 4)))
        shown.append((snapshot.time, {names[node] for node in snapshot.nodes}, sorted(listed)))
    return shown
