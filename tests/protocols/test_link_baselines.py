from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import numpy as np

from strobe.protocols.link_baselines import BASELINES, LinkHistory
from strobe.protocols.next_links import snapshot_links
from tests.protocols.link_files import load_links, random_links


def test_scores_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    graph = load_links(tmp_path, random_links(0, num_nodes=14, num_links=15))
    pairs = np.array(list(combinations_with_replacement(range(graph.num_nodes), 2)))
    history = LinkHistory(graph.num_nodes)
    links: dict[tuple[int, int], int] = {}
    degree, neighbors = [0] * graph.num_nodes, [set[int]() for _ in range(graph.num_nodes)]
    active = [-1] * graph.num_nodes
    for t, snapshot in enumerate(graph):
        history.read(snapshot_links(snapshot))
        for u, v in snapshot_links(snapshot).tolist():
            links[u, v] = active[u] = active[v] = t
            degree[u] += 1
            degree[v] += 1
            if u != v:
                neighbors[u].add(v)
                neighbors[v].add(u)
        scores = history.scores(pairs)
        assert tuple(scores) == BASELINES
        for row, (u, v) in enumerate(pairs.tolist()):
            assert scores["edgebank"][row] == ((u, v) in links)
            assert scores["edgebank-window"][row] == (links.get((u, v)) == t)  # 15 % of 5 snapshots: the last one
            assert scores["popularity"][row] == degree[u] * degree[v]
            assert scores["common-neighbors"][row] == len(neighbors[u] & neighbors[v])
        keys = [
            (1, links[u, v], 0.0) if (u, v) in links else (0, 0, _activity(active[u], t) * _activity(active[v], t))
            for u, v in pairs.tolist()
        ]
        recent = scores["most-recent-first"]
        order = sorted(range(len(pairs)), key=lambda row: keys[row])
        assert all(
            recent[a] <= recent[b] and (keys[a] < keys[b]) == (recent[a] < recent[b]) for a, b in pairwise(order)
        )


def _activity(last: int, t: int) -> float:
    return 0.0 if last < 0 else 1 / (1.0 + t - last)
