"""All data sets by name, loaders of their tables, and the call that finds, downloads and loads one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.arrays import Array
from strobe.graph.datasets import citation, signals, static
from strobe.graph.datasets import folder as folders
from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Dataset, DatasetFile, DatasetOptions, Loader, LoadRequest
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, Every, Into, NodeTable, TextOptions
from strobe.graph.ingest.options import Presence
from strobe.graph.ingest.text import sniff
from strobe.graph.progress import OnStage
from strobe.ops.sparse.csr import Parallel


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


_LOADERS: dict[str, Callable[..., Loader]] = {
    loader.__name__: loader
    for loader in (
        EventTable,
        KonectEdges,
        DailyRouters,
        Commits,
        Coauthors,
        citation.DatedPubmed,
        citation.DatedCora,
        citation.DatedPapers,
        citation.HugeDatedPapers,
        signals.SignalFiles,
        static.SimulatedGrowth,
    )
}
_READERS: dict[str, Callable[[LoadRequest], Any]] = {**static.READERS, **signals.READERS}
_CLOCKS: dict[str, Callable[..., Clock]] = {"every": Every, "per": Calendar, "into": Into, "by": ByColumn}


def _parse_dataset(name: str, entry: Mapping[str, Any]) -> Dataset:
    """Make a data set from its table in catalog.toml."""
    fields = dict(entry)
    fields["nodes"], fields["edges"], fields["snapshots"] = fields.pop("counts")
    urls, archive, paths = fields.pop("urls", ()), fields.pop("archive", None), fields.pop("files")
    fields["files"] = tuple(
        DatasetFile(path=path, urls=tuple(url.format(path=path) for url in urls), archive=archive) for path in paths
    )
    return Dataset(**{**fields, "name": name, "tasks": tuple(entry["tasks"]), "loader": _make_loader(entry["loader"])})


def _make_loader(entry: Mapping[str, Any]) -> Loader:
    options = dict(entry)
    kind = _LOADERS[options.pop("kind")]
    if "clock" in options:
        [(unit, value)] = options["clock"].items()
        options["clock"] = _CLOCKS[unit](value)
    if "read" in options:
        options["read"] = _READERS[options["read"]]
    if "text" in options.get("options", {}):
        options["options"] = {**options["options"], "text": TextOptions(**options["options"]["text"])}
    return kind(**options)


_CATALOG = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))

DATASETS: dict[str, Dataset] = {
    name: _parse_dataset(name, _CATALOG[name]) for name in sorted(_CATALOG, key=lambda name: name.lower())
}


def find(name: str) -> Dataset:
    """Return the data set of a name, in any case and spelled with - or _."""
    spelled = {_normalize_name(known): known for known in DATASETS}
    if _normalize_name(name) not in spelled:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[spelled[_normalize_name(name)]]


def load(
    name: str,
    *,
    data_dir: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    on_stage: OnStage | None = None,
    clock: Clock | None = None,
    life: int | None = None,
    presence: Presence | None = None,
    repeated: Parallel | None = None,
    label: str | None = None,
    seed: int | None = None,
) -> DynamicGraph:
    """Load the graph of a data set by name.

    Args:
        name: name of the data set.
        data_dir: directory of the files (default: $STROBE_DATA, or the user's cache); missing files are downloaded
            there.
        out: directory to write the graph to (default: memory).
        clock, life, presence, repeated: how snapshots are cut, as in ``ingest``.
        label: which labels, if the set has several.
        seed: which random edges, if the set is simulated.
    """
    dataset = find(name)
    choices = DatasetOptions(clock=clock, life=life, presence=presence, repeated=repeated, label=label, seed=seed)
    dataset.check(choices)
    target = None if out is None else Path(out)
    if target is not None and target.exists() and not overwrite:
        raise OptionError(f"{target} exists already: choose another place, or say that it may be overwritten")
    request = LoadRequest(
        files=folders.fetch(dataset, folders.data_dir(data_dir), on_stage),
        choices=choices,
        info=dataset.provenance(),
        out=target,
        overwrite=overwrite,
        on_stage=on_stage,
    )
    return dataset.loader.load(request)


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "-")
