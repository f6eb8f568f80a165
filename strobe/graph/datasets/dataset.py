"""What a data set by name is: its files, how they are read, and what a user may choose about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from strobe.errors import OptionError
from strobe.graph.build import Sink
from strobe.graph.disk import DiskSink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Clock, Into, ingest
from strobe.graph.ingest.options import Options, Presence
from strobe.graph.progress import OnStage
from strobe.graph.synthetic.base import check_count
from strobe.ops.csr import Parallel

Task = Literal["link prediction", "node classification", "node regression"]
TASKS: tuple[Task, ...] = get_args(Task)

CUTTING = frozenset({"clock", "life", "presence", "repeated"})
"""What may be chosen about every set that is cut into snapshots here."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of a data set, by its path in the set's folder; the file may also lie there with .gz, or without.

    ``urls`` are where it is published, tried in order; with ``archive`` they give a .zip or .tar.* of that name, in
    which the file is found by the end of its path. ``sha256`` is the checksum of what is downloaded, where known.
    """

    path: str
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    archive: str | None = None

    @property
    def downloaded(self) -> str:
        """The path of what the address gives."""
        return self.archive or self.path


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a user may say about a data set; None leaves its default. Nonsense is refused before any download."""

    clock: Clock | None = None
    life: int | None = None
    presence: Presence | None = None
    repeated: Parallel | None = None
    label: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count("seed", self.seed)
        # Refuses what ingest will refuse, while nothing is downloaded yet.
        Options(src="", dst="", time="", weight="", **({"clock": Into(1)} | self.cutting()))

    def cutting(self) -> dict[str, Any]:
        """The choices that were made about snapshots, by name."""
        return {name: value for name, value in self.given().items() if name in CUTTING}

    def given(self) -> dict[str, Any]:
        """The choices that were made, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One loading of a data set: its files here, what was chosen, where the graph goes, what it shall remember."""

    files: Mapping[str, Path]
    choices: Choices = field(default_factory=Choices)
    info: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    overwrite: bool = False
    on_stage: OnStage | None = None

    def ingest(self, source: Any, **options: Any) -> DynamicGraph:
        """``strobe.ingest`` with the options of the set, or what the user chose instead, counting what was read."""
        info = {**self.info, **options.pop("info", {})}
        return ingest(
            source,
            out=self.out,
            overwrite=self.overwrite,
            on_stage=self.on_stage,
            count_pairs=True,
            info=info,
            **(options | self.choices.cutting()),
        )

    @contextmanager
    def sink(self) -> Iterator[Sink | None]:
        """Where a set that is built snapshot by snapshot goes; None is memory."""
        if self.out is None:
            yield None
            return
        with DiskSink(self.out, overwrite=self.overwrite) as sink:
            yield sink

    def report(self, stage: str, done: int, total: int | None) -> None:
        if self.on_stage is not None:
            self.on_stage(stage, done, total)


class Loader(ABC):
    """Reads the files of a data set into a graph. ``takes`` names the choices it heeds."""

    takes: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def load(self, request: Request) -> DynamicGraph:
        """The graph, in memory or where the request says."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set by name: what it is, where it comes from, its files, and its loader.

    ``nodes``, ``edges`` (rows of the files: raw events, or edges of a snapshot) and ``snapshots`` (of the default
    cut) are as published. ``folder`` is where its files lie below the data directory; by default its name.
    """

    name: str
    title: str
    tasks: tuple[Task, ...]
    source: str
    citation: str
    licence: str
    files: tuple[File, ...]
    loader: Loader
    nodes: int
    edges: int
    snapshots: int
    folder: str = ""

    def check(self, choices: Choices) -> None:
        """Refuses choices that the set cannot heed."""
        for name in choices.given():
            if name not in self.loader.takes:
                allowed = ", ".join(sorted(self.loader.takes)) or "nothing"
                why = " (it comes in snapshots of its own)" if name in CUTTING else ""
                raise OptionError(f"{name} cannot be chosen for {self.name}{why}; what can be: {allowed}")

    def provenance(self) -> dict[str, Any]:
        """What a graph made of it remembers."""
        kept = ("name", "title", "source", "citation", "licence")
        return {"dataset": {key: value for key, value in asdict(self).items() if key in kept}}
