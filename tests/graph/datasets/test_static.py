from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph import DynamicGraph
from strobe.graph.datasets.static import StaticGraph, growth_shares, simulate_growth


@st.composite
def static_graphs(draw: st.DrawFn) -> StaticGraph:
    num_nodes = draw(st.integers(1, 12))
    node = st.integers(0, num_nodes - 1)
    directed = draw(st.booleans())
    pairs = draw(st.lists(st.tuples(node, node), unique=True, max_size=30))
    if not directed:
        pairs = sorted({(min(pair), max(pair)) for pair in pairs})
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    return StaticGraph(num_nodes=num_nodes, src=edges[:, 0], dst=edges[:, 1], directed=directed)


SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(np.array)


def edges(graph: DynamicGraph, t: int) -> set[tuple[int, int]]:
    src, dst, _ = graph[t].edges()
    return set(zip(src.tolist(), dst.tolist(), strict=True))


def whole(static: StaticGraph) -> set[tuple[int, int]]:
    return set(zip(static.src.tolist(), static.dst.tolist(), strict=True))


@given(static_graphs(), SHARES, st.booleans(), st.integers(0, 3))
def test_snapshots_are_parts_of_the_static_graph_that_follow_the_curve(
    static: StaticGraph, shares: np.ndarray[tuple[int], np.dtype[np.float64]], growing: bool, seed: int
) -> None:
    graph = simulate_growth(static, shares, growing_nodes=growing, seed=seed).finish()
    total = static.src.size
    for t, share in enumerate(shares):
        kept = edges(graph, t)
        assert kept <= whole(static)
        assert len(kept) == graph[t].num_edges == round(share * total)
        assert growing or graph[t].num_nodes == static.num_nodes
        if share == 1:
            assert kept == whole(static)
            assert graph[t].num_nodes == static.num_nodes


@given(static_graphs(), SHARES, st.booleans())
def test_a_smaller_snapshot_lies_within_a_larger_one(
    static: StaticGraph, shares: np.ndarray[tuple[int], np.dtype[np.float64]], growing: bool
) -> None:
    graph = simulate_growth(static, np.sort(shares), growing_nodes=growing).finish()
    for t in range(1, len(graph)):
        assert edges(graph, t - 1) <= edges(graph, t)
        assert set(graph[t - 1].nodes.tolist()) <= set(graph[t].nodes.tolist())


def large(num_nodes: int = 2000, num_edges: int = 20_000) -> StaticGraph:
    rng = np.random.default_rng(0)
    keys = rng.choice(num_nodes * num_nodes, num_edges, replace=False)
    return StaticGraph(num_nodes=num_nodes, src=keys // num_nodes, dst=keys % num_nodes, directed=True)


@pytest.mark.parametrize("growing", [False, True])
def test_a_seed_gives_one_graph_and_another_seed_another(growing: bool) -> None:
    static, shares = large(), growth_shares(5, 0.2)
    first, again, other = (
        simulate_growth(static, shares, growing_nodes=growing, seed=seed).finish() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_growing_nodes_follow_the_square_root_of_the_edges() -> None:
    static, shares = large(), growth_shares(10, 0.1)
    graph = simulate_growth(static, shares, growing_nodes=True).finish()
    nodes = np.array([snapshot.num_nodes for snapshot in graph]) / static.num_nodes
    np.testing.assert_allclose(nodes, np.sqrt(shares), rtol=0.05)


def test_growth_is_a_line_from_the_first_share_to_the_whole() -> None:
    np.testing.assert_allclose(growth_shares(5, 0.2), [0.2, 0.4, 0.6, 0.8, 1.0])


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
def test_noisy_growth_stays_a_share_and_ends_whole(snapshots: int, first: float, noise: float, seed: int) -> None:
    shares = growth_shares(snapshots, first, noise, seed)
    assert shares.shape == (snapshots,)
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    assert shares[-1] == 1
    assert (shares == growth_shares(snapshots, first, noise, seed)).all()
