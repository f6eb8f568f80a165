"""METIS asked for chunks: nodes grouped for all time, within ranks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import MissingPackageError, OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.ops.csr import IntArray
from strobe.placement import Metis, Placed
from strobe.placement.loads import loads_of_nodes
from strobe.placement.node_chunks import dealt
from strobe.placement.union import union
from strobe.plan import Plan
from tests.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.placement.cases import communities

pytest.importorskip("pymetis")


def random_graph(num_nodes: int, num_edges: int, num_snapshots: int = 3) -> DynamicGraph:
    random = np.random.default_rng(0)
    shots = [random.integers(0, num_nodes, (2, num_edges)) for _ in range(num_snapshots)]
    return from_edges(shots, num_nodes=num_nodes)


def chunks_of(placed: Placed) -> IntArray:
    assert placed.chunk_of_node is not None
    return placed.chunk_of_node


def cut(graph: DynamicGraph, of_node: IntArray) -> int:
    """Snapshots of pairs that are not together."""
    there = np.flatnonzero(loads_of_nodes(graph))
    found = union(graph, there).tocoo()
    return int(found.data[of_node[there[found.row]] != of_node[there[found.col]]].sum())


def check(placed: Placed, num_nodes: int) -> None:
    """Every node has a chunk, every chunk a node and one rank, and numbers leave none out."""
    chunk = chunks_of(placed)
    assert chunk.shape == (num_nodes,)
    assert sorted(set(chunk.tolist())) == list(range(len(placed.rank_of_chunk)))
    assert (placed.rank_of_chunk[chunk] == placed.of_node).all()


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
    assert (with_chunks.of_node == without.of_node)[there].all()
    assert with_chunks.of_sequence is not None
    assert (with_chunks.of_sequence == with_chunks.of_node).all()
    assert without.chunk_of_node is None


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
    assert np.bincount(placed.rank_of_chunk).tolist() == [16] * num_ranks
    assert loads.max() < 1.1 * loads.mean()
    assert cut(graph, chunks_of(placed)) < 0.8 * cut(graph, np.random.default_rng(1).permutation(chunks_of(placed)))


def test_the_same_seed_gives_the_same_chunks_and_another_gives_others() -> None:
    graph = random_graph(300, 900)
    first, again, other = (chunks_of(Metis(chunks=4).place(graph, [], 2, seed=seed)).tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_of_fewer_nodes_there_are_fewer_chunks() -> None:
    graph = communities([2, 3], 2)
    placed = Metis(chunks=64).place(graph, [], 2)
    check(placed, 5)
    assert len(placed.rank_of_chunk) == 5


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_nodes_without_edges_are_chunked_evenly(num_ranks: int) -> None:
    graph = from_edges([np.zeros((2, 0), np.int64)] * 2, num_nodes=120, nodes=[range(120)] * 2)
    placed = Metis(chunks=4).place(graph, [], num_ranks)
    check(placed, 120)
    sizes = np.bincount(chunks_of(placed))
    assert len(sizes) == 4 * num_ranks
    assert sizes.max() - sizes.min() <= 2


def test_isolated_nodes_beside_a_community_are_chunked_evenly() -> None:
    pairs = np.array([(a, b) for a in range(10) for b in range(a)]).T
    graph = from_edges([pairs], num_nodes=400, nodes=[range(400)], directed=False)
    placed = Metis(chunks=8).place(graph, [], 2)
    check(placed, 400)
    loads = np.bincount(chunks_of(placed), loads_of_nodes(graph))
    assert loads.max() < 1.25 * loads.min()


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
    assert placed.rank_of_chunk.tolist() == [0]


def test_dealing_begins_with_the_first_chunk() -> None:
    assert dealt(np.array([1, 0, 2]), np.array([1, 2, 5]), 8).tolist() == [0, 1, 0, 1, 2, 2, 0, 1]


def test_chunks_are_promised_where_they_were_asked_for() -> None:
    assert "node chunks" in Metis(chunks=2).gives
    assert "node chunks" not in Metis().gives
    plan = Plan(placement=Metis(chunks=5))
    assert Plan.from_json(plan.to_json()) == plan


def test_a_number_of_chunks_that_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match=r"at least 1 chunk on each rank, or 0 for none, not -1"):
        Metis(chunks=-1)


def test_chunks_on_one_rank_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingPackageError):
        Metis(chunks=2).place(AWKWARD["isolated nodes"].build(), [], 1)
