from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from strobe.graph import from_edges
from strobe.placement import MetisPerSnapshot
from strobe.placement.loads import loads_of_ranks
from tests.support.placement_cases import communities, owned

pytest.importorskip("pymetis")


def test_every_snapshot_is_even() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 300, 900), random.integers(0, 300, 900)]) for _ in range(3)]
    graph = from_edges(shots, num_nodes=300)
    placed = MetisPerSnapshot().place(graph, [], 4)
    of_ranks = loads_of_ranks(graph, placed, [range(t, t + 1) for t in range(3)])
    assert (of_ranks.max(axis=1) < 1.05 * of_ranks.min(axis=1)).all()


def test_nodes_stay_while_nothing_changes() -> None:
    graph = communities([4, 7, 5], 4)
    owners = owned(graph, MetisPerSnapshot().place(graph, [], 3))
    assert all(owner == owners[0, v] for (_, v), owner in owners.items())


def test_no_other_ranks_for_its_parts_would_let_more_nodes_stay() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 60, 90), random.integers(0, 60, 90)]) for _ in range(6)]
    graph = from_edges(shots, num_nodes=60)
    placed = MetisPerSnapshot().place(graph, [], 3)
    owners = [placed.owners(graph, t) for t in range(6)]
    for before, after in pairwise(owners):
        most = max(int((np.array(names)[after] == before).sum()) for names in permutations(range(3)))
        assert int((after == before).sum()) == most


def test_communities_go_back_to_the_rank_they_had_before_they_left() -> None:
    nodes = [range(12), range(6), range(12)]
    edges = [(a, b) for first in (0, 6) for a in range(first, first + 6) for b in range(first, a)]
    shots = [np.array([edge for edge in edges if edge[0] in present]).T for present in nodes]
    graph = from_edges(shots, num_nodes=12, nodes=nodes, directed=False)
    owners = owned(graph, MetisPerSnapshot().place(graph, [], 2))
    assert [owners[0, v] for v in range(12)] == [owners[2, v] for v in range(12)]
    assert len({owners[0, v] for v in range(12)}) == 2
