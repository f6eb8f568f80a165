from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings

from strobe.placement.loads import loads_of_nodes
from strobe.placement.union import links, union
from tests.graphs import PlainGraph, dynamic_graphs


def pairs(plain: PlainGraph, t: int) -> set[tuple[int, int]]:
    """Both directions of every edge between two nodes, once."""
    both = {(a, b) for a, b, _ in plain.arcs(t)} | {(b, a) for a, b, _ in plain.arcs(t)}
    return {(a, b) for a, b in both if a != b}


@given(dynamic_graphs(carried=False))
def test_links_join_every_pair_with_an_edge_once(plain: PlainGraph) -> None:
    graph = plain.build()
    for t, snapshot in enumerate(graph):
        found = links(snapshot).tocoo()
        joined = zip(snapshot.nodes[found.row].tolist(), snapshot.nodes[found.col].tolist(), strict=True)
        assert sorted(joined) == sorted(pairs(plain, t))
        assert (found.data == 1).all()


@settings(deadline=None)  # the first call compiles
@given(dynamic_graphs(carried=False, max_snapshots=7))
def test_the_union_counts_the_snapshots_of_every_pair(plain: PlainGraph) -> None:
    graph = plain.build()
    nodes = np.flatnonzero(loads_of_nodes(graph))
    found = union(graph, nodes).tocoo()
    counted = zip(nodes[found.row].tolist(), nodes[found.col].tolist(), strict=True)
    expected = Counter(pair for t in range(len(graph)) for pair in pairs(plain, t))
    assert dict(zip(counted, found.data.tolist(), strict=True)) == dict(expected)
    assert found.shape == (len(nodes), len(nodes))
