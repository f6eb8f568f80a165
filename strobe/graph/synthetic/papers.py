"""Synthetic graphs of the papers: growing (DyGNeX), uneven (DGC), and changing at given rates (DistDy)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.sink import Sink
from strobe.graph.synthetic.base import (
    CURVES,
    Curve,
    EvolvingEdges,
    GeneratedSnapshot,
    Generator,
    RandomRows,
    RowRuns,
    apportion,
    avoid_self_loops,
    check_count,
    check_number,
    count,
    growth_curve,
    node_range,
    number,
    power_law_exponent,
    power_law_indices,
)
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype

Bits = npt.NDArray[np.uint8]

_BLOCK = 1 << 15  # rows of features changed at once; the result does not depend on it


@dataclass(frozen=True, kw_only=True)
class Growth(Generator):
    """A graph whose nodes and edges grow from snapshot to snapshot (DyGNeX, §5.1, §5.4 and appendix E).

    ``nodes`` and ``edges`` are averages per snapshot, ``ratio`` is the last snapshot's size over the first's, along
    ``curve``: linear, exponential or saturating. Edges fluctuate around the curve by ``noise`` (relative standard
    deviation); nodes join in order of id and stay; ``constant_nodes`` gives every snapshot all of them. Each edge ends
    with probability ``churn`` per snapshot, the oldest ones too where the curve falls. Degrees follow a power law.
    Edges add up to edges x snapshots exactly, nodes to a rounding per snapshot.
    """

    name: ClassVar[str] = "growth"
    snapshots: int = count(50, 1, 1_000_000)
    nodes: int = count(20_000, 1)
    edges: int = count(150_000)
    curve: Curve = "linear"
    ratio: float = number(4.0, 1, 1e9)
    noise: float = number(0.05)
    constant_nodes: bool = False
    churn: float = number(0.1)
    exponent: float = power_law_exponent()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.curve not in CURVES:
            raise OptionError(f"curve must be one of {', '.join(CURVES)}, not {self.curve!r}")
        if self.edges and self.nodes_per_snapshot[0] < 2:
            raise OptionError(
                f"the first snapshot has {self.nodes_per_snapshot[0]} node, edges need two: ask for more nodes, a "
                "smaller ratio, constant nodes, or no edges"
            )

    @property
    def num_nodes(self) -> int:
        return int(self.nodes_per_snapshot[-1])

    @cached_property
    def nodes_per_snapshot(self) -> IntArray:
        """Number of nodes of each snapshot, [T], never falling."""
        curve = growth_curve(self.snapshots, 1.0 if self.constant_nodes else self.ratio, self.curve)
        counts: IntArray = np.rint(curve * (self.nodes / curve.mean())).astype(np.int64).clip(min=1)
        return counts

    @cached_property
    def edges_per_snapshot(self) -> IntArray:
        """Number of edges of each snapshot, [T]."""
        rng = np.random.default_rng([self.seed, 3])
        noisy = np.maximum(1 + self.noise * rng.standard_normal(self.snapshots), 0)
        return apportion(growth_curve(self.snapshots, self.ratio, self.curve) * noisy, self.edges * self.snapshots)

    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        ties = EvolvingEdges(self.seed)
        sizes = zip(self.nodes_per_snapshot.tolist(), self.edges_per_snapshot.tolist(), strict=True)
        for num_nodes, num_edges in sizes:
            ties.step(num_edges, self.churn)
            yield GeneratedSnapshot(self._edges(ties), node_range(num_nodes))

    def _edges(self, ties: EvolvingEdges) -> Iterator[Edges]:
        for numbers, born in ties.parts():
            size = self.nodes_per_snapshot[born]
            src = power_law_indices(numbers[:, 0], size, self.exponent)
            yield Edges(src, avoid_self_loops(src, power_law_indices(numbers[:, 1], size, self.exponent), size))


@dataclass(frozen=True, kw_only=True)
class Uneven(Generator):
    """``cells`` and ``edges`` spread unevenly over ``snapshots`` (DGC, §7.3.1).

    Edges per snapshot follow a normal distribution with mean edges / snapshots and standard deviation ``edge_spread``,
    cut at 0 and scaled so that the total is exact. Lengths of sequences follow one with mean ``mean_length`` and
    standard deviation ``length_spread``, cut to 1..snapshots and corrected by ones until the cells add up exactly;
    there are cells / mean_length nodes. The paper gives neither the number of nodes nor the position of sequences: here
    each starts anywhere and wraps around, so that snapshots have similar numbers of nodes. Endpoints are drawn
    uniformly from the nodes present, again in every snapshot; no self-loops.
    """

    name: ClassVar[str] = "uneven"
    cells: int = count(5_000_000, 1)
    edges: int = count(2_000_000)
    snapshots: int = count(100, 1)
    edge_spread: float = number(5_000.0, 0, np.inf)
    mean_length: float = 50.0
    length_spread: float = number(10.0, 0, np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("mean_length", self.mean_length, minimum=1, maximum=self.snapshots)

    @property
    def num_nodes(self) -> int:
        return int(np.ceil(self.cells / self.mean_length))

    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        start, length = self._sequences
        everyone, draws, row = node_range(self.num_nodes), RandomRows(self.seed, 1), 0
        for t, num_edges in enumerate(self.edges_per_snapshot.tolist()):
            nodes = everyone[(t - start) % self.snapshots < length]
            if num_edges and nodes.size < 2:
                raise OptionError(
                    f"snapshot {t} is to have {num_edges:,} edges but has {nodes.size} nodes: ask for more cells or "
                    "fewer edges"
                )
            yield GeneratedSnapshot(_edges_among(draws, RowRuns(*np.array([[row], [num_edges], [t]])), nodes), nodes)
            row += num_edges

    @property
    def edges_per_snapshot(self) -> IntArray:
        """Number of edges of each snapshot, [T]."""
        mean = self.edges / self.snapshots
        sizes = np.random.default_rng([self.seed, 2]).normal(mean, self.edge_spread, self.snapshots)
        return apportion(np.maximum(sizes, 0), self.edges)

    @cached_property
    def _sequences(self) -> tuple[IntArray, IntArray]:
        """Return start and number of cells of each node's sequence, [N] each."""
        rng = np.random.default_rng([self.seed, 3])
        lengths = rng.normal(self.mean_length, self.length_spread, self.num_nodes)
        length = np.rint(lengths.clip(1, self.snapshots)).astype(np.int64)
        while missing := self.cells - int(length.sum()):
            movable = np.flatnonzero(length < self.snapshots if missing > 0 else length > 1)
            moved = rng.choice(movable, min(abs(missing), movable.size), replace=False)
            length[moved] += np.sign(missing)
        return np.sort(rng.integers(0, self.snapshots, self.num_nodes)), length


