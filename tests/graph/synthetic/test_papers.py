from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import SIZES, Changing, Growth, Uneven, papers
from strobe.graph.synthetic.base import CURVES, Curve


@pytest.mark.parametrize("curve", CURVES)
def test_sizes_follow_the_curve_and_keep_their_averages(curve: Curve) -> None:
    graph = Growth(snapshots=20, nodes=500, edges=3_000, curve=curve, ratio=5, noise=0).write()
    nodes, edges = np.array([(snapshot.num_nodes, snapshot.num_edges) for snapshot in graph]).T
    assert edges.sum() == 20 * 3_000
    assert nodes.mean() == pytest.approx(500, abs=0.5)
    assert (np.diff(nodes) >= 0).all()
    assert nodes[-1] / nodes[0] == pytest.approx(5, rel=0.02)
    assert edges[-1] / edges[0] == pytest.approx(5, rel=0.02)
    assert graph.num_nodes == nodes[-1]


def test_noise_moves_edges_but_not_nodes_and_keeps_the_total() -> None:
    calm, noisy = (Growth(snapshots=400, nodes=100, edges=1_000, noise=noise) for noise in (0.0, 0.2))
    assert (calm.nodes_per_snapshot == noisy.nodes_per_snapshot).all()
    assert noisy.edges_per_snapshot.sum() == 400_000
    assert (noisy.edges_per_snapshot / calm.edges_per_snapshot).std() == pytest.approx(0.2, rel=0.2)
    graph = noisy.write()
    assert [snapshot.num_edges for snapshot in graph] == noisy.edges_per_snapshot.tolist()


def test_constant_nodes_lets_only_edges_grow() -> None:
    graph = Growth(snapshots=10, nodes=100, edges=400, constant_nodes=True).write()
    assert {snapshot.num_nodes for snapshot in graph} == {100}
    assert graph[-1].num_edges > 2 * graph[0].num_edges


@pytest.mark.parametrize(("churn", "low", "high"), [(0.0, 1.0, 1.0), (0.3, 0.68, 0.74), (1.0, 0.0, 0.05)])
def test_edges_last_as_long_as_churn_says(churn: float, low: float, high: float) -> None:
    graph = Growth(snapshots=4, nodes=20_000, edges=40_000, noise=0, churn=churn).write()
    old, new = (s.edges()[0].astype(np.int64) * graph.num_nodes + s.edges()[1] for s in (graph[2], graph[3]))
    # By chance, mostly at hubs, under 5% of fresh edges repeat an old one.
    assert low <= np.isin(old, new).mean() <= high


def lengths(graph: DynamicGraph) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.bincount(np.concatenate([snapshot.nodes for snapshot in graph]), minlength=graph.num_nodes)


@pytest.mark.parametrize("spread", [0.0, 1.0, 15.0])
def test_totals_hold_exactly_at_any_spread(spread: float) -> None:
    graph = Uneven(
        cells=50_000, edges=20_000, snapshots=50, mean_length=20, length_spread=spread, edge_spread=40 * spread
    ).write()
    assert (graph.num_cells, graph.num_edges, graph.num_nodes) == (50_000, 20_000, 2_500)
    if not spread:
        assert [snapshot.num_edges for snapshot in graph] == [400] * 50
        assert (lengths(graph) == 20).all()


def test_spreads_are_the_given_standard_deviations() -> None:
    made = Uneven(cells=400_000, edges=400_000, snapshots=400, mean_length=100, length_spread=20, edge_spread=100)
    graph = made.write()
    # The standard error of a standard deviation is s / sqrt(2 n): 1.8% for 400 snapshots, 0.8% for 4,000 nodes.
    assert made.edges_per_snapshot.std() == pytest.approx(100, rel=0.1)
    assert lengths(graph).std() == pytest.approx(20, rel=0.05)
    assert lengths(graph).mean() == 100


def test_sequences_begin_and_end() -> None:
    graph = Uneven(cells=10_000, edges=0, snapshots=20, mean_length=5, length_spread=2).write()
    here = np.zeros((20, graph.num_nodes), bool)
    for snapshot in graph:
        here[snapshot.t, snapshot.nodes] = True
    turns = (here != np.roll(here, 1, axis=0)).sum(0)
    assert (turns <= 2).all()


