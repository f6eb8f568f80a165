"""Graphs that grow along a curve, from a few snapshots to ten thousand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph.build import Edges
from strobe.graph.synthetic.base import Flash, Generator, check_count, check_exponent, check_number
from strobe.graph.synthetic.curves import CURVES, Curve, apportion, growth_curve
from strobe.graph.synthetic.draws import distinct, first_ids, power_law
from strobe.graph.synthetic.ties import Ties
from strobe.ops.csr import IntArray


@dataclass(frozen=True, kw_only=True)
class Growth(Generator):
    """A graph whose nodes and edges grow from snapshot to snapshot (DyGNeX, §5.1, §5.4 and appendix E).

    ``nodes`` and ``edges`` are averages per snapshot, ``ratio`` is the last snapshot's size over the first's, along
    ``curve``: linear, exponential or saturating. Edges fluctuate around the curve by ``noise`` (relative standard
    deviation), nodes do not: they join in order of id and stay; ``constant_nodes`` gives every snapshot all of
    them. Each edge ends with probability ``churn`` per snapshot, the oldest ones too where the curve falls.
    Degrees follow a power law. Edges add up to edges x snapshots exactly, nodes to a rounding per snapshot.
    """

    name: ClassVar[str] = "growth"
    snapshots: int = 50
    nodes: int = 20_000
    edges: int = 150_000
    curve: Curve = "linear"
    ratio: float = 4.0
    noise: float = 0.05
    constant_nodes: bool = False
    churn: float = 0.1
    exponent: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("snapshots", self.snapshots, least=1, most=1_000_000)
        check_count("nodes", self.nodes, least=1)
        check_count("edges", self.edges)
        if self.curve not in CURVES:
            raise OptionError(f"curve must be one of {', '.join(CURVES)}, not {self.curve!r}")
        check_number("ratio", self.ratio, least=1, most=1e9)
        check_number("noise", self.noise)
        check_number("churn", self.churn)
        check_exponent(self.exponent)
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
        """How many nodes each snapshot has, [T], never falling."""
        curve = growth_curve(self.snapshots, 1.0 if self.constant_nodes else self.ratio, self.curve)
        counts: IntArray = np.rint(curve * (self.nodes / curve.mean())).astype(np.int64).clip(min=1)
        return counts

    @cached_property
    def edges_per_snapshot(self) -> IntArray:
        """How many edges each snapshot has, [T]."""
        rng = np.random.default_rng([self.seed, 3])
        noisy = np.maximum(1 + self.noise * rng.standard_normal(self.snapshots), 0)
        return apportion(growth_curve(self.snapshots, self.ratio, self.curve) * noisy, self.edges * self.snapshots)

    def flashes(self) -> Iterator[Flash]:
        ties = Ties(self.seed)
        sizes = zip(self.nodes_per_snapshot.tolist(), self.edges_per_snapshot.tolist(), strict=True)
        for num_nodes, num_edges in sizes:
            ties.step(num_edges, self.churn)
            yield Flash(self._edges(ties), first_ids(num_nodes))

    def _edges(self, ties: Ties) -> Iterator[Edges]:
        for numbers, born in ties.parts():
            size = self.nodes_per_snapshot[born]
            src = power_law(numbers[:, 0], size, self.exponent)
            yield Edges(src, distinct(src, power_law(numbers[:, 1], size, self.exponent), size))
