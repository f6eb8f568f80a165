"""Base class of synthetic graphs, growth curves, and checks of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from strobe.errors import OptionError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder, Sink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.progress import OnProgress
from strobe.ops.sparse.csr import FloatArray, IntArray

Curve = Literal["linear", "exponential", "saturating"]
CURVES: tuple[Curve, ...] = get_args(Curve)

_SATURATION = 4.0  # a saturating curve covers 1 - exp(-4) = 98% of the way to its ceiling


def growth_curve(num: int, ratio: float, curve: Curve = "linear") -> FloatArray:
    """Return ``num`` relative sizes that grow from 1 to ``ratio``.

    linear: by the same amount each time; exponential: by the same factor; saturating: fast, then ever slower.
    """
    x = np.linspace(0, 1, num)
    if curve == "exponential":
        return np.asarray(ratio**x)
    if curve == "saturating":
        x = np.expm1(-_SATURATION * x) / np.expm1(-_SATURATION)
    return 1 + (ratio - 1) * x


def apportion(weights: FloatArray, total: int) -> IntArray:
    """Split ``total`` into integers in proportion to the weights, each off by less than one."""
    mass = np.cumsum(weights, dtype=np.float64)
    if mass.size == 0 or mass[-1] <= 0:
        mass = np.arange(1.0, mass.size + 1)
    return np.diff(np.rint(mass / mass[-1:] * total), prepend=0).astype(np.int64)


class GeneratedSnapshot(NamedTuple):
    """One snapshot to write: its edges in blocks, its nodes (None: all) and optional features."""

    edges: Iterable[Edges]
    nodes: IntArray | None = None
    x: Array | None = None


def check_count(name: str, value: int, *, minimum: int = 0, maximum: int | None = None) -> None:
    """Refuse a value that is no integer from ``minimum`` to ``maximum``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < minimum or (maximum is not None and value > maximum):
        allowed = f"from {minimum:,} to {maximum:,}" if maximum is not None else f"of at least {minimum:,}"
        raise OptionError(f"{name} must be a whole number {allowed}, not {value!r}")


def check_number(name: str, value: float, *, minimum: float = 0.0, maximum: float = 1.0) -> None:
    """Refuse a value that is no finite number from ``minimum`` to ``maximum``."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not minimum <= value <= maximum:
        allowed = f"from {minimum:g} to {maximum:g}" if np.isfinite(maximum) else f"of at least {minimum:g}"
        raise OptionError(f"{name} must be a number {allowed}, not {value!r}")


def count(default: int, minimum: int = 0, maximum: int | None = None) -> Any:
    """Declare an integer parameter with its bounds."""
    return field(default=default, metadata={"check": partial(check_count, minimum=minimum, maximum=maximum)})


def number(default: float, minimum: float = 0.0, maximum: float = 1.0) -> Any:
    """Declare a number parameter with its bounds."""
    return field(default=default, metadata={"check": partial(check_number, minimum=minimum, maximum=maximum)})


def power_law_exponent(default: float = 3.0) -> Any:
    """Declare the exponent of a power law that has a mean and is not too steep to be one."""
    return number(default, 2.05, 100)


@dataclass(frozen=True, kw_only=True)
class Generator(ABC):
    """A synthetic dynamic graph as a value: parameters and seed determine every bit of it."""

    name: ClassVar[str]
    seed: int = count(0)

    def __post_init__(self) -> None:
        for item in fields(self):
            if check := item.metadata.get("check"):
                check(item.name, getattr(self, item.name))

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """Size of the id space."""

    @property
    @abstractmethod
    def num_snapshots(self) -> int:
        """Number of snapshots."""

    @abstractmethod
    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        """Yield the snapshots in order of time; read the edges of each before the next one."""

    def write(self, sink: Sink | None = None, on_progress: OnProgress | None = None) -> DynamicGraph:
        """Write the graph snapshot by snapshot, to memory or to a sink such as ``DiskSink``.

        Memory with a sink on disk: a few arrays of one snapshot's nodes, a few blocks of its edges.

        Args:
            sink: destination (default: memory).
            on_progress: called with (snapshots written, number of snapshots).
        """
        builder = self._builder(sink)
        for done, flash in enumerate(self.iter_snapshots(), 1):
            builder.add(flash.edges, nodes=flash.nodes, x=flash.x)
            if on_progress is not None:
                on_progress(done, self.num_snapshots)
        return self._finish(builder, sink)

    def info(self) -> dict[str, Any]:
        """Metadata: kind and parameters."""
        options = {key: value.item() if isinstance(value, np.generic) else value for key, value in asdict(self).items()}
        return {"generator": self.name, "parameters": options}

    def _builder(self, sink: Sink | None) -> GraphBuilder:
        return GraphBuilder(sink, num_nodes=self.num_nodes)

    def _finish(self, builder: GraphBuilder, sink: Sink | None) -> DynamicGraph:
        del sink
        return builder.finish(features=Degrees(log=True), info=self.info())
