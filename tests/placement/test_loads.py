from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement import Hash
from strobe.placement.loads import loads_of_cells, loads_of_nodes, loads_of_ranks, split_sequences_evenly
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.placement_cases import chain, loads, owned


@given(dynamic_graphs(carried=False))
def test_a_cell_and_a_node_cost_a_unit_per_cell_and_per_arc_that_ends_there(plain: PlainGraph) -> None:
    graph, cost = plain.build(), loads(plain)
    for t in range(len(graph)):
        assert loads_of_cells(graph[t]).tolist() == [cost[t, v] for v in plain.present(t)]
    of_nodes = [sum(load for (_, v), load in cost.items() if v == node) for node in range(plain.num_nodes)]
    assert loads_of_nodes(graph).tolist() == of_nodes


@given(dynamic_graphs(carried=False, min_snapshots=2))
def test_ranks_have_what_their_cells_cost(plain: PlainGraph) -> None:
    graph = plain.build()
    placed = Hash().place(graph, [], 3)
    spans = [range(1), range(1, len(graph))]
    expected = np.zeros((2, 3), np.int64)
    for (t, v), owner in owned(graph, placed).items():
        expected[min(t, 1), owner] += loads(plain)[t, v]
    assert loads_of_ranks(graph, placed, spans).tolist() == expected.tolist()


@given(dynamic_graphs(carried=False), st.integers(1, 5))
def test_ranks_have_as_many_sequences_in_order_of_id(plain: PlainGraph, num_ranks: int) -> None:
    ranks = split_sequences_evenly(plain.build(), num_ranks)
    assert (np.diff(ranks) >= 0).all()
    per_rank = Counter(ranks[v] for v in {v for _, v in plain.cells()})
    counts = [per_rank[rank] for rank in range(num_ranks)]
    assert max(counts) - min(counts) <= 1


def test_nodes_that_are_never_present_do_not_count_as_sequences() -> None:
    later = chain([6, 2])[1:]  # 0 and 1 of six
    assert split_sequences_evenly(later, 2)[:2].tolist() == [0, 1]
