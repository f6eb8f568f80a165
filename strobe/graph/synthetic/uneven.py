"""Graphs whose snapshots differ in size and whose sequences differ in length, by as much as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph.build import Edges
from strobe.graph.synthetic.base import Flash, Generator, check_count, check_number
from strobe.graph.synthetic.curves import apportion
from strobe.graph.synthetic.draws import Draws, Runs, distinct, first_ids
from strobe.ops.csr import IntArray


@dataclass(frozen=True, kw_only=True)
class Uneven(Generator):
    """``cells`` and ``edges`` in all, spread over ``snapshots`` as unevenly as asked (DGC, §7.3.1).

    Edges per snapshot follow a normal distribution with mean edges / snapshots and standard deviation
    ``edge_spread``, cut at 0 and scaled so that the total holds exactly. Lengths of sequences follow one with
    mean ``mean_length`` and standard deviation ``length_spread``, cut to 1..snapshots and moved by ones until the
    cells add up exactly; there are cells / mean_length nodes. The paper gives the totals and the edges' mean, not
    the number of nodes nor where sequences lie: here each starts anywhere and, past the end, goes on at the
    beginning, so that snapshots stay alike in nodes and the two kinds of unevenness can be set apart.
    Endpoints are drawn uniformly from the nodes present, anew in every snapshot; no self-loops.
    """

    name: ClassVar[str] = "uneven"
    cells: int = 5_000_000
    edges: int = 2_000_000
    snapshots: int = 100
    edge_spread: float = 5_000.0
    mean_length: float = 50.0
    length_spread: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("snapshots", self.snapshots, least=1)
        check_count("cells", self.cells, least=1)
        check_count("edges", self.edges)
        check_number("edge_spread", self.edge_spread, most=np.inf)
        check_number("mean_length", self.mean_length, least=1, most=self.snapshots)
        check_number("length_spread", self.length_spread, most=np.inf)

    @property
    def num_nodes(self) -> int:
        return int(np.ceil(self.cells / self.mean_length))

    @property
    def num_snapshots(self) -> int:
        return self.snapshots

    def flashes(self) -> Iterator[Flash]:
        start, length = self._sequences
        everyone, draws, row = first_ids(self.num_nodes), Draws(self.seed, 1), 0
        for t, count in enumerate(self.edges_per_snapshot.tolist()):
            nodes = everyone[(t - start) % self.snapshots < length]
            if count and nodes.size < 2:
                raise OptionError(
                    f"snapshot {t} is to have {count:,} edges but has {nodes.size} nodes: ask for more cells or fewer "
                    "edges"
                )
            yield Flash(_edges(draws, Runs(*np.array([[row], [count], [t]])), nodes), nodes)
            row += count

    @property
    def edges_per_snapshot(self) -> IntArray:
        """How many edges each snapshot has, [T]."""
        mean = self.edges / self.snapshots
        drawn = np.random.default_rng([self.seed, 2]).normal(mean, self.edge_spread, self.snapshots)
        return apportion(np.maximum(drawn, 0), self.edges)

    @cached_property
    def _sequences(self) -> tuple[IntArray, IntArray]:
        """Where each node's sequence starts and how many cells it has, [N] each."""
        rng = np.random.default_rng([self.seed, 3])
        drawn = rng.normal(self.mean_length, self.length_spread, self.num_nodes)
        length = np.rint(drawn.clip(1, self.snapshots)).astype(np.int64)
        while missing := self.cells - int(length.sum()):
            movable = np.flatnonzero(length < self.snapshots if missing > 0 else length > 1)
            moved = rng.choice(movable, min(abs(missing), movable.size), replace=False)
            length[moved] += np.sign(missing)
        return np.sort(rng.integers(0, self.snapshots, self.num_nodes)), length


def _edges(draws: Draws, runs: Runs, nodes: IntArray) -> Iterator[Edges]:
    for numbers, _ in draws.parts(runs):
        src, dst = ((numbers[:, end] * nodes.size).astype(np.int64) for end in (0, 1))
        yield Edges(nodes[src], nodes[distinct(src, dst, nodes.size)])
