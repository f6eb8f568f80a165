from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph import from_edges
from strobe.placement import Greedy
from strobe.placement.greedy import assign_to_smallest
from tests.support.placement_cases import communities, owned

pytest.importorskip("pymetis")


def test_parts_of_the_first_snapshot_are_metis_parts_and_stay() -> None:
    first = communities([6, 6], 1)
    sources, destinations, _ = first[0].edges()
    across = np.stack([np.arange(6), np.arange(6, 12)])
    graph = from_edges([np.stack([sources, destinations]), across, across], num_nodes=12, directed=False)
    owners = owned(graph, Greedy().place(graph, [], 2))
    assert {owners[0, v] for v in range(6)} != {owners[0, v] for v in range(6, 12)}
    assert all(owner == owners[0, v] for (_, v), owner in owners.items())


def test_the_first_snapshot_is_the_first_with_nodes() -> None:
    empty = np.zeros((2, 0), np.int64)
    cliques = np.array([(a, b) for first in (0, 5) for a in range(first, first + 5) for b in range(first, a)]).T
    graph = from_edges([empty, cliques], num_nodes=10, nodes=[[], range(10)], directed=False)
    owners = owned(graph, Greedy().place(graph, [], 2))
    assert len({owners[1, v] for v in range(5)}) == len({owners[1, v] for v in range(5, 10)}) == 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 20))
def test_newcomers_join_the_rank_with_fewest(counts: list[int], number: int) -> None:
    now = list(counts)
    for rank in assign_to_smallest(np.array(counts), number).tolist():
        assert rank == now.index(min(now))
        now[rank] += 1