def _edges_among(draws: RandomRows, runs: RowRuns, nodes: IntArray) -> Iterator[Edges]:
    for numbers, _ in draws.parts(runs):
        src, dst = ((numbers[:, end] * nodes.size).astype(np.int64) for end in (0, 1))
        yield Edges(nodes[src], nodes[avoid_self_loops(src, dst, nodes.size)])


@dataclass(frozen=True, kw_only=True)
class Changing(Generator):
    """An undirected graph with binary features that changes at given rates (DistDy, §5.1 and Table 2).

    Between snapshots each edge is replaced with probability ``edge_change``; the number of edges is exact in every
    snapshot. A node's features are cut into ``segments`` equal parts, each redrawn to another value with probability
    ``feature_change``. The paper says "30% difference in node features" without a unit; redrawing single entries would
    change every segment, which its storage savings exclude; redrawing whole nodes is ``segments=1``.

    Endpoints are uniform, or a share ``hot`` of the nodes is drawn ``heat`` times as often as others (the paper gives
    the share, 10%, but not the heat). No self-loops. Memory: one byte per feature of one snapshot, and five more while
    it is written.
    """

    name: ClassVar[str] = "changing"
    nodes: int = count(10_000, 1)
    edges: int = count(30_000)
    snapshots: int = count(5, 1)
    features: int = count(128, 1)
    segments: int = 4
    feature_change: float = number(0.3)
    edge_change: float = number(0.3)
    hot: float = number(0.0)
    heat: float = number(10.0, 1, np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("segments", self.segments, minimum=1, maximum=self.features)
        if self.edges and self.nodes < 2:
            raise OptionError(f"{self.edges:,} edges need at least 2 nodes, not {self.nodes}")

    @classmethod
    def from_size(cls, size: str, **changes: Any) -> Changing:
        """Return one of the published sizes (``SIZES``), with other parameters changed."""
        if size not in SIZES:
            raise UnknownNameError("size", size, SIZES)
        return cls(**{**SIZES[size], **changes})

    @property
    def num_nodes(self) -> int:
        return self.nodes

    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        ties = EvolvingEdges(self.seed)
        which, what = (np.random.default_rng([self.seed, stream]) for stream in (3, 4))
        bits = np.zeros((self.nodes, self.features), np.uint8)
        for t in range(self.snapshots):
            ties.step(self.edges, self.edge_change)
            self._change(bits, which, what, self.feature_change if t else None)
            yield GeneratedSnapshot((self._edge(numbers) for numbers, _ in ties.parts()), x=bits.astype(np.float32))

    def _change(self, bits: Bits, which: np.random.Generator, what: np.random.Generator, share: float | None) -> None:
        """Redraw a share of all segments, each to another value; None: draw everything for the first time."""
        edges = np.linspace(0, self.features, self.segments + 1).astype(np.int64)
        for first in range(0, self.nodes, _BLOCK):
            rows = bits[first : first + _BLOCK]
            flip = what.random(rows.shape) < 0.5
            if share is not None:
                changed = which.random((len(rows), self.segments)) < share
                flip[:, edges[:-1]] = True  # at least one entry of a segment that changes
                flip &= np.repeat(changed, np.diff(edges), axis=1)
            rows ^= flip

    def _edge(self, numbers: FloatArray) -> Edges:
        src, dst = self._ends(numbers[:, 0]), self._ends(numbers[:, 1])
        return Edges(src, avoid_self_loops(src, dst, self.nodes))

    def _ends(self, uniform: FloatArray) -> IntArray:
        """Draw nodes; hot nodes are drawn more often and lie scattered over the ids."""
        num_hot = round(self.hot * self.nodes)
        if num_hot in (0, self.nodes):
            rank = uniform * self.nodes
        else:
            mass = num_hot * self.heat / (num_hot * self.heat + self.nodes - num_hot)
            rank = np.interp(uniform, [0, mass, 1], [0, num_hot, self.nodes])
        low = np.minimum(rank.astype(np.int64), self.nodes - 1)
        return (low * _stride(self.nodes) % self.nodes).astype(index_dtype(self.nodes))

    def _builder(self, sink: Sink | None) -> GraphBuilder:
        return GraphBuilder(sink, num_nodes=self.nodes, directed=False)

    def _finish(self, builder: GraphBuilder, sink: Sink | None) -> DynamicGraph:
        del sink
        return builder.finish(info=self.info())


def _stride(num: int) -> int:
    """Return a step near the golden section of ``num`` that is coprime to it."""
    step = max(1, round(num * 0.618))
    while math.gcd(step, num) > 1:
        step += 1
    return step


def _published_sizes() -> dict[str, dict[str, Any]]:
    big = {"nodes": 500_000, "edges": 2_500_000, "snapshots": 20}
    sizes: dict[str, dict[str, Any]] = {"uni500k": big, "ex500k": {**big, "hot": 0.1}}
    for thousands in (10, 20, 50, 100):
        for density, edges_per_node in (("s", 3), ("m", 10), ("d", 20)):
            nodes = thousands * 1000
            sizes[f"{thousands}k-{density}"] = {"nodes": nodes, "edges": nodes * edges_per_node, "snapshots": 5}
    return sizes


SIZES = _published_sizes()
"""The published sizes by name. Edges of 20k-m follow the text (10 per node); the table prints half of that."""
