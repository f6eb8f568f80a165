"""Base class of synthetic graphs, and what they share: parameters, growth curves, and random rows.

Random numbers are addressed by row: row r of a stream is a pure function of (key, r), whether rows are read at once, in
blocks, or again ten snapshots later. A generator that stores row numbers needs no memory for edges, and its result does
not depend on blocks.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from strobe.errors import OptionError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.progress import OnProgress
from strobe.graph.sink import Sink
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype

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
    def snapshots(self) -> int:
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
                on_progress(done, self.snapshots)
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


CHUNK = 1 << 20
"""Edges drawn at once: 32 MiB of random numbers. The result does not depend on it."""

COLUMNS = 4
"""Uniform numbers per row: as many as an edge ever needs."""

_MAX_SKIPPED_ROWS = 128  # rows: drawing them takes about as long as seeking elsewhere in the stream


class RowRuns(NamedTuple):
    """Runs of consecutive rows, each drawn for one snapshot."""

    first: IntArray  # [R] rows
    length: IntArray  # [R]
    born: IntArray  # [R] snapshots


class RandomRows:
    """A stream of rows of uniform numbers in [0, 1) with constant-time seek."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(key))
        self._start = self._bits.state
        self._uniform = np.random.Generator(self._bits)

    def rows(self, first: int, count: int) -> FloatArray:
        """Return rows first .. first + count - 1, [count, 4]."""
        self._bits.state = self._start
        self._bits.advance(first * COLUMNS)
        return self._uniform.random((count, COLUMNS))

    def parts(self, runs: RowRuns) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield the rows of all runs as (numbers [m, 4], snapshot of each row [m]), CHUNK rows at a time.

        Nearby runs are drawn together: a thousand short ones cost about as much as a long one.
        """
        ends = np.cumsum(runs.length)
        begins = ends - runs.length
        total = int(runs.length.sum())
        for start in range(0, total, CHUNK):
            stop = min(start + CHUNK, total)
            part = slice(np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1)
            skipped = np.maximum(start - begins[part], 0)
            length = np.minimum(ends[part], stop) - begins[part] - skipped
            yield self._concatenate_runs(runs.first[part] + skipped, length), np.repeat(runs.born[part], length)

    def _concatenate_runs(self, first: IntArray, length: IntArray) -> FloatArray:
        """Return the rows of some runs. Rows between adjacent runs are drawn and dropped if that is faster than
        seeking.

        Memory: the result twice; if rows are dropped, up to 2 * CHUNK rows more.
        """
        stop = first + length
        gap = first[1:] - stop[:-1]
        leaps = np.flatnonzero((gap < 0) | (gap > _MAX_SKIPPED_ROWS) | (np.diff(first // CHUNK) != 0)) + 1
        pieces = []
        for head, tail in itertools.pairwise([0, *leaps.tolist(), first.size]):
            numbers = self.rows(int(first[head]), int(stop[tail - 1] - first[head]))
            wanted = length[head:tail]
            if wanted.sum() < len(numbers):
                dropped = np.append(gap[head : tail - 1], 0)
                mask = np.repeat(np.tile([True, False], wanted.size), np.stack([wanted, dropped], 1).ravel())
                numbers = numbers[mask]
            pieces.append(numbers)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def power_law_indices(uniform: FloatArray, size: int | IntArray, exponent: float) -> IntArray:
    """Draw indices below ``size`` with a power-law tail, low indices far more often.

    Index i is drawn in proportion to (i + 1) ** -a with a = 1 / (exponent - 1), so that the number of nodes drawn d
    times falls as d ** -exponent. Closed form: no table of nodes is built or searched.
    """
    stretched = uniform ** ((exponent - 1) / (exponent - 2))
    stretched *= size
    return stretched.astype(np.int64)


def avoid_self_loops(src: IntArray, dst: IntArray, size: int | IntArray) -> IntArray:
    """Return the destinations; one that equals its source becomes the next index below ``size``."""
    return np.where(src == dst, (dst + 1) % size, dst)


def node_range(num: int) -> IntArray:
    """Return nodes 0 .. num - 1 in the narrowest dtype."""
    ids: IntArray = np.arange(num, dtype=index_dtype(num))
    return ids


class EvolvingEdges:
    """Living edges as runs of row numbers: a few numbers per snapshot of birth, however many edges.

    Edges born in one snapshot are alike, so the last rows of their run are those that end. ``seed`` and the calls of
    ``step`` determine everything.
    """

    def __init__(self, seed: int) -> None:
        self._draws = RandomRows(seed, 1)
        self._ends = np.random.default_rng([seed, 2])
        self._runs = RowRuns(*np.empty((3, 0), np.int64))
        self._next_row = 0
        self._t = 0

    def step(self, count: int, churn: float) -> None:
        """Advance to the next snapshot, which has exactly ``count`` edges.

        Each edge ends with probability ``churn``; if more would stay than fit, the oldest end as well. New edges make
        up the rest.
        """
        first, length, born = self._runs
        survivors = self._ends.binomial(length, 1 - churn)
        newer = np.cumsum(survivors[::-1])[::-1] - survivors  # edges that are younger than this run's
        survivors = np.minimum(survivors, np.maximum(count - newer, 0))
        new = count - int(survivors.sum())
        runs = RowRuns(np.append(first, self._next_row), np.append(survivors, new), np.append(born, self._t))
        alive = runs.length > 0
        self._runs = RowRuns(*(column[alive] for column in runs))
        self._next_row, self._t = self._next_row + new, self._t + 1

    def parts(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield the numbers of every living edge and its snapshot of birth, in blocks."""
        return self._draws.parts(self._runs)