def test_edges_without_two_nodes_are_refused() -> None:
    with pytest.raises(OptionError, match="snapshot 0 is to have 5 edges but has 1 nodes"):
        Uneven(cells=1, edges=5, snapshots=1, mean_length=1).write()


def changed_segments(graph: DynamicGraph, segments: int) -> list[float]:
    """Share of (node, segment) pairs that differ from the snapshot before."""
    shares = []
    for before, after in itertools.pairwise(graph):
        assert before.x is not None
        assert after.x is not None
        differs = (before.x != after.x).reshape(graph.num_nodes, segments, -1).any(2)
        shares.append(float(differs.mean()))
    return shares


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_features_and_edges_change_at_the_given_rates(rate: float) -> None:
    options: dict[str, Any] = {"features": 32, "feature_change": rate, "edge_change": rate}
    graph = Changing(nodes=2_000, edges=6_000, snapshots=4, **options).write()
    # 8,000 segments: standard deviation of the share at most sqrt(0.25 / 8,000) = 0.0056; exact at 0 and 1.
    assert changed_segments(graph, 4) == pytest.approx([rate] * 3, abs=5 * np.sqrt(rate * (1 - rate) / 8_000))
    assert [snapshot.num_edges for snapshot in graph] == [6_000] * 4
    for before, after in itertools.pairwise(graph):
        old, new = (s.edges()[0].astype(np.int64) * 2_000 + s.edges()[1] for s in (before, after))
        # Standard deviation sqrt(0.21 / 6,000) = 0.006; a fresh edge meets an old one by chance in 0.3%.
        assert 1 - np.isin(old, new).mean() == pytest.approx(rate, abs=0.03)


def test_features_are_as_often_one_as_zero() -> None:
    for snapshot in Changing(nodes=2_000, edges=0, snapshots=3, features=32, segments=32).write():
        assert snapshot.x is not None
        assert set(np.unique(snapshot.x)) == {0.0, 1.0}
        assert snapshot.x.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(64_000))


def test_segments_need_not_divide_the_features() -> None:
    graph = Changing(nodes=50, edges=0, snapshots=2, features=7, segments=3, feature_change=1).write()
    first, second = (snapshot.x for snapshot in graph)
    assert first is not None
    assert second is not None
    assert all((first[:, part] != second[:, part]).any(1).all() for part in ([0, 1], [2, 3], [4, 5, 6]))


def test_features_do_not_depend_on_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Changing(nodes=100, edges=10, features=8)
    whole = made.write()
    monkeypatch.setattr(papers, "_BLOCK", 7)
    assert made.write() == whole


def test_hot_nodes_have_more_edges_and_lie_scattered() -> None:
    made = Changing(nodes=5_000, edges=100_000, snapshots=1, features=1, segments=1, hot=0.1, heat=8)
    uniform = replace(made, hot=0).write()[0].in_degree
    assert uniform.max() < 3 * uniform.mean()
    degree = made.write()[0].in_degree
    hot = degree > 3 * np.median(degree)
    assert hot.sum() == 500
    assert degree[hot].mean() / degree[~hot].mean() == pytest.approx(8, rel=0.05)
    assert np.histogram(np.flatnonzero(hot), 10, (0, 5_000))[0].min() > 25


def test_published_sizes_have_their_names() -> None:
    assert set(SIZES) == {"uni500k", "ex500k"} | {f"{n}k-{d}" for n in (10, 20, 50, 100) for d in "smd"}
    big = Changing.from_size("ex500k")
    assert (big.nodes, big.edges, big.snapshots, big.features, big.hot) == (500_000, 2_500_000, 20, 128, 0.1)
    assert Changing.from_size("uni500k", hot=0.2).hot == 0.2
    assert Changing.from_size("50k-d", snapshots=2).edges == 1_000_000
    with pytest.raises(UnknownNameError, match="did you mean 'uni500k'"):
        Changing.from_size("uni500")


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 10, 500, 30_030])
def test_scattering_visits_every_node_once(num_nodes: int) -> None:
    visited = np.arange(num_nodes) * papers._stride(num_nodes) % num_nodes
    assert np.unique(visited).size == num_nodes
