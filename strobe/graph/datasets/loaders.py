"""Loaders of tables: event streams, snapshot columns, temporal knowledge graphs, commits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Loader, LoadRequest
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, Every, NodeTable
from strobe.graph.ingest.columns import Ids
from strobe.graph.ingest.options import Presence
from strobe.graph.ingest.text import sniff
from strobe.graph.ingest.text_table import TextOptions


@dataclass(frozen=True, kw_only=True)
class EventFile(Loader):
    """A file of events with known columns; ``clock`` is the default."""

    takes = SNAPSHOT_OPTIONS
    file: str
    clock: Clock
    src: str | int = 0
    dst: str | int = 1
    time: str | int = 2
    weight: str | int | None = None

    def load(self, request: LoadRequest) -> DynamicGraph:
        return request.ingest(
            request.files[self.file],
            src=self.src,
            dst=self.dst,
            time=self.time,
            weight=self.weight,
            clock=self.clock,
        )


@dataclass(frozen=True, kw_only=True)
class KonectEdges(Loader):
    """A file of KONECT or the Network Repository: ``src dst time``, or ``src dst weight time``.

    Its first comment says ``% sym`` if edges have no direction.
    """

    takes = SNAPSHOT_OPTIONS
    file: str
    clock: Clock

    def load(self, request: LoadRequest) -> DynamicGraph:
        path = request.files[self.file]
        width = len(sniff(path, delimiter=None, header=False, encoding="utf-8").columns)
        if width not in (3, 4):
            raise InputError(f"{path} has {width} columns: edges with a time have 3, or 4 with a weight")
        return request.ingest(
            path,
            src=0,
            dst=1,
            weight=2 if width == 4 else None,
            time=width - 1,
            clock=self.clock,
            directed=not _is_symmetric(path),
        )


def _is_symmetric(path: Path) -> bool:
    with open_text(path) as file:
        words = file.readline().split()
    return words[:2] == ["%", "sym"]


@dataclass(frozen=True, kw_only=True)
class SnapshotTable(Loader):
    """A table with a column of snapshots; another clock may cut its time."""

    takes = SNAPSHOT_OPTIONS
    file: str
    snapshot: str | int
    src: str | int
    dst: str | int
    time: str | int
    weight: str | int | None = None
    directed: bool = True
    presence: Presence = "active"
    ids: Ids = "integer"

    def load(self, request: LoadRequest) -> DynamicGraph:
        return request.ingest(
            request.files[self.file],
            src=self.src,
            dst=self.dst,
            time=self.time,
            weight=self.weight,
            clock=ByColumn(self.snapshot),
            directed=self.directed,
            presence=self.presence,
            ids=self.ids,
        )


class DailyRouters(Loader):
    """AS-733 as one NPZ: concatenated edges of all days (src, dst), their offsets (ptr), and dates."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        with np.load(request.files["as733.npz"]) as file:
            day = np.repeat(file["date"], np.diff(file["ptr"]))
            columns = {"src": file["src"], "dst": file["dst"], "day": day, "time": _dates(day)}
        return request.ingest(
            columns, src="src", dst="dst", time="time", clock=ByColumn("day"), directed=False, repeated="last"
        )


def _dates(day: Array) -> Array:
    """Parse 20000102 as a date."""
    year, month, rest = day // 10000 - 1970, day // 100 % 100 - 1, day % 100 - 1
    months = (12 * year + month).astype("datetime64[M]")
    dates: Array = months.astype("datetime64[D]") + rest.astype("timedelta64[D]")
    return dates


class Quadruples(Loader):
    """``subject relation object time`` in train, valid and test; times in hours, a snapshot per day."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        files = [request.files[f"{part}.txt.gz"] for part in ("train", "valid", "test")]
        return request.ingest(files, src=0, dst=2, time=3, clock=Every(24))


@dataclass(frozen=True, kw_only=True)
class TgbEdgeList(Loader):
    """TGB's ``NAME_edgelist.csv``: a header, then time, head, tail, relation (the first is called ts or date)."""

    takes = SNAPSHOT_OPTIONS
    file: str
    clock: Clock

    def load(self, request: LoadRequest) -> DynamicGraph:
        text = TextOptions(delimiter=",", header=True)
        return request.ingest(request.files[self.file], text=text, time=0, src=1, dst=2, clock=self.clock)


LABELS = ("file_ext", "file_dir")


class Commits(Loader):
    """Authors and the files they change; nodes are the authors, then the files.

    Files are labeled with their extension (``label="file_ext"``) or their directory (``"file_dir"``); authors are
    unlabeled. Weights count an author's commits to a file.
    """

    takes = SNAPSHOT_OPTIONS | {"label"}

    def load(self, request: LoadRequest) -> DynamicGraph:
        label = request.choices.label or LABELS[0]
        if label not in LABELS:
            raise OptionError(f"the label must be one of {', '.join(LABELS)}, not {label!r}")
        with open_text(request.files[f"{label}_names.txt.gz"]) as names:
            classes = np.array(names.read().splitlines(), dtype=str)
        with np.load(request.files["rust_git.npz"]) as file:
            num_authors, num_files = int(file["num_authors"]), int(file["num_files"])
            columns = {"author": file["author_id"], "file": file["file_id"] + num_authors, "time": file["time"]}
            labels = {"id": np.arange(num_authors, num_authors + num_files), "label": classes[file[label]]}
        return request.ingest(
            columns,
            src="author",
            dst="file",
            time="time",
            clock=Calendar("month"),
            renumber=False,
            num_nodes=num_authors + num_files,
            nodes=NodeTable(source=labels, id="id", label="label"),
            info={"num_authors": num_authors, "num_files": num_files, "label": label},
        )
