"""Loaders of tables: event streams, snapshot columns, temporal knowledge graphs, commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Loader, LoadRequest
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, NodeTable
from strobe.graph.ingest.text import sniff


@dataclass(frozen=True, kw_only=True)
class EventTable(Loader):
    """All files of a set as one table of events: source, destination and time, or as ``options`` of ``ingest`` say.

    ``clock`` is the default.
    """

    takes = SNAPSHOT_OPTIONS
    clock: Clock
    options: dict[str, Any] = field(default_factory=dict)

    def load(self, request: LoadRequest) -> DynamicGraph:
        columns: dict[str, Any] = {"src": 0, "dst": 1, "time": 2}
        return request.ingest(list(request.files.values()), clock=self.clock, **(columns | self.options))


@dataclass(frozen=True, kw_only=True)
class KonectEdges(Loader):
    """A file of KONECT or the Network Repository: ``src dst time``, or ``src dst weight time``.

    Its first comment says ``% sym`` if edges have no direction.
    """

    takes = SNAPSHOT_OPTIONS
    clock: Clock

    def load(self, request: LoadRequest) -> DynamicGraph:
        [path] = request.files.values()
        width = len(sniff(path, delimiter=None, header=False, encoding="utf-8").columns)
        if width not in (3, 4):
            raise InputError(f"{path} has {width} columns: edges with a time have 3, or 4 with a weight")
        with open_text(path) as file:
            symmetric = file.readline().split()[:2] == ["%", "sym"]
        weight = 2 if width == 4 else None
        return request.ingest(
            path, src=0, dst=1, weight=weight, time=width - 1, clock=self.clock, directed=not symmetric
        )


class Coauthors(Loader):
    """DBLP: ``u v time`` with years scaled to 0..1, and ``node class``."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        nodes = NodeTable(source=request.files["node2label.txt.gz"], id=0, label=1)
        events = request.files["dblp.txt.gz"]
        return request.ingest(events, src=0, dst=1, time=2, clock=ByColumn(2), directed=False, nodes=nodes)


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
