from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strobe.graph import DynamicGraph, from_edges
from strobe.tasks import edge_history
from strobe.tasks.edge_history import (
    EdgeHistory,
    FirstTimes,
    present_nodes,
    source_nodes,
)
from tests.support.graphs import AWKWARD

# 0 -> 1 in snapshots 0 and 1, 1 -> 2 in 1, twice; 2 -> 0 in 3. Node 3 is present at first only.
EDGES = [[[0], [1]], [[0, 1, 1], [1, 2, 2]], [[], []], [[2], [0]]]
NODES = [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]


def graph(directed: bool = True) -> DynamicGraph:
    return from_edges([np.array(edges, np.int64) for edges in EDGES], nodes=NODES, num_nodes=4, directed=directed)


@pytest.mark.parametrize(
    ("t", "last", "edgebank", "popularity"),
    [(0, [1, 0, 0], [1, 0, 0], [1, 0, 0]), (1, [1, 1, 0], [1, 1, 0], [2, 1, 0]), (3, [0, 0, 1], [1, 1, 1], [2, 1, 1])],
)
def test_trivial_scores_read_edges_up_to_the_snapshot(
    t: int, last: list[int], edgebank: list[int], popularity: list[int]
) -> None:
    found = EdgeHistory(graph()).scores(t, np.array([0, 1, 2]), np.array([1, 2, 0]))
    assert found["last snapshot"].tolist() == last
    assert found["edgebank"].tolist() == edgebank
    assert found["popularity"].tolist() == popularity  # parallel edges count once


def test_most_recent_pairs_come_first_then_destinations_with_recent_edges() -> None:
    # After snapshot 3: 2 -> 0 was now, 1 -> 2 and 0 -> 1 two snapshots ago; 3 has met no one.
    src, dst = np.array([2, 1, 0, 3, 3, 3, 0]), np.array([0, 2, 1, 0, 1, 2, 3])
    scores = EdgeHistory(graph()).scores(3, src, dst)["most recent"]
    assert np.argsort(-scores, kind="stable").tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert scores[1] == scores[2]
    assert scores[4] > scores[5]  # node 1 and node 2 were reached at the same time, node 1 more often


@pytest.mark.parametrize("awkward", AWKWARD)
@pytest.mark.parametrize("directed", [True, False])
def test_awkward_graphs_have_a_history(awkward: str, directed: bool) -> None:
    built = replace(AWKWARD[awkward], directed=directed).build()
    known = EdgeHistory(built)
    every = np.arange(built.num_nodes)
    for t in range(len(built)):
        rows = known.features(t, every, every[::-1])
        assert rows.shape == (len(every), 2 * known.num_node_features + known.num_pair_features)
        assert bool(np.isfinite(rows).all())


@pytest.mark.parametrize("directed", [True, False])
def test_updated_history_equals_one_built_at_once(directed: bool) -> None:
    random = np.random.default_rng(3)
    edges = [random.integers(0, 5 + t, (2, 0 if t % 7 == 4 else 3 * (30 - t))) for t in range(20)]
    until = [from_edges(edges[: t + 1], num_nodes=5 + t, directed=directed) for t in range(20)]
    growing = EdgeHistory(until[3])
    for stop in (4, 5, 11, 19):
        growing.update(until[stop])
        growing.update(until[stop])  # nothing new
        whole = EdgeHistory(until[stop])
        for t in range(stop + 1):
            src, dst = (random.integers(0, 5 + stop, 200) for _ in range(2))
            assert (growing.features(t, src, dst) == whole.features(t, src, dst)).all()


def test_batches_of_snapshots_give_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    built = from_edges([random.integers(0, 9, (2, 0 if t == 3 else 12)) for t in range(9)], num_nodes=9)
    whole = EdgeHistory(built)
    monkeypatch.setattr(edge_history, "BATCH_ARCS", 20)
    parts = EdgeHistory(built)
    src, dst = np.divmod(np.arange(81), 9)
    for t in range(9):
        assert (parts.features(t, src, dst) == whole.features(t, src, dst)).all()


def test_first_times_know_sources_and_present_nodes() -> None:
    sources, present = (FirstTimes(nodes_of, graph()[:2]) for nodes_of in (source_nodes, present_nodes))
    for times in (sources, present):
        times.update(graph())
    assert [np.flatnonzero(sources.is_in(t, 4)).tolist() for t in range(4)] == [[0], [0, 1], [0, 1], [0, 1, 2]]
    assert present.is_in(0, 4).all()
