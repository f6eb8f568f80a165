"""Pairs against sets and loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph import from_edges
from strobe.tasks.pairs import MAX_NODES, TargetEdges, contains, edge_keys, merge_keys, pair_keys
from strobe.tasks.positions import find_positions
from tests.support.graphs import PlainGraph, dynamic_graphs

ids = st.sets(st.integers(0, 30)).map(lambda chosen: np.array(sorted(chosen), np.int64))


def future_pairs(plain: PlainGraph, t: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Pairs that will be arcs, by global id: those whose ends are present at t, and the others."""
    present = set(plain.present(t))
    pairs = {(u, v) for v, u, _ in plain.arcs(t + 1) if u != v}
    asked = {pair for pair in pairs if present.issuperset(pair)}
    return asked, pairs - asked


def named(plain: PlainGraph, t: int, future: TargetEdges, keys: np.ndarray) -> list[tuple[int, int]]:
    nodes = np.array(plain.present(t), np.int64)
    src, dst = future.ends(keys)
    return list(zip(nodes[src].tolist(), nodes[dst].tolist(), strict=True))


@given(dynamic_graphs(min_snapshots=2, max_snapshots=2, carried=False))
def test_target_edges_are_unique_edges_between_present_nodes(plain: PlainGraph) -> None:
    graph = plain.build()
    future = TargetEdges.from_snapshots(graph[0], graph[1])
    asked, lost = future_pairs(plain, 0)
    assert named(plain, 0, future, future.arcs) == sorted(asked)
    once = asked if plain.directed else {(u, v) for u, v in asked if u < v}
    assert named(plain, 0, future, future.edges) == sorted(once)
    assert future.num_absent_ends == (len(lost) if plain.directed else len(lost) // 2)


@settings(max_examples=60)
@given(dynamic_graphs(min_snapshots=2, max_snapshots=2, carried=False), st.integers(0, 9))
def test_negatives_are_not_the_source_nor_its_successors(plain: PlainGraph, seed: int) -> None:
    graph = plain.build()
    future = TargetEdges.from_snapshots(graph[0], graph[1])
    successors = Counter(named(plain, 0, future, future.arcs))
    nodes = plain.present(0)
    has, others = future.sample_negatives(np.arange(len(nodes)), 60, np.random.default_rng(seed))
    drawn = iter(others.tolist())
    for at, node in enumerate(nodes):
        free = {other for other in nodes if other != node and (node, other) not in successors}
        assert has[at] == bool(free)
        if free:
            # Sixty draws among at most five miss one with a chance below 1e-5; most cases have fewer.
            chosen = {nodes[place] for place in next(drawn)}
            assert chosen <= free
            assert len(free) > 3 or chosen == free


def test_negatives_are_uniform() -> None:
    # Node 0 will have edges to 1, 4 and 5 of eight: 2, 3, 6 and 7 are left.
    edges = [np.array([[0], [1]]), np.array([[0, 0, 0], [1, 4, 5]])]
    graph = from_edges(edges, num_nodes=8)
    future = TargetEdges.from_snapshots(graph[0], graph[1])
    _, others = future.sample_negatives(np.zeros(1, np.int64), 40_000, np.random.default_rng(3))
    number = np.bincount(others[0], minlength=8)
    assert set(np.flatnonzero(number)) == {2, 3, 6, 7}
    assert np.abs(number[[2, 3, 6, 7]] - 10_000).max() < 450  # five deviations of 87


def test_keys_hold_more_nodes_than_the_root_of_an_int32() -> None:
    last = 99_999  # times 100,000 it does not fit into 32 bits
    graph = from_edges([np.array([[last, 0], [0, last]])] * 2, num_nodes=last + 1)
    keys = edge_keys(graph[0])
    assert keys.tolist() == [last, last * MAX_NODES]
    src = np.array([last, last], np.int32)
    assert contains(keys, pair_keys(src, np.array([0, 1], np.int32), True)).tolist() == [True, False]
    future = TargetEdges.from_snapshots(graph[0], graph[1])
    assert future.arcs.tolist() == [last, last * (last + 1)]
    has, others = future.sample_negatives(np.full(1, last), 1000, np.random.default_rng(0))
    assert has.all()
    assert others.min() > 0
    assert others.max() < last


@given(ids, ids)
def test_merged_keys_are_the_union(a: np.ndarray, b: np.ndarray) -> None:
    assert merge_keys(a, b).tolist() == sorted({*a.tolist(), *b.tolist()})
    assert contains(a, b).tolist() == [key in a.tolist() for key in b.tolist()]


@given(ids, ids)
def test_absent_queries_have_position_minus_1(wanted: np.ndarray, nodes: np.ndarray) -> None:
    listed = nodes.tolist()
    assert find_positions(wanted, nodes).tolist() == [listed.index(v) if v in listed else -1 for v in wanted.tolist()]
