"""Graphs that grow along a curve, from a few snapshots to ten thousand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph.build import Edges
from strobe.graph.synthetic.base import (
    CURVES,
    Curve,
    GeneratedSnapshot,
    Generator,
    apportion,
    count,
    growth_curve,
    number,
    power_law_exponent,
)
from strobe.graph.synthetic.draws import EvolvingEdges, avoid_self_loops, node_range, power_law_indices
from strobe.ops.sparse.csr import IntArray


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

    @property
    def num_snapshots(self) -> int:
        return self.snapshots

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
