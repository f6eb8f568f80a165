"""What tests of placements share: graphs with communities, and who owns what, the slow way."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from strobe.graph import DynamicGraph, from_edges
from strobe.ops.graph.label_propagation import Labels
from strobe.placement import Partition
from strobe.placement.model_costs import CELL_LOAD
from tests.support.graphs import PlainGraph


def communities(sizes: list[int], num_snapshots: int) -> DynamicGraph:
    """Complete graphs side by side, one edge from each to the next, the same in all snapshots."""
    edges, first = [], 0
    for size in sizes:
        edges += [(first + a, first + b) for a in range(size) for b in range(a)]
        edges += [(first, first - 1)] if first else []
        first += size
    return from_edges([np.array(edges).T] * num_snapshots, num_nodes=first, directed=False)


def chain(loads: list[int]) -> DynamicGraph:
    """A snapshot without edges for each load, which is its number of cells."""
    empty = np.zeros((2, 0), np.int64)
    return from_edges([empty] * len(loads), num_nodes=max([1, *loads]), nodes=[range(load) for load in loads])


def owned(graph: DynamicGraph, placed: Partition) -> dict[tuple[int, int], int]:
    """The owner of every cell (t, node)."""
    return {
        (t, v): owner
        for t in range(len(graph))
        for v, owner in zip(graph[t].nodes.tolist(), placed.owners(graph, t).tolist(), strict=True)
    }


def loads(plain: PlainGraph) -> dict[tuple[int, int], int]:
    """What every cell (t, node) costs."""
    cost: dict[tuple[int, int], int] = defaultdict(int)
    for t, v in plain.cells():
        cost[t, v] += CELL_LOAD
    for t in range(len(plain.snapshots)):
        for destination, _, _ in plain.arcs(t):
            cost[t, destination] += 1
    return dict(cost)


def smallest_largest(loads: list[int], num_blocks: int) -> int:
    """The largest block of the best of all ways to cut a row into consecutive blocks, some of them empty perhaps."""
    if num_blocks == 1:
        return sum(loads)
    ways = range(len(loads) + 1)
    return min(max(sum(loads[:first]), smallest_largest(loads[first:], num_blocks - 1)) for first in ways)


def owners_of_cells(graph: DynamicGraph, placed: Partition) -> Labels:
    """The owner of every cell, t-major."""
    return np.array(list(owned(graph, placed).values()), np.int32)
