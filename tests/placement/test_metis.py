from __future__ import annotations

import sys
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import MissingPackageError
from strobe.graph import from_edges
from strobe.placement import Greedy, Metis, MetisPerSnapshot, MetisSoFar
from strobe.placement.loads import loads_of_ranks
from strobe.placement.metis import assign_to_smallest
from tests.support.graphs import AWKWARD
from tests.support.placement_cases import communities, owned

pytest.importorskip("pymetis")


def test_communities_stay_together_through_time() -> None:
    graph = communities([5, 5, 5, 5], 3)
    of_node = Metis().place(graph, [], 4).node_owner
    assert [len(set(of_node[first : first + 5].tolist())) for first in range(0, 20, 5)] == [1, 1, 1, 1]
    assert len(set(of_node.tolist())) == 4


def test_an_edge_weighs_as_much_as_snapshots_have_it() -> None:
    # A ladder of ten rungs that are there once; its two rails are there eight times: to saw through them costs 16.
    rails = [(side + at, side + at + 1) for side in (0, 10) for at in range(9)]
    rungs = [(at, 10 + at) for at in range(10)]
    shots = [np.array(rails).T] * 8 + [np.array(rungs).T]
    of_node = Metis().place(from_edges(shots, num_nodes=20, directed=False), [], 2).node_owner
    assert len(set(of_node[:10].tolist())) == len(set(of_node[10:].tolist())) == 1
    assert of_node[0] != of_node[10]


def test_loads_are_even_over_all_time() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 500, 1500), random.integers(0, 500, 1500)]) for _ in range(4)]
    graph = from_edges(shots, num_nodes=500)
    of_ranks = loads_of_ranks(graph, Metis().place(graph, [], 5), [range(4)])
    assert of_ranks.max() < 1.05 * of_ranks.min()


def test_one_rank_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = AWKWARD["isolated nodes"].build()
    assert not Metis().place(graph, [], 1).node_owner.any()
    with pytest.raises(MissingPackageError):
        Metis().place(graph, [], 2)


def test_every_snapshot_is_even() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 300, 900), random.integers(0, 300, 900)]) for _ in range(3)]
    graph = from_edges(shots, num_nodes=300)
    placed = MetisPerSnapshot().place(graph, [], 4)
    of_ranks = loads_of_ranks(graph, placed, [range(t, t + 1) for t in range(3)])
    assert (of_ranks.max(axis=1) < 1.05 * of_ranks.min(axis=1)).all()


def test_nodes_stay_while_nothing_changes() -> None:
    graph = communities([4, 7, 5], 4)
    owners = owned(graph, MetisPerSnapshot().place(graph, [], 3))
    assert all(owner == owners[0, v] for (_, v), owner in owners.items())


def test_no_other_ranks_for_its_parts_would_let_more_nodes_stay() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 60, 90), random.integers(0, 60, 90)]) for _ in range(6)]
    graph = from_edges(shots, num_nodes=60)
    placed = MetisPerSnapshot().place(graph, [], 3)
    owners = [placed.owners(graph, t) for t in range(6)]
    for before, after in pairwise(owners):
        most = max(int((np.array(names)[after] == before).sum()) for names in permutations(range(3)))
        assert int((after == before).sum()) == most


def test_communities_go_back_to_the_rank_they_had_before_they_left() -> None:
    nodes = [range(12), range(6), range(12)]
    edges = [(a, b) for first in (0, 6) for a in range(first, first + 6) for b in range(first, a)]
    shots = [np.array([edge for edge in edges if edge[0] in present]).T for present in nodes]
    graph = from_edges(shots, num_nodes=12, nodes=nodes, directed=False)
    owners = owned(graph, MetisPerSnapshot().place(graph, [], 2))
    assert [owners[0, v] for v in range(12)] == [owners[2, v] for v in range(12)]
    assert len({owners[0, v] for v in range(12)}) == 2


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


pytest.importorskip("pymetis")


def test_parts_of_the_first_snapshot_are_metis_parts_and_stay() -> None:
    first = communities([6, 6], 1)
    sources, destinations, _ = first[0].edges()
    across = np.stack([np.arange(6), np.arange(6, 12)])
    graph = from_edges([np.stack([sources, destinations]), across, across], num_nodes=12, directed=False)
    owners = owned(graph, Greedy().place(graph, [], 2))
    assert {owners[0, v] for v in range(6)} != {owners[0, v] for v in range(6, 12)}
    assert all(owner == owners[0, v] for (_, v), owner in owners.items())


def test_the_first_snapshot_is_the_first_with_nodes() -> None:
    empty = np.zeros((2, 0), np.int64)
    cliques = np.array([(a, b) for first in (0, 5) for a in range(first, first + 5) for b in range(first, a)]).T
    graph = from_edges([empty, cliques], num_nodes=10, nodes=[[], range(10)], directed=False)
    owners = owned(graph, Greedy().place(graph, [], 2))
    assert len({owners[1, v] for v in range(5)}) == len({owners[1, v] for v in range(5, 10)}) == 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 20))
def test_newcomers_join_the_rank_with_fewest(counts: list[int], number: int) -> None:
    now = list(counts)
    for rank in assign_to_smallest(np.array(counts), number).tolist():
        assert rank == now.index(min(now))
        now[rank] += 1
