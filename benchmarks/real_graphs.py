"""Real graphs on which placements are compared, where their data was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import strobe
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph, Snapshot

GRAPHS: dict[str, dict[str, Any]] = {
    "mathoverflow_monthly": {"life": 3},
    "as733": {},
    "rust_git": {"life": 3},
    "icews18": {},
}
"""How each is loaded: an event's edge lives for three months."""


def real_graphs(names: Iterable[str]) -> Iterator[tuple[str, DynamicGraph]]:
    """Graphs whose edges are read from both sides, as convolutions usually do; as733 once a week. Who is absent is told
    on the screen."""
    for name in names:
        try:
            graph = strobe.load(name, **GRAPHS[name])
        except StrobeError as error:
            print(f"{name}: {error}")
            continue
        yield name, undirected(graph[::7] if name == "as733" else graph)


def undirected(graph: DynamicGraph) -> DynamicGraph:
    """The same cells; every pair that has edges has one, without direction."""
    pairs = [_pairs(snapshot, graph.num_nodes) for snapshot in graph]
    nodes = [snapshot.nodes for snapshot in graph]
    return strobe.from_edges(pairs, nodes=nodes, num_nodes=graph.num_nodes, directed=False)


def _pairs(snapshot: Snapshot, num_nodes: int) -> np.ndarray[Any, Any]:
    ends = [snapshot.nodes[end].astype(np.int64) for end in snapshot.arcs()]
    low, high = np.minimum(*ends), np.maximum(*ends)
    return np.stack(np.divmod(np.unique(low * num_nodes + high), num_nodes))
