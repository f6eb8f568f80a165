from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph import from_edges
from strobe.placement.edge_weights import ROW, weighed
from tests.graphs import PlainGraph, dynamic_graphs
from tests.placement.plain_online import utility, weights


def test_an_edge_weighs_a_part_of_a_row_for_each_end() -> None:
    graph = from_edges([np.array([[0, 0, 0], [1, 2, 3]])], num_nodes=4, directed=False)
    links = weighed(graph[0])
    assert links.weight[:3].tolist() == [ROW // 3 + ROW] * 3  # a hub of three, and its leaves
    assert links.total == 3 * (ROW // 3 + ROW)
    assert links.total / ROW == pytest.approx(4)  # every node draws a row


@given(dynamic_graphs(min_snapshots=1, carried=False), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_weights_are_those_of_pairs(plain: PlainGraph, ranks: list[int]) -> None:
    graph = plain.build()
    for t, snapshot in enumerate(graph):
        links, slow = weighed(snapshot), weights(plain, t)
        owner = {v: ranks[v] for v in plain.present(t)}
        assert links.total == sum(slow.values())
        assert links.utility(np.array(list(owner.values()), np.int16)) == utility(slow, owner)
        for row in range(snapshot.num_nodes):
            near: dict[int, int] = {}
            for at in range(int(links.row_ptr[row]), int(links.row_ptr[row + 1])):
                near[int(links.col[at])] = near.get(int(links.col[at]), 0) + int(links.weight[at])
            for other, weight in near.items():
                pair = frozenset((int(snapshot.nodes[row]), int(snapshot.nodes[other])))
                assert weight == slow.get(pair, 0)  # self-loops weigh nothing
