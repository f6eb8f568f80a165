from __future__ import annotations

import numpy as np
import pytest

from strobe.graph import from_edges
from strobe.placement import Metis, MetisSoFar
from tests.support.placement_cases import communities, owned

pytest.importorskip("pymetis")


def test_with_all_nodes_there_at_first_it_is_metis_on_the_first_snapshot() -> None:
    random = np.random.default_rng(0)
    shots = [random.integers(0, 60, (2, 120)) for _ in range(4)]
    graph = from_edges(shots, num_nodes=60, directed=False)
    so_far, first = MetisSoFar().place(graph, [], 3, seed=1), Metis().place(graph[:1], [], 3, seed=1)
    part, rank = first.node_owner.tolist(), so_far.node_owner.tolist()
    assert len(set(zip(part, rank, strict=True))) == 3  # but for names


def test_newcomers_go_where_the_union_so_far_has_them() -> None:
    """Two cliques grow, one node each at a time: who is new is with its own."""
    whole = communities([8, 8], 1)
    sources, destinations, _ = whole[0].edges()
    shots, nodes = [], []
    for size in range(4, 9):
        there = [*range(size), *range(8, 8 + size)]
        inside = np.isin(sources, there) & np.isin(destinations, there)
        shots.append(np.stack([sources[inside], destinations[inside]]))
        nodes.append(there)
    graph = from_edges(shots, num_nodes=16, nodes=nodes, directed=False)
    owners = owned(graph, MetisSoFar().place(graph, [], 2))
    assert {owners[4, v] for v in range(8)} == {owners[0, 0]}
    assert {owners[4, v] for v in range(8, 16)} == {owners[0, 8]}
    assert owners[0, 0] != owners[0, 8]


def test_edges_of_earlier_snapshots_count() -> None:
    """A node without neighbours that are known belongs to whom its edges led when it came, also if they are gone."""
    cliques = np.array([(a, b) for first in (0, 5) for a in range(first, first + 5) for b in range(first, a)]).T
    later = np.array([[10, 10, 10], [0, 1, 2]])
    nodes = [range(10), range(11)]
    graph = from_edges([cliques, later], num_nodes=11, nodes=nodes, directed=False)
    owners = owned(graph, MetisSoFar().place(graph, [], 2))
    assert owners[1, 10] == owners[0, 0] != owners[0, 5]
