"""Features of listed pairs against those of one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph import listed_pairs
from strobe.ops.graph.edge_times import MAX_HUB_DEGREE, EdgeTimes
from strobe.ops.graph.listed_pairs import (
    DistinctNodes,
    ListedPairs,
    describe_nodes,
    find_listed_related,
    find_listed_related_plain,
    sum_ends,
)
from strobe.ops.sparse.csr_kernels import sort_by_row, sort_by_row_reference
from tests.ops.graph.test_edge_times import NODES, arcs, build
from tests.support.plain_edge_times import Arc

node = st.integers(0, NODES + 1)
listed = st.dictionaries(st.integers(0, 31), st.lists(st.tuples(node, node), max_size=9), max_size=4)
"""Pairs by snapshot, also of nodes that the history does not know."""


def pairs_of(by_time: dict[int, list[tuple[int, int]]]) -> ListedPairs:
    times = sorted(by_time)
    ends = np.array([pair for t in times for pair in by_time[t]], np.int64).reshape(-1, 2)
    return ListedPairs(
        np.array(times, np.int64), np.cumsum([0, *(len(by_time[t]) for t in times)]), ends[:, 0], ends[:, 1]
    )


@settings(deadline=None, max_examples=60)
@given(arcs, st.booleans(), listed)
def test_related_pairs_are_those_with_features(
    edges: list[Arc], directed: bool, by_time: dict[int, list[tuple[int, int]]]
) -> None:
    history, _ = build(edges, directed=directed)
    pairs = pairs_of(by_time)
    both = find_listed_related(history, pairs), find_listed_related_plain(history, pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed_pairs, "_NEIGHBORS_PER_PAIR", 10**9)  # lists the neighbors at every snapshot
        listed = find_listed_related(history, pairs)
    for index, features in (*both, listed):
        found = np.zeros((len(pairs.src), history.num_pair_features), np.float32)
        found[index] = features
        by_place = [(t, pair) for t in sorted(by_time) for pair in by_time[t]]
        for place, (t, pair) in enumerate(by_place):
            [expected] = history.pair_features(t, *np.array([pair]).T)
            np.testing.assert_allclose(found[place], expected, rtol=1e-6)
            assert (place in index) == expected.any()


@settings(deadline=None, max_examples=60)
@given(arcs, st.booleans(), listed)
def test_distinct_nodes_have_the_features_of_their_snapshot(
    edges: list[Arc], directed: bool, by_time: dict[int, list[tuple[int, int]]]
) -> None:
    history, _ = build(edges, directed=directed)
    pairs = pairs_of(by_time)
    distinct = DistinctNodes.find(pairs.ptr, pairs.src)
    assert distinct.nodes[distinct.position].tolist() == pairs.src.tolist()
    features = describe_nodes(history, pairs.times, distinct)
    at, plain = np.repeat(pairs.times, np.diff(distinct.ptr)).astype(np.int32), np.zeros_like(features)
    history.fill_activity(distinct.nodes, at, plain, plain=True)
    assert features.tolist() == plain.tolist()
    for k, t in enumerate(pairs.times.tolist()):
        nodes = distinct.nodes[distinct.ptr[k] : distinct.ptr[k + 1]]
        assert nodes.tolist() == list(dict.fromkeys(pairs.src[pairs.ptr[k] : pairs.ptr[k + 1]].tolist()))
        expected = history.node_features(t, nodes)
        assert features[distinct.ptr[k] : distinct.ptr[k + 1]].tolist() == expected.tolist()


def test_hubs_are_no_common_neighbors() -> None:
    hub, leaves = 0, np.arange(1, MAX_HUB_DEGREE + 2)
    src, dst = np.concatenate([np.full(len(leaves), hub), leaves]), np.concatenate([leaves, np.full(len(leaves), hub)])
    history = EdgeTimes(directed=False)
    history.append(src, dst, np.zeros(len(src), np.int64), len(leaves) + 1)
    index, _ = find_listed_related(history, ListedPairs.of_snapshot(0, np.array([1, 2, 3]), np.array([2, hub, 4])))
    assert index.tolist() == [1]


@pytest.mark.parametrize("by_source", [True, False])
def test_features_do_not_depend_on_the_order_of_pairs(by_source: bool) -> None:
    """Each source once, or again and again; sources with far fewer neighbors than destinations."""
    rng = np.random.default_rng(0)
    history = EdgeTimes(directed=True)
    hubs = np.where(rng.random(3000) < 0.3, 7, rng.integers(0, 60, 3000))
    src, times = rng.integers(0, 1100, 3000), np.sort(rng.integers(0, 5, 3000))
    history.append(src[src != hubs], hubs[src != hubs], times[src != hubs], 1100)
    pairs = pairs_of({t: list(map(tuple, rng.integers(0, 1100, (400, 2)) % [[1100, 60]])) for t in (1, 4)})
    sources = DistinctNodes.find(pairs.ptr, pairs.src) if by_source else None
    index, features = find_listed_related(history, pairs, sources)
    expected_index, expected = find_listed_related_plain(history, pairs)
    if sources is not None:
        order = np.argsort(sources.position[expected_index], kind="stable")
        expected_index, expected = expected_index[order], expected[order]
    assert index.tolist() == expected_index.tolist()
    assert len(index) > 100
    np.testing.assert_allclose(features, expected, rtol=1e-6)


def test_some_pairs_keep_their_snapshots_and_nodes() -> None:
    pairs = pairs_of({2: [(0, 1), (5, 1), (0, 2)], 3: [], 7: [(4, 1), (0, 5)]})
    kept = pairs.select(np.array([0, 2, 4]))
    assert kept.ptr.tolist() == [0, 2, 2, 3]
    assert (kept.src.tolist(), kept.dst.tolist()) == ([0, 0, 0], [1, 2, 5])
    some = DistinctNodes.find(pairs.ptr, pairs.src).select(np.array([0, 2, 4]), np.array([0, 3]))
    assert some.nodes.tolist() == [0, 0]
    assert some.position.tolist() == [0, 0, 1]
    assert some.ptr.tolist() == [0, 1, 1, 2]


def test_items_are_grouped_by_row() -> None:
    row = np.random.default_rng(0).integers(0, 9, 100).astype(np.int32)
    (ptr, items), (expected_ptr, expected) = sort_by_row(row, 11), sort_by_row_reference(row, 11)
    assert ptr.tolist() == expected_ptr.tolist()
    assert items.tolist() == expected.tolist()


def test_numbers_of_both_ends_are_added() -> None:
    row, column = np.array([0, 1, 1], np.int32), np.array([2, 0, 2], np.int32)
    assert sum_ends(row, column, np.array([1.0, 2.0]), np.array([10.0, 20.0, 30.0])).tolist() == [31, 12, 32]
