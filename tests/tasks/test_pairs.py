"""Pairs against sets and loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph import from_edges
from strobe.tasks.pairs import (
    MAX_NODES,
    contains,
    edge_keys,
    merge_keys,
    split_keys,
)
from strobe.tasks.positions import find_positions
from strobe.tasks.target_edges import Candidates, TargetEdges
from tests.support.graphs import PlainGraph, dynamic_graphs

ids = st.sets(st.integers(0, 30)).map(lambda chosen: np.array(sorted(chosen), np.int64))


def arcs_of(plain: PlainGraph) -> set[tuple[int, int]]:
    """Arcs of the first snapshot, without self-loops."""
    return {(u, v) for v, u, _ in plain.arcs(0) if u != v}


def named(keys: np.ndarray) -> list[tuple[int, int]]:
    src, dst = split_keys(keys)
    return list(zip(src.tolist(), dst.tolist(), strict=True))


@given(dynamic_graphs(min_snapshots=1, max_snapshots=1, carried=False))
def test_target_edges_are_unique_edges(plain: PlainGraph) -> None:
    target, arcs = TargetEdges.from_snapshot(plain.build()[0]), arcs_of(plain)
    assert named(target.arcs) == sorted(arcs)
    assert named(target.edges) == sorted(arcs if plain.directed else {(u, v) for u, v in arcs if u < v})


@settings(max_examples=60)
@given(dynamic_graphs(min_snapshots=1, max_snapshots=1, carried=False), ids, st.integers(0, 9))
def test_negatives_are_candidates_but_not_the_source_nor_its_successors(
    plain: PlainGraph, chosen: np.ndarray, seed: int
) -> None:
    target, successors = TargetEdges.from_snapshot(plain.build()[0]), arcs_of(plain)
    nodes = chosen[chosen < plain.num_nodes]
    for candidates in (Candidates(plain.num_nodes), Candidates(len(nodes), nodes)):
        allowed = range(plain.num_nodes) if candidates.nodes is None else nodes.tolist()
        has, others = target.sample_negatives(np.arange(plain.num_nodes), candidates, 60, np.random.default_rng(seed))
        drawn = iter(others.tolist())
        for node in range(plain.num_nodes):
            free = {other for other in allowed if other != node and (node, other) not in successors}
            assert has[node] == bool(free)
            if free:
                # Sixty draws among at most three miss one with a chance below 1e-10.
                found = set(next(drawn))
                assert found <= free
                assert len(free) > 3 or found == free


def test_negatives_are_uniform() -> None:
    # Node 0 has edges to 1, 4 and 5 of eight: 2, 3, 6 and 7 are left; 3 is no candidate.
    target = TargetEdges.from_snapshot(from_edges([np.array([[0, 0, 0], [1, 4, 5]])], num_nodes=8)[0])
    for candidates, left in (
        (Candidates(8), [2, 3, 6, 7]),
        (Candidates(5, np.array([0, 2, 4, 6, 7])), [2, 6, 7]),
    ):
        _, others = target.sample_negatives(np.zeros(1, np.int64), candidates, 40_000, np.random.default_rng(3))
        number = np.bincount(others[0], minlength=8)
        assert np.flatnonzero(number).tolist() == left
        assert np.abs(number[left] - 40_000 / len(left)).max() < 500  # five deviations of less than 100


def test_keys_hold_more_nodes_than_the_root_of_an_int32() -> None:
    last = 99_999  # times 100,000 it does not fit into 32 bits
    snapshot = from_edges([np.array([[last, 0], [0, last]])], num_nodes=last + 1)[0]
    keys = edge_keys(snapshot)
    assert keys.tolist() == [last, last * MAX_NODES]
    assert contains(keys, last * MAX_NODES + np.array([0, 1])).tolist() == [True, False]
    target = TargetEdges.from_snapshot(snapshot)
    has, others = target.sample_negatives(np.full(1, last), Candidates(last + 1), 1000, np.random.default_rng(0))
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
