"""Nodes shared out by what it takes to compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.base import Placed, Placement
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class LoadAware(Placement):
    """Every node, with all its cells, on a rank such that ranks have even loads over all time.

    The load of a node is what its cells read in all layers of convolutions if each is computed by itself: so many walks
    along arcs end in them (Song et al. 2024, §4.2). ``layers``: of the model, or how many to count. Nodes are dealt
    from the heaviest to the lightest, in turns from the first rank to the last and back, where the paper always begins
    with the first: loads differ by the heaviest node's at most, as there, but mostly by far less. Blind to edges, as
    hash is.
    """

    name: ClassVar[str] = "load-aware"
    wants_work: ClassVar[bool] = True
    layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None and self.layers < 1:
            raise OptionError(f"loads are counted over at least 1 layer, not {self.layers}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, seed
        work = Work() if work is None else work
        layers = work.hops if self.layers is None else self.layers
        loads = walks(graph, layers)
        return replace(Placed.by_node(num_ranks, dealt(loads, num_ranks), len(graph)), loads=loads)


def walks(graph: DynamicGraph, layers: int) -> FloatArray:
    """What every node reads over all time, [N]: for each layer, the walks of at most as many arcs that end in its
    cells (Definition 2). Whole numbers, exact up to 2**53; beyond, rounded alike on every machine."""
    loads = np.zeros(graph.num_nodes)
    for snapshot in graph:
        read, reader = snapshot.arcs()
        ending: FloatArray = np.ones(snapshot.num_nodes)  # walks that end in each cell; of no arcs, one
        for length in range(1, layers + 1):
            ending = np.bincount(reader, ending[read], snapshot.num_nodes).astype(np.float64)
            loads[snapshot.nodes] += (layers - length + 1) * ending  # this layer and all above have walks as long
    return loads


def dealt(loads: FloatArray, num_ranks: int) -> IntArray:
    """The rank of each node, [N]: by falling load, of equals by id, to all ranks in turn and back again."""
    turn = np.arange(len(loads)) % (2 * num_ranks)
    ranks = np.empty(len(loads), np.int64)
    ranks[np.argsort(-loads, kind="stable")] = np.minimum(turn, 2 * num_ranks - 1 - turn)
    return ranks


def balanced_groups(nodes: IntArray, loads: FloatArray, number: int) -> list[IntArray]:
    """Some nodes in so many groups of about as many nodes each, from those with the highest load to those with the
    lowest (Algorithm 1, line 12); each group ascends. Of fewer nodes there are fewer groups."""
    order = nodes[np.argsort(-loads[nodes], kind="stable")]
    return [np.sort(group) for group in np.array_split(order, max(1, min(number, len(order))))]
