from __future__ import annotations

import itertools

import numpy as np
import pytest

from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social


@pytest.fixture(scope="module")
def settled() -> DynamicGraph:
    """No node is away and nothing drifts, so that shares can be read off."""
    return Social(nodes=5_000, snapshots=6, edges=20_000, away=0, drift=0, churn=0.25, labels=True).write()


def test_nodes_join_in_order_of_id_until_all_are_there(settled: DynamicGraph) -> None:
    assert [snapshot.num_nodes for snapshot in settled] == [2_500, 3_000, 3_500, 4_000, 4_500, 5_000]
    assert all(snapshot.nodes[-1] == snapshot.num_nodes - 1 for snapshot in settled)


def test_edges_grow_with_the_nodes_and_add_up_exactly(settled: DynamicGraph) -> None:
    assert settled.num_edges == 6 * 20_000
    density = [snapshot.num_edges / snapshot.num_nodes for snapshot in settled]
    assert density == pytest.approx([density[0]] * 6, rel=1e-3)


def test_a_share_of_edges_stays_inside_communities(settled: DynamicGraph) -> None:
    src, dst, _ = settled[-1].edges()
    # Standard deviation of the share: sqrt(0.8 * 0.2 / 26,667) = 0.0025; five of them.
    assert (src % 8 == dst % 8).mean() == pytest.approx(0.8, abs=0.0125)


def test_labels_are_communities_and_neighbours_tell_them(settled: DynamicGraph) -> None:
    last = settled[-1]
    assert last.y is not None
    assert (last.y == np.arange(5_000) % 8).all()
    src, dst = last.arcs()
    votes = np.zeros((5_000, 8))
    np.add.at(votes, (dst, last.y[src]), 1)
    friends = last.in_degree > 0
    assert (votes.argmax(1) == last.y)[friends].mean() > 0.9


def test_edges_last_as_long_as_churn_says(settled: DynamicGraph) -> None:
    for before, after in itertools.pairwise(settled):
        old, new = (s.edges()[0].astype(np.int64) * 5_000 + s.edges()[1] for s in (before, after))
        # Fresh edges that happen to repeat an old one come on top, at hubs: a few percent at this size.
        assert 0.74 < np.isin(old, new).mean() < 0.80


def test_degrees_can_be_predicted_from_the_past() -> None:
    graph = Social(away=0).write()
    now, following = graph[20], graph[21]
    old, new = np.log1p(now.in_degree), np.log1p(following.in_degree[: now.num_nodes])
    assert np.corrcoef(old, new)[0, 1] > 0.9


def test_activity_moves_from_community_to_community() -> None:
    graph = Social(nodes=800, snapshots=24, edges=8_000, drift=1, churn=1, away=0).write()
    shares = np.array([np.bincount(np.arange(s.num_nodes) % 8, s.in_degree) / s.num_arcs for s in graph])
    assert shares.argmax(1)[[1, 7, 13, 19]].tolist() == [0, 2, 4, 6]
    even = Social(nodes=800, snapshots=24, edges=8_000, drift=0, churn=1, away=0).write()
    assert np.bincount(np.arange(800) % 8, even[-1].in_degree).max() < 1.2 * even[-1].num_arcs / 8


def test_nodes_leave_and_return_with_their_edges() -> None:
    graph = Social(nodes=2_000, snapshots=20, edges=8_000, start=1, away=0.2, spell=3, churn=0).write()
    here = np.zeros((20, 2_000), bool)
    for snapshot in graph:
        here[snapshot.t, snapshot.nodes] = True
    # Each of 40,000 cells is away with probability 0.2, at most 20 cells of a node alike: five standard deviations.
    assert 1 - here.mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / 2_000))
    left = (here[:-1] & ~here[1:]).sum()
    assert (~here).sum() / left == pytest.approx(3, rel=0.25)
    assert graph.num_edges == pytest.approx(20 * 8_000, rel=0.05)
    stayed = np.flatnonzero(here[0] & ~here[1:19].all(0) & here[19])
    assert stayed.size > 100
    first, last = (s.in_degree[np.searchsorted(s.nodes, stayed)] for s in (graph[0], graph[19]))
    assert np.corrcoef(first, last)[0, 1] > 0.9


def test_directed_edges_are_stored_once() -> None:
    assert Social(directed=True, away=0).write().num_arcs == Social(away=0).write().num_edges
