from __future__ import annotations

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.graph.synthetic import Growth
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


def test_degrees_are_skewed() -> None:
    degree = Growth(snapshots=3, nodes=5_000, edges=40_000).write()[-1].in_degree
    assert degree.max() > 20 * degree.mean()


@pytest.mark.parametrize(("churn", "low", "high"), [(0.0, 1.0, 1.0), (0.3, 0.68, 0.74), (1.0, 0.0, 0.05)])
def test_edges_last_as_long_as_churn_says(churn: float, low: float, high: float) -> None:
    graph = Growth(snapshots=4, nodes=20_000, edges=40_000, noise=0, churn=churn).write()
    old, new = (s.edges()[0].astype(np.int64) * graph.num_nodes + s.edges()[1] for s in (graph[2], graph[3]))
    # By chance, mostly at hubs, under 5% of fresh edges repeat an old one.
    assert low <= np.isin(old, new).mean() <= high


def test_thousands_of_snapshots_are_generated() -> None:
    graph = Growth(snapshots=1_000, nodes=20, edges=50).write()
    assert (len(graph), graph.num_edges) == (1_000, 50_000)


@pytest.mark.parametrize(
    "tiny", [Growth(snapshots=1, nodes=1, edges=0), Growth(snapshots=1, nodes=2, edges=4), Growth(nodes=10, edges=0)]
)
def test_tiny_graphs_are_generated(tiny: Growth) -> None:
    assert tiny.write().num_edges == tiny.edges * tiny.snapshots


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curve": "spiral"}, "curve must be one of linear, exponential, saturating, not 'spiral'"),
        ({"snapshots": 0}, "snapshots must be a whole number from 1 to 1,000,000"),
        ({"ratio": 0.5}, "ratio must be a number from 1"),
        ({"nodes": 3, "ratio": 100}, "the first snapshot has 1 node, edges need two"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Growth(**options)  # type: ignore[arg-type]
