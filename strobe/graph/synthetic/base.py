"""What all generators share: parameters that are checked, one way to write, a note of how it was made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from strobe.errors import OptionError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder, Sink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.progress import OnProgress
from strobe.ops.csr import IntArray


class Flash(NamedTuple):
    """One snapshot to write: its edges in parts, its nodes (None: all) and, where given, their features."""

    edges: Iterable[Edges]
    nodes: IntArray | None = None
    x: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Generator(ABC):
    """A synthetic dynamic graph as a value: its parameters and seed determine every bit of it."""

    name: ClassVar[str]
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("seed", self.seed)

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """Size of the id space."""

    @property
    @abstractmethod
    def num_snapshots(self) -> int:
        """Snapshots that will be written."""

    @abstractmethod
    def flashes(self) -> Iterator[Flash]:
        """The snapshots in order of time; the edges of each must be read before the next is asked for."""

    def write(self, sink: Sink | None = None, on_progress: OnProgress | None = None) -> DynamicGraph:
        """Writes the graph snapshot by snapshot, into memory or into a sink such as ``DiskSink``.

        ``on_progress`` gets (snapshots written, snapshots).
        Memory with a sink on disk: a few arrays of one snapshot's nodes, a few parts of its edges.
        """
        builder = self._builder(sink)
        for done, flash in enumerate(self.flashes(), 1):
            builder.add(flash.edges, nodes=flash.nodes, x=flash.x)
            if on_progress is not None:
                on_progress(done, self.num_snapshots)
        return self._finish(builder, sink)

    def info(self) -> dict[str, Any]:
        """What the graph remembers of its making."""
        given = {key: value.item() if isinstance(value, np.generic) else value for key, value in asdict(self).items()}
        return {"generator": self.name, "parameters": given}

    def _builder(self, sink: Sink | None) -> GraphBuilder:
        return GraphBuilder(sink, num_nodes=self.num_nodes)

    def _finish(self, builder: GraphBuilder, sink: Sink | None) -> DynamicGraph:
        del sink
        return builder.finish(features=Degrees(log=True), info=self.info())


def check_count(name: str, value: int, *, least: int = 0, most: int | None = None) -> None:
    """Refuses what is not a whole number from ``least`` to ``most``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        allowed = f"from {least:,} to {most:,}" if most is not None else f"of at least {least:,}"
        raise OptionError(f"{name} must be a whole number {allowed}, not {value!r}")


def check_number(name: str, value: float, *, least: float = 0.0, most: float = 1.0) -> None:
    """Refuses what is not a finite number from ``least`` to ``most``."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not least <= value <= most:
        allowed = f"from {least:g} to {most:g}" if np.isfinite(most) else f"of at least {least:g}"
        raise OptionError(f"{name} must be a number {allowed}, not {value!r}")


def check_exponent(value: float) -> None:
    """Refuses exponents of a power law that has no mean, or so steep a one that it is none."""
    check_number("exponent", value, least=2.05, most=100)
