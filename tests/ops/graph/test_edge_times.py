"""Features of nodes and pairs against sets of edges, looked at one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph.edge_times import EdgeTimes
from tests.support.plain_edge_times import Arc, node_row, pair_row

NODES = 5

arcs = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 30)).filter(lambda e: e[0] != e[1]),
    max_size=25,
    unique=True,
)


def build(edges: list[Arc], *, directed: bool) -> tuple[EdgeTimes, list[Arc]]:
    if not directed:
        edges = sorted({arc for u, v, t in edges for arc in ((u, v, t), (v, u, t))})
    found = EdgeTimes(directed=directed)
    src, dst, times = np.array(edges, np.int64).reshape(-1, 3).T
    found.append(src, dst, times, NODES)
    return found, edges


def check(found: EdgeTimes, edges: list[Arc], t: int, num_nodes: int) -> None:
    """Compare the features of all nodes and pairs with their definitions."""
    pairs = list(product(range(num_nodes), repeat=2))
    src, dst = np.array(pairs).T
    expected = [pair_row(edges, t, *pair, directed=found.directed) for pair in pairs]
    np.testing.assert_allclose(found.pair_features(t, src, dst), expected, rtol=1e-6)
    nodes = [node_row(edges, t, node, directed=found.directed) for node in range(num_nodes)]
    np.testing.assert_allclose(found.node_features(t, np.arange(num_nodes)), nodes, rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(arcs, st.booleans(), st.integers(0, 31))
def test_features_are_those_of_the_edges_so_far(edges: list[Arc], directed: bool, t: int) -> None:
    found, edges = build(edges, directed=directed)
    check(found, edges, t, NODES)


@settings(deadline=None, max_examples=30)
@given(st.data(), st.booleans())
def test_features_of_a_growing_graph_are_those_of_the_edges_so_far(data: st.DataObject, directed: bool) -> None:
    """Edges last for some snapshots, nodes are added, some snapshots are empty, and several may arrive at once."""
    found, edges, num_nodes, now = EdgeTimes(directed=directed), [], 2, 0
    kept: set[tuple[int, int]] = set()
    for _ in range(data.draw(st.integers(1, 6))):
        fresh: list[Arc] = []
        num_nodes += data.draw(st.integers(0, 2))
        for _ in range(data.draw(st.integers(1, 4))):
            pair = st.tuples(st.integers(0, num_nodes - 1), st.integers(0, num_nodes - 1)).filter(
                lambda e: e[0] != e[1]
            )
            kept = data.draw(st.sets(st.sampled_from(sorted(kept)))) if kept else kept
            kept |= data.draw(st.sets(pair, max_size=4))
            fresh += [(u, v, now) for u, v in (kept if directed else kept | {(v, u) for u, v in kept})]
            now += 1
        src, dst, times = np.array(fresh, np.int64).reshape(-1, 3).T
        found.append(src, dst, times, num_nodes)
        edges += fresh
        for t in data.draw(st.sets(st.integers(0, now), max_size=2)):
            check(found, edges, t, num_nodes)


def test_runs_of_snapshots_take_no_memory_for_each() -> None:
    found = EdgeTimes(directed=False)
    for t in range(100):
        found.append(np.array([0, 1]), np.array([1, 0]), np.array([t, t]), 2)
    assert found.neighbors.runs.size.tolist() == [1, 1]
    assert len(found.neighbors.runs.times) < 10


@settings(deadline=None, max_examples=30)
@given(arcs, arcs, st.booleans(), st.integers(0, 30))
def test_later_edges_change_nothing(edges: list[Arc], later: list[Arc], directed: bool, t: int) -> None:
    known = [arc for arc in edges if arc[2] <= t]
    future = [arc for arc in later if arc[2] > t]
    src, dst = np.array(list(product(range(NODES), repeat=2))).T
    alone, whole = build(known, directed=directed)[0], build(known + future, directed=directed)[0]
    assert alone.pair_features(t, src, dst).tolist() == whole.pair_features(t, src, dst).tolist()
    assert alone.node_features(t, src).tolist() == whole.node_features(t, src).tolist()


def test_nodes_beyond_the_known_ones_have_zeros() -> None:
    found, _ = build([(0, 1, 0)], directed=True)
    assert not found.node_features(3, np.array([NODES, NODES + 7])).any()
    assert not found.pair_features(3, np.array([NODES, 0]), np.array([0, NODES])).any()
