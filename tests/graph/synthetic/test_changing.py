from __future__ import annotations

import itertools

import numpy as np
import pytest

from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import SIZES, Changing, changing


def changed_segments(graph: DynamicGraph, segments: int) -> list[float]:
    """Share of (node, segment) pairs that differ from the snapshot before."""
    shares = []
    for before, after in itertools.pairwise(graph):
        assert before.x is not None
        assert after.x is not None
        differs = (before.x != after.x).reshape(graph.num_nodes, segments, -1).any(2)
        shares.append(float(differs.mean()))
    return shares


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 1.0])
def test_features_change_at_the_given_rate(rate: float) -> None:
    graph = Changing(nodes=2_000, edges=0, snapshots=4, features=32, feature_change=rate).write()
    # 8,000 segments: standard deviation of the share at most sqrt(0.25 / 8,000) = 0.0056; exact at 0 and 1.
    assert changed_segments(graph, 4) == pytest.approx([rate] * 3, abs=5 * np.sqrt(rate * (1 - rate) / 8_000))


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
    monkeypatch.setattr(changing, "_BLOCK", 7)
    assert made.write() == whole


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_edges_change_at_the_given_rate_and_keep_their_number(rate: float) -> None:
    graph = Changing(nodes=5_000, edges=15_000, snapshots=4, features=1, segments=1, edge_change=rate).write()
    assert [snapshot.num_edges for snapshot in graph] == [15_000] * 4
    for before, after in itertools.pairwise(graph):
        old, new = (s.edges()[0].astype(np.int64) * 5_000 + s.edges()[1] for s in (before, after))
        # Standard deviation sqrt(0.21 / 15,000) = 0.0037; a fresh edge meets an old one by chance in 0.1%.
        assert 1 - np.isin(old, new).mean() == pytest.approx(rate, abs=0.02)


def test_uniform_graphs_have_no_hubs() -> None:
    degree = Changing(nodes=5_000, edges=50_000, snapshots=1, features=1, segments=1).write()[0].in_degree
    assert degree.max() < 3 * degree.mean()


def test_hot_nodes_have_more_edges_and_lie_scattered() -> None:
    made = Changing(nodes=5_000, edges=100_000, snapshots=1, features=1, segments=1, hot=0.1, heat=8)
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


def test_an_unknown_size_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'uni500k'"):
        Changing.from_size("uni500")


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 10, 500, 30_030])
def test_scattering_visits_every_node_once(num_nodes: int) -> None:
    visited = np.arange(num_nodes) * changing._stride(num_nodes) % num_nodes
    assert np.unique(visited).size == num_nodes


@pytest.mark.parametrize("tiny", [Changing(nodes=1, edges=0, snapshots=1), Changing(nodes=2, edges=3, hot=1)])
def test_tiny_graphs_are_generated(tiny: Changing) -> None:
    assert tiny.write().num_edges == tiny.edges * tiny.snapshots


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 1}, "30,000 edges need at least 2 nodes, not 1"),
        ({"segments": 129}, "segments must be a whole number from 1 to 128, not 129"),
        ({"feature_change": -0.1}, "feature_change must be a number from 0 to 1"),
        ({"heat": 0.5}, "heat must be a number of at least 1"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Changing(**options)  # type: ignore[arg-type]
