"""Related pairs against the features of all pairs, which have a kernel and tests of their own."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph.edge_times import MAX_HUB_DEGREE, EdgeTimes
from strobe.ops.graph.related_pairs import find_related_pairs
from tests.ops.graph.test_edge_times import NODES, arcs, build
from tests.support.plain_edge_times import Arc


@settings(deadline=None, max_examples=60)
@given(arcs, st.booleans(), st.integers(0, 31), st.permutations(range(NODES)), st.integers(0, NODES), st.data())
def test_related_pairs_are_those_with_features(
    edges: list[Arc], directed: bool, t: int, order: list[int], number: int, data: st.DataObject
) -> None:
    history, _ = build(edges, directed=directed)
    candidates = np.array(order[:number], np.int64)
    sources = np.array(data.draw(st.lists(st.integers(0, NODES - 1), max_size=NODES, unique=True)), np.int64)
    index, features = find_related_pairs(history, t, sources, candidates)
    expected = {}
    for row, source in enumerate(sources):
        for column, node in enumerate(candidates):
            [of_pair] = history.pair_features(t, np.array([source]), np.array([node]))
            if source != node and of_pair.any():
                expected[row, column] = of_pair
    assert list(expected) == list(zip(*index.tolist(), strict=True))
    np.testing.assert_array_equal(features, np.array(list(expected.values())).reshape(features.shape))


def test_hubs_relate_no_nodes() -> None:
    hub, leaves = 0, np.arange(1, MAX_HUB_DEGREE + 2)
    src, dst = np.concatenate([np.full(len(leaves), hub), leaves]), np.concatenate([leaves, np.full(len(leaves), hub)])
    history = EdgeTimes(directed=False)
    history.append(src, dst, np.zeros(len(src), np.int64), len(leaves) + 1)
    index, _ = find_related_pairs(history, 0, np.array([1, 2]), np.arange(len(leaves) + 1))
    assert index.tolist() == [[0, 1], [hub, hub]]
    assert not history.pair_features(0, np.array([1]), np.array([2])).any()


def test_nodes_that_the_history_does_not_know_have_no_related_pairs() -> None:
    history, _ = build([(0, 1, 0)], directed=True)
    index, features = find_related_pairs(history, 0, np.array([NODES + 3, 0]), np.array([NODES + 9, 1]))
    assert index.tolist() == [[1], [1]]
    assert features.shape == (1, history.num_pair_features)
