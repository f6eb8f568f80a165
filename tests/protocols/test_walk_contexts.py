from __future__ import annotations

import numpy as np
import pytest

import strobe
from strobe.protocols.walk_contexts import WalkContexts


def test_contexts_have_the_distribution_of_random_walks() -> None:
    src, dst, weight = np.array([0, 1, 1, 3]), np.array([1, 2, 3, 3]), np.array([1.0, 2.0, 1.0, 3.0])
    graph = strobe.from_edges([np.stack([src, dst])], num_nodes=6, weights=[weight], directed=False)
    snapshot, steps = graph[0], 3
    contexts = WalkContexts.of(snapshot, steps)
    links = np.zeros((6, 6))
    links[src, dst] = links[dst, src] = weight
    expected = np.zeros((6, 6))
    active = links.sum(axis=1) > 0
    chance = np.zeros_like(links)
    chance[active] = links[active] / links[active].sum(axis=1, keepdims=True)
    for k in range(1, steps + 1):
        expected += np.linalg.matrix_power(chance, k)
    np.fill_diagonal(expected, 0)
    expected[active] /= expected[active].sum(axis=1, keepdims=True)
    nodes, found = (snapshot.nodes[at] for at in contexts.sample(20_000, np.random.default_rng(0)))
    assert sorted(set(nodes.tolist())) == [0, 1, 2, 3]
    counts = np.zeros((6, 6))
    np.add.at(counts, (nodes, found), 1 / 20_000)
    assert counts == pytest.approx(expected, abs=0.02)


def test_a_snapshot_without_links_has_no_contexts() -> None:
    graph = strobe.from_edges([np.empty((2, 0), np.int64)], num_nodes=3, directed=False)
    nodes, found = WalkContexts.of(graph[0]).sample(5, np.random.default_rng(0))
    assert len(nodes) == len(found) == 0
