"""Placement of nodes by their computational load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class LoadAware(Placement):
    """Every node, with all its cells, on one rank, with even loads over all time.

    The load of a node is the number of walks along arcs that end in its cells, over ``layers`` convolutions (None:
    those of the model; Song et al. 2024, §4.2). Nodes are assigned by descending load in snake order, where the paper
    always begins with the first rank: loads differ by at most the heaviest node, as there, but mostly by far less.
    Ignores edges, like hash.
    """

    name: ClassVar[str] = "load-aware"
    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)
    needs_model_costs: ClassVar[bool] = True
    layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None and self.layers < 1:
            raise OptionError(f"layers of {self.name} must be at least 1, not {self.layers}")

    def partition(self, request: PlacementRequest) -> Partition:
        loads = count_walks(request.graph, request.costs.hops if self.layers is None else self.layers)
        node_owner = assign_in_snake_order(loads, request.num_ranks)
        partition = Partition.by_node(request.num_ranks, node_owner, len(request.graph))
        return replace(partition, node_loads=loads)


def count_walks(graph: DynamicGraph, layers: int) -> FloatArray:
    """Load of every node, [N]: over all layers, the walks of at most as many arcs that end in its cells (Definition 2).

    Exact up to 2**53.
    """
    loads = np.zeros(graph.num_nodes)
    for snapshot in graph:
        read, reader = snapshot.arcs()
        ending: FloatArray = np.ones(snapshot.num_nodes)  # walks that end in each cell
        for length in range(1, layers + 1):
            ending = np.bincount(reader, ending[read], snapshot.num_nodes).astype(np.float64)
            loads[snapshot.nodes] += (layers - length + 1) * ending  # counted in this layer and all above
    return loads


def assign_in_snake_order(loads: FloatArray, num_ranks: int) -> IntArray:
    """Rank of each node, [N]: by descending load, ties by id, to ranks 0 … W - 1, W - 1 … 0, …"""
    position = np.arange(len(loads)) % (2 * num_ranks)
    ranks = np.empty(len(loads), np.int64)
    ranks[np.argsort(-loads, kind="stable")] = np.minimum(position, 2 * num_ranks - 1 - position)
    return ranks


def stratify_by_load(nodes: IntArray, loads: FloatArray, num_strata: int) -> list[IntArray]:
    """Split nodes by descending load into strata of similar size, ascending in each (Algorithm 1, line 12); fewer
    strata if there are fewer nodes."""
    order = nodes[np.argsort(-loads[nodes], kind="stable")]
    return [np.sort(group) for group in np.array_split(order, max(1, min(num_strata, len(order))))]
