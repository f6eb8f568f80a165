from __future__ import annotations

import sys
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import MissingPackageError
from strobe.graph import DynamicGraph, from_edges
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Metis, Partition
from strobe.placement.algorithms.metis import (
    bisect_graph,
    part_graph,
    relabel_to_match,
    snapshot_adjacency,
    union_adjacency,
)
from strobe.placement.loads import loads_of_nodes
from tests.support.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.support.placement_cases import communities

pytest.importorskip("pymetis")


def no_links(size: int) -> sp.csr_array:
    return sp.csr_array((size, size), dtype=np.int32)


def sums(part: IntArray, loads: IntArray, num_parts: int) -> list[int]:
    return [int(load) for load in np.bincount(part, loads, num_parts)]


def test_communities_stay_together() -> None:
    part = part_graph(snapshot_adjacency(communities([6, 6, 6], 1)[0]), np.ones(18, np.int64), 3)
    assert [len(set(part[first : first + 6].tolist())) for first in (0, 6, 12)] == [1, 1, 1]
    assert len(set(part.tolist())) == 3


def test_loads_whose_sum_does_not_fit_into_32_bits_are_even_all_the_same() -> None:
    loads = np.random.default_rng(0).integers(1, 100, 1000) * 10**9
    found = sums(part_graph(no_links(1000), loads, 4), loads, 4)
    assert max(found) < 1.05 * min(found)


def test_a_node_that_fills_a_part_has_one_to_itself_and_the_others_share_the_rest() -> None:
    loads = np.array([1000, *[1] * 30])
    found = sorted(sums(part_graph(no_links(31), loads, 4), loads, 4))
    assert found == [10, 10, 10, 1000]


def test_fewer_nodes_than_parts_have_one_each() -> None:
    assert sorted(part_graph(no_links(3), np.array([5, 1, 2]), 8).tolist()) == [0, 1, 2]
    assert part_graph(no_links(0), np.zeros(0, np.int64), 4).tolist() == []


def test_bisections_have_the_requested_share() -> None:
    loads = np.random.default_rng(0).integers(1, 100, 1000)
    for share in (0.1, 0.5, 0.8):
        for half in bisect_graph(no_links(1000), loads, share):
            assert abs(sums(half, loads, 2)[0] / loads.sum() - share) < 0.03


def test_small_graphs_are_cut_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(1)
    for num_parts in (2, 3, 7, 16):
        for size in range(num_parts + 1, 3 * num_parts):
            part = part_graph(no_links(size), (random.pareto(1, size) * 10).astype(np.int64) + 1, num_parts)
            assert part.shape == (size,)
            assert part.max() < num_parts
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingPackageError, match="pip install pymetis"):
        part_graph(no_links(3), np.ones(3, np.int64), 2)
    with pytest.raises(MissingPackageError, match="pip install pymetis"):
        bisect_graph(no_links(3), np.ones(3, np.int64), 0.5)


def pairs(plain: PlainGraph, t: int) -> set[tuple[int, int]]:
    """Both directions of every edge between two nodes, once."""
    both = {(a, b) for a, b, _ in plain.arcs(t)} | {(b, a) for a, b, _ in plain.arcs(t)}
    return {(a, b) for a, b in both if a != b}


@given(dynamic_graphs(carried=False))
def test_links_join_every_pair_with_an_edge_once(plain: PlainGraph) -> None:
    graph = plain.build()
    for t, snapshot in enumerate(graph):
        found = snapshot_adjacency(snapshot).tocoo()
        joined = zip(snapshot.nodes[found.row].tolist(), snapshot.nodes[found.col].tolist(), strict=True)
        assert sorted(joined) == sorted(pairs(plain, t))
        assert (found.data == 1).all()


@settings(deadline=None)  # the first call compiles
@given(dynamic_graphs(carried=False, max_snapshots=7))
def test_the_union_counts_the_snapshots_of_every_pair(plain: PlainGraph) -> None:
    graph = plain.build()
    nodes = np.flatnonzero(loads_of_nodes(graph))
    found = union_adjacency(graph, nodes).tocoo()
    counted = zip(nodes[found.row].tolist(), nodes[found.col].tolist(), strict=True)
    expected = Counter(pair for t in range(len(graph)) for pair in pairs(plain, t))
    assert dict(zip(counted, found.data.tolist(), strict=True)) == dict(expected)
    assert found.shape == (len(nodes), len(nodes))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), max_size=12))
