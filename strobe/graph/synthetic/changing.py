"""Graphs of constant size in which a given share of features and edges changes between snapshots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.build import Edges, GraphBuilder, Sink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.synthetic.base import GeneratedSnapshot, Generator, check_count, count, number
from strobe.graph.synthetic.draws import EvolvingEdges, avoid_self_loops
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype

Bits = npt.NDArray[np.uint8]

_BLOCK = 1 << 15  # rows of features changed at once; the result does not depend on it


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

    @property
    def num_snapshots(self) -> int:
        return self.snapshots

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
