from __future__ import annotations

import itertools

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social


@pytest.fixture(scope="module")
def settled() -> DynamicGraph:
    """Nobody is away and nothing drifts, so that shares can be read off."""
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


def test_degrees_are_skewed(settled: DynamicGraph) -> None:
    degree = settled[-1].in_degree
    assert degree.max() > 20 * degree.mean()
    assert np.median(degree) < degree.mean()


def test_edges_last_as_long_as_churn_says(settled: DynamicGraph) -> None:
    for before, after in itertools.pairwise(settled):
        kept = _overlap(before.edges(), after.edges(), settled.num_nodes)
        # Fresh edges that happen to repeat an old one come on top, at hubs: a few percent at this size.
        assert 0.74 < kept / before.num_edges < 0.80


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


@pytest.mark.parametrize(
    "tiny",
    [
        Social(nodes=1, edges=0, snapshots=1),
        Social(nodes=1, edges=0, snapshots=3, away=0.9),
        Social(nodes=2, edges=5, snapshots=1, communities=1),
        Social(nodes=2, edges=5, snapshots=4, communities=1, start=1, churn=1, inside=0),
        Social(nodes=16, edges=0, start=0),
        Social(nodes=100, edges=50, inside=1, churn=0, exponent=2.1),
    ],
)
def test_tiny_networks_can_be_made(tiny: Social) -> None:
    graph = tiny.write()
    assert len(graph) == tiny.snapshots
    assert graph.num_edges == pytest.approx(tiny.edges * tiny.snapshots, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes must be a whole number of at least 1, not 0"),
        ({"edges": -1}, "edges must be a whole number of at least 0"),
        ({"churn": 1.5}, "churn must be a number from 0 to 1, not 1.5"),
        ({"away": 1.0}, "away must be a number from 0 to 0.9"),
        ({"inside": float("nan")}, "inside must be a number from 0 to 1"),
        ({"exponent": 2.0}, "exponent must be a number from 2.05 to 100"),
        ({"spell": 0}, "spell must be a number of at least 1"),
        ({"communities": 1_000}, "1,000 communities need two nodes each .* the first snapshot has 1,000 nodes"),
        ({"nodes": 1}, "communities need two nodes each"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Social(**options)  # type: ignore[arg-type]


def _overlap(old: tuple[object, ...], new: tuple[object, ...], num_nodes: int) -> int:
    """Edges of the old snapshot that are in the new one too."""
    before, after = (np.asarray(e[0]).astype(np.int64) * num_nodes + np.asarray(e[1]) for e in (old, new))
    return int(np.isin(before, after).sum())
