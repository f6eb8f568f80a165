from __future__ import annotations

import numpy as np
import pytest

from strobe.graph import DynamicGraph, from_edges
from strobe.graph.stats import describe
from strobe.report.graph_captions import bytes_caption, churn_caption, degree_caption, load_caption


def rings(*sizes: int) -> DynamicGraph:
    """A ring of each size, all over the same nodes."""
    edges = [[np.arange(size), (np.arange(size) + 1) % size] for size in sizes]
    return from_edges(edges, num_nodes=max(sizes))


STILL = rings(*[100] * 12)
GROWING = rings(*range(10, 130, 10))
SHUFFLED = from_edges([np.random.default_rng(t).integers(0, 500, (2, 400)) for t in range(4)], num_nodes=500)
STAR = from_edges([[np.arange(1, 200), np.zeros(199, int)]])


def test_bytes_are_compared() -> None:
    assert bytes_caption(describe(STILL)).endswith("as deltas: 8.3% of the bytes.")
    assert bytes_caption(describe(SHUFFLED)).endswith("so much changes that deltas are the larger.")


def test_uneven_time_is_told_as_the_heaviest_share() -> None:
    assert load_caption(describe(STILL)).endswith("four parts of equally many snapshots have nearly equal work.")
    assert load_caption(describe(GROWING)).endswith("the heaviest has 1.24 times its share of the work.")


@pytest.mark.parametrize("graph", [STILL, GROWING, SHUFFLED, STAR])
def test_captions_state_facts_and_recommend_nothing(graph: DynamicGraph) -> None:
    stats = describe(graph)
    for caption in (bytes_caption, churn_caption, degree_caption, load_caption):
        said = caption(stats)
        for advice in ("use the", "keep snapshots", "cut time", "balance ranks", "ranks need"):
            assert advice not in said
