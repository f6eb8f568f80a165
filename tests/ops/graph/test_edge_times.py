"""Features of nodes and pairs against sets of edges, looked at one by one."""

from __future__ import annotations

from itertools import product
from math import log, log1p, sqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph.edge_times import SCALES, EdgeTimes

Arc = tuple[int, int, int]
NODES = 5

arcs = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 30)).filter(lambda e: e[0] != e[1]),
    max_size=25,
    unique=True,
)


def meetings(times: list[int], t: int) -> list[float]:
    known = sorted(s for s in times if s <= t)
    if not known:
        return [0.0] * (3 + len(SCALES))
    recent = [log1p(sum(s > t - scale for s in known)) for scale in SCALES]
    return [float(known[-1] == t), 1 / (1 + t - known[-1]), *recent, log1p(len(known))]


def activity(times: list[int], t: int) -> list[float]:
    known = sorted(s for s in times if s <= t)
    if not known:
        return [0.0] * (3 + len(SCALES))
    counts = [log1p(sum(s > t - scale for s in known)) for scale in (1, *SCALES)]
    return [*counts, log1p(len(known)), 1 / (1 + t - known[-1])]


def common(edges: list[Arc], t: int, s: int, d: int) -> list[float]:
    last: dict[tuple[int, int], int] = {}
    for u, v, time in edges:
        if time <= t:
            for pair in ((u, v), (v, u)):
                last[pair] = max(time, last.get(pair, 0))
    neighbors = {node: {v for u, v in last if u == node} for node in range(NODES)}
    shared = neighbors[s] & neighbors[d]
    return [
        log1p(len(shared)),
        sum(1 / log(1 + len(neighbors[u])) for u in shared),
        sum(1 / sqrt((1 + t - last[s, u]) * (1 + t - last[d, u])) for u in shared),
    ]


def build(edges: list[Arc], *, directed: bool) -> tuple[EdgeTimes, list[Arc]]:
    if not directed:
        edges = sorted({arc for u, v, t in edges for arc in ((u, v, t), (v, u, t))})
    edges = sorted(edges, key=lambda arc: arc[2])
    src, dst, times = np.array(edges, np.int64).reshape(-1, 3).T
    return EdgeTimes(src, dst, times, NODES, directed=directed), edges


@settings(deadline=None, max_examples=60)
@given(arcs, st.booleans(), st.integers(0, 31))
def test_features_are_those_of_the_edges_so_far(edges: list[Arc], directed: bool, t: int) -> None:
    found, edges = build(edges, directed=directed)
    pairs = list(product(range(NODES), repeat=2))
    src, dst = np.array(pairs).T
    expected_pairs, expected_nodes = [], []
    for s, d in pairs:
        forward, backward = ([time for u, v, time in edges if (u, v) == pair] for pair in ((s, d), (d, s)))
        rows = [*meetings(forward, t), *(meetings(backward, t) if directed else [])]
        expected_pairs.append(rows + common(edges, t, s, d))
    for node in range(NODES):
        out, into = ([arc[2] for arc in edges if arc[end] == node] for end in (0, 1))
        expected_nodes.append([*activity(out, t), *(activity(into, t) if directed else [])])
    np.testing.assert_allclose(found.pair_features(t, src, dst), expected_pairs, rtol=1e-6)
    np.testing.assert_allclose(found.node_features(t, np.arange(NODES)), expected_nodes, rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(arcs, arcs, st.booleans(), st.integers(0, 30))
def test_later_edges_change_nothing(edges: list[Arc], later: list[Arc], directed: bool, t: int) -> None:
    known = [arc for arc in edges if arc[2] <= t]
    future = [arc for arc in later if arc[2] > t]
    src, dst = np.array(list(product(range(NODES), repeat=2))).T
    alone, whole = build(known, directed=directed)[0], build(known + future, directed=directed)[0]
    assert alone.pair_features(t, src, dst).tolist() == whole.pair_features(t, src, dst).tolist()
    assert alone.node_features(t, src).tolist() == whole.node_features(t, src).tolist()


def test_nodes_beyond_the_known_ones_have_zeros() -> None:
    found, _ = build([(0, 1, 0)], directed=True)
    assert not found.node_features(3, np.array([NODES, NODES + 7])).any()
    assert not found.pair_features(3, np.array([NODES, 0]), np.array([0, NODES])).any()
