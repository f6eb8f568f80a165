"""A growing social network: hubs, communities, edges that end, nodes that leave and return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from strobe.errors import OptionError
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees, Static
from strobe.graph.sink import Sink
from strobe.graph.synthetic.base import (
    CHUNK,
    EvolvingEdges,
    GeneratedSnapshot,
    Generator,
    apportion,
    count,
    node_range,
    number,
    power_law_exponent,
    power_law_indices,
)
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype

_PERIOD = 24.0  # snapshots in which the fashion goes once round the communities


@dataclass(frozen=True, kw_only=True)
class Social(Generator):
    """A social network of ``nodes`` people over ``snapshots``, with ``edges`` per snapshot on average.

    Nodes join in order of id, from a share ``start`` of them to all; edges grow in proportion. Node v belongs to
    community v mod ``communities``, and a share ``inside`` of edges stays within one. Early members are hubs: degrees
    follow a power law. Each edge ends with probability ``churn`` per snapshot. A share ``away`` of the nodes is absent
    at a time, for about ``spell`` snapshots, and so are their edges.

    What can be learned: a degree is mostly the last one, drawn towards the value of a node's rank and its community's
    turn in fashion (``drift``: 0 none, 1 strong); neighbors mostly share their community (the label, with ``labels``).
    Edges of a snapshot are exact without ``away``, otherwise right on average. Parallel edges are kept, self-loops
    never made.
    """

    name: ClassVar[str] = "social"
    nodes: int = count(2_000, 1)
    snapshots: int = count(30, 1)
    edges: int = count(10_000)
    start: float = number(0.5)
    communities: int = count(8, 1)
    inside: float = number(0.8)
    exponent: float = power_law_exponent()
    churn: float = number(0.2)
    away: float = number(0.02, 0, 0.9)
    spell: float = number(2.0, 1, np.inf)
    drift: float = number(0.5)
    labels: bool = False
    directed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        first = int(self._num_joined[0])
        if self.edges and first < 2 * self.communities:
            raise OptionError(
                f"{self.communities:,} communities need two nodes each from the beginning, the first snapshot has "
                f"{first:,} nodes: ask for fewer communities, more nodes, a larger start, or no edges"
            )

    @property
    def num_nodes(self) -> int:
        return self.nodes

    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        shown = (1 - self.away) ** 2  # share of edges both of whose ends are present
        counts = apportion(self._num_joined.astype(np.float64), round(self.edges * self.snapshots / shown))
        ties = EvolvingEdges(self.seed)
        for t, joined in enumerate(self._num_joined.tolist()):
            ties.step(int(counts[t]), self.churn)
            present = self._presence_mask(t, joined) if self.away else None
            ids = node_range(joined)
            yield GeneratedSnapshot(self._edges(ties, present), ids if present is None else ids[present])

    @cached_property
    def _num_joined(self) -> IntArray:
        """Number of nodes that have joined by each snapshot, [T]; all have by the last."""
        grown = np.linspace(1, self.start, self.snapshots)[::-1]
        return np.maximum(np.rint(grown * self.nodes).astype(np.int64), 1)

    def _presence_mask(self, t: int, joined: int) -> npt.NDArray[np.bool_]:
        """Return which joined nodes are present: each leaves and returns at its own rhythm."""
        present = np.empty(joined, bool)
        phases, rates = (np.random.default_rng([self.seed, stream]) for stream in (3, 4))
        for first in range(0, joined, CHUNK):
            part = present[first : first + CHUNK]
            turn = rates.random(part.size) + 0.5
            turn *= t * self.away / self.spell
            turn += phases.random(part.size)
            np.greater_equal(turn % 1.0, self.away, out=part)
        return present

    def _edges(self, ties: EvolvingEdges, present: npt.NDArray[np.bool_] | None) -> Iterator[Edges]:
        for numbers, born in ties.parts():
            src, dst = self._ends(numbers, born)
            if present is not None:
                both = present[src] & present[dst]
                src, dst = src[both], dst[both]
            yield Edges(src, dst)

    def _ends(self, numbers: FloatArray, born: IntArray) -> tuple[IntArray, IntArray]:
        """Return both ends of the edges with these numbers: a community in fashion, a member, then a friend."""
        num = self.communities
        joined = self._num_joined[born]
        swing = 2 * numbers[:, 0] - 1
        place = born / _PERIOD + 0.5 * swing * np.abs(swing) ** self.drift
        home = (num * (place % 1.0)).astype(np.int64) % num
        other = home.copy()
        outside = np.flatnonzero(numbers[:, 2] >= self.inside)
        jump = (numbers[outside, 2] - self.inside) / (1 - self.inside) if outside.size else np.empty(0)
        other[outside] += 1 + ((num - 1) * jump).astype(np.int64)
        other %= num
        src = self._member(numbers[:, 1], home, joined)
        dst = self._member(numbers[:, 3], other, joined)
        same = np.flatnonzero(src == dst)
        following = src[same] + num
        dst[same] = np.where(following < joined[same], following, home[same])
        return src, dst

    def _member(self, uniform: FloatArray, community: IntArray, joined: IntArray) -> IntArray:
        size = (joined - community + self.communities - 1) // self.communities
        node = power_law_indices(uniform, size, self.exponent) * self.communities + community
        return node.astype(index_dtype(self.nodes))

    def _builder(self, sink: Sink | None) -> GraphBuilder:
        return GraphBuilder(sink, num_nodes=self.nodes, directed=self.directed)

    def _finish(self, builder: GraphBuilder, sink: Sink | None) -> DynamicGraph:
        del sink
        community = Static(np.arange(self.nodes) % self.communities) if self.labels else None
        return builder.finish(features=Degrees(log=True), labels=community, info=self.info())
