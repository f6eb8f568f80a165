"""Declaration of a data set: its files, its loader, and the choices of a user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from strobe.errors import OptionError
from strobe.graph.disk.directory import DiskSink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Clock, Into, ingest
from strobe.graph.ingest.options import IngestOptions, Presence
from strobe.graph.progress import OnStage
from strobe.graph.sink import Sink
from strobe.graph.synthetic.base import check_count
from strobe.ops.sparse.csr import Parallel

Task = Literal["link prediction", "node classification", "node regression"]
TASKS: tuple[Task, ...] = get_args(Task)

SNAPSHOT_OPTIONS = frozenset({"clock", "life", "presence", "repeated"})
"""Choices of every set that is cut into snapshots here."""


@dataclass(frozen=True, kw_only=True)
class DatasetFile:
    """A file of a data set, by its path in the set's folder, with or without .gz.

    ``urls`` are tried in order; with ``archive`` they return a .zip or .tar.* of that name, in which the file is found
    by the end of its path.
    """

    path: str
    urls: tuple[str, ...] = ()
    archive: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """A user's choices about a data set (None: its default), checked before any download."""

    clock: Clock | None = None
    life: int | None = None
    presence: Presence | None = None
    repeated: Parallel | None = None
    label: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count("seed", self.seed)
        # Refuse what ingest would refuse before anything is downloaded.
        IngestOptions(src="", dst="", time="", weight="", **({"clock": Into(1)} | self.snapshot_overrides()))

    def snapshot_overrides(self) -> dict[str, Any]:
        """Return the choices about snapshots, by name."""
        return {name: value for name, value in self.overrides().items() if name in SNAPSHOT_OPTIONS}

    def overrides(self) -> dict[str, Any]:
        """Return all choices, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """One request to load a data set: local files, choices, target and metadata."""

    files: Mapping[str, Path]
    choices: DatasetOptions = field(default_factory=DatasetOptions)
    info: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    overwrite: bool = False
    on_stage: OnStage | None = None

    def ingest(self, source: Any, **options: Any) -> DynamicGraph:
        """Call ``strobe.ingest`` with the options of the set, overridden by the user's choices."""
        info = {**self.info, **options.pop("info", {})}
        return ingest(
            source,
            out=self.out,
            overwrite=self.overwrite,
            on_stage=self.on_stage,
            count_pairs=True,
            info=info,
            **(options | self.choices.snapshot_overrides()),
        )

    def sink(self) -> AbstractContextManager[Sink | None]:
        """Open the sink of a set that is built snapshot by snapshot; None is memory."""
        return nullcontext() if self.out is None else DiskSink(self.out, overwrite=self.overwrite)

    def report(self, stage: str, done: int, total: int | None) -> None:
        if self.on_stage is not None:
            self.on_stage(stage, done, total)


class Loader(ABC):
    """Loader from the files of a data set to a graph. ``takes`` names the choices it supports."""

    takes: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def load(self, request: LoadRequest) -> DynamicGraph:
        """Return the graph, in memory or at the target of the request."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set by name: title, source, files and loader.

    ``nodes``, ``edges`` (rows of the files: raw events, or edges of a snapshot) and ``snapshots`` (of the default
    clock) are the published numbers. ``folder`` is below the data directory; default: the name.
    """

    name: str
    title: str
    tasks: tuple[Task, ...]
    source: str
    citation: str
    licence: str
    files: tuple[DatasetFile, ...]
    loader: Loader
    nodes: int
    edges: int
    snapshots: int
    folder: str = ""

    def check(self, choices: DatasetOptions) -> None:
        """Refuse choices that the set does not support."""
        for name in choices.overrides():
            if name not in self.loader.takes:
                allowed = ", ".join(sorted(self.loader.takes)) or "nothing"
                why = " (it comes in snapshots of its own)" if name in SNAPSHOT_OPTIONS else ""
                raise OptionError(f"{name} cannot be chosen for {self.name}{why}; what can be: {allowed}")

    def provenance(self) -> dict[str, Any]:
        """Return the metadata of a graph made from it."""
        return {"dataset": {key: getattr(self, key) for key in ("name", "title", "source", "citation", "licence")}}