def test_no_other_names_keep_more_nodes_where_they_were(nodes: list[tuple[int, int]]) -> None:
    part, last = np.array(nodes, np.int64).reshape(-1, 2).T
    best = max(int((np.array(names)[part] == last).sum()) for names in permutations(range(4)))
    assert int((relabel_to_match(part, last, 4) == last).sum()) == best


def random_graph(num_nodes: int, num_edges: int, num_snapshots: int = 3) -> DynamicGraph:
    random = np.random.default_rng(0)
    shots = [random.integers(0, num_nodes, (2, num_edges)) for _ in range(num_snapshots)]
    return from_edges(shots, num_nodes=num_nodes)


def chunks_of(placed: Partition) -> IntArray:
    assert placed.node_chunk is not None
    return placed.node_chunk


def cut(graph: DynamicGraph, of_node: IntArray) -> int:
    """Snapshots of pairs that are not together."""
    there = np.flatnonzero(loads_of_nodes(graph))
    found = union_adjacency(graph, there).tocoo()
    return int(found.data[of_node[there[found.row]] != of_node[there[found.col]]].sum())


def check(placed: Partition, num_nodes: int) -> None:
    """Every node has a chunk, every chunk a node and one rank, and numbers leave none out."""
    chunk = chunks_of(placed)
    assert chunk.shape == (num_nodes,)
    assert sorted(set(chunk.tolist())) == list(range(len(placed.chunk_owner)))
    assert (placed.chunk_owner[chunk] == placed.node_owner).all()


@settings(deadline=None)  # the first call compiles
@given(dynamic_graphs(carried=False), st.integers(1, 4), st.integers(1, 9))
def test_every_node_has_a_chunk_and_every_chunk_nodes_of_one_rank(
    plain: PlainGraph, num_ranks: int, chunks: int
) -> None:
    graph = plain.build()
    check(Metis(chunks=chunks).place(graph, [], num_ranks), graph.num_nodes)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_chunks_do_not_change_who_owns_a_cell(num_ranks: int) -> None:
    graph = random_graph(200, 300)
    there = np.flatnonzero(loads_of_nodes(graph))
    with_chunks, without = (Metis(chunks=chunks).place(graph, [], num_ranks) for chunks in (8, 0))
    assert (with_chunks.node_owner == without.node_owner)[there].all()
    assert with_chunks.sequence_owner is not None
    assert (with_chunks.sequence_owner == with_chunks.node_owner).all()
    assert without.node_chunk is None


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_communities_are_chunks(num_ranks: int) -> None:
    graph = communities([5] * 8, 3)
    chunk = chunks_of(Metis(chunks=8 // num_ranks).place(graph, [], num_ranks))
    assert [len(set(chunk[first : first + 5].tolist())) for first in range(0, 40, 5)] == [1] * 8
    assert len(set(chunk.tolist())) == 8


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_chunks_are_even_and_cut_fewer_edges_than_chance(num_ranks: int) -> None:
    graph = random_graph(2000, 3000)
    placed = Metis(chunks=16).place(graph, [], num_ranks)
    loads = np.bincount(chunks_of(placed), loads_of_nodes(graph))
    assert len(loads) == 16 * num_ranks
    assert np.bincount(placed.chunk_owner).tolist() == [16] * num_ranks
    assert loads.max() < 1.1 * loads.mean()
    assert cut(graph, chunks_of(placed)) < 0.8 * cut(graph, np.random.default_rng(1).permutation(chunks_of(placed)))


def test_nodes_that_are_never_present_are_dealt_to_all_chunks() -> None:
    random = np.random.default_rng(0)
    graph = from_edges([random.integers(0, 100, (2, 400))], num_nodes=1000, nodes=[range(100)])
    placed = Metis(chunks=8).place(graph, [], 2)
    check(placed, 1000)
    there = loads_of_nodes(graph) > 0
    absent = np.bincount(chunks_of(placed)[~there])
    assert len(absent) == 16
    assert absent.max() - absent.min() <= 1


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_graph_without_cells_is_one_chunk(num_ranks: int) -> None:
    graph = from_edges([np.zeros((2, 0), np.int64)], num_nodes=4, nodes=[[]])
    placed = Metis(chunks=3).place(graph, [], num_ranks)
    assert chunks_of(placed).tolist() == [0] * 4
    assert placed.chunk_owner.tolist() == [0]


def test_chunks_on_one_rank_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingPackageError):
        Metis(chunks=2).place(AWKWARD["isolated nodes"].build(), [], 1)
