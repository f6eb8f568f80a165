"""Graphs with snapshots of uneven size and sequences of uneven length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph.build import Edges
from strobe.graph.synthetic.base import (
    GeneratedSnapshot,
    Generator,
    apportion,
    check_number,
    count,
    number,
)
from strobe.graph.synthetic.draws import RandomRows, RowRuns, avoid_self_loops, node_range
from strobe.ops.sparse.csr import IntArray


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

    @property
    def num_snapshots(self) -> int:
        return self.snapshots

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
            yield GeneratedSnapshot(_edges(draws, RowRuns(*np.array([[row], [num_edges], [t]])), nodes), nodes)
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


def _edges(draws: RandomRows, runs: RowRuns, nodes: IntArray) -> Iterator[Edges]:
    for numbers, _ in draws.parts(runs):
        src, dst = ((numbers[:, end] * nodes.size).astype(np.int64) for end in (0, 1))
        yield Edges(nodes[src], nodes[avoid_self_loops(src, dst, nodes.size)])
