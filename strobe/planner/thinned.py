"""A smaller graph of the same proportions: what computations on the large one take is to be seen on it."""

from __future__ import annotations

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.graph.convert import from_edges
from strobe.ops.csr import IntArray


def thinned(graph: DynamicGraph, nodes: int, *, seed: int = 0) -> DynamicGraph:
    """Some nodes of a graph, drawn at random, with their presence, features and labels, and as many arcs a cell.

    Each cell is read and reads about as often as in the whole graph, but of cells that are here: by whom is drawn.
    """
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.choice(graph.num_nodes, min(nodes, graph.num_nodes), replace=False))
    snapshots = [_Thin(graph[t], few, chosen, draw) for t, few in enumerate(graph.subset(chosen))]
    return from_edges(
        [each.edges for each in snapshots],
        weights=[each.weights for each in snapshots] if graph.weighted else None,
        num_nodes=len(chosen),
        nodes=[each.nodes for each in snapshots],
        x=None if graph.features is None else [np.asarray(each.few.x) for each in snapshots],
        y=None if graph.labels is None else [np.asarray(each.few.y) for each in snapshots],
        times=graph.times,
        directed=graph.directed,
    )


class _Thin:
    """What is left of a snapshot: ``few`` cells of it."""

    def __init__(self, whole: Snapshot, few: Snapshot, chosen: IntArray, draw: np.random.Generator) -> None:
        self.few = few
        self.nodes: IntArray = np.searchsorted(chosen, few.nodes)
        arcs = round(whole.num_arcs * few.num_nodes / max(whole.num_nodes, 1))
        place = np.searchsorted(whole.nodes, few.nodes)
        number = arcs if whole.directed else arcs // 2
        read = self._drawn(whole.out_degree[place], number, draw)
        reader = self._drawn(whole.row_ptr[place + 1] - whole.row_ptr[place], number, draw)
        self.edges = np.stack([read, reader])
        self.weights = np.ones(number, np.float32)

    def _drawn(self, degree: IntArray, number: int, draw: np.random.Generator) -> IntArray:
        """So many of the nodes, each about as often as its degree says."""
        ends = np.repeat(self.nodes, degree)
        if not len(ends):
            ends = self.nodes
        return draw.choice(ends, number) if len(ends) else np.empty(0, np.int64)
