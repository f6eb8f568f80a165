from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement import Placed
from strobe.placement.base import cell_loads, even
from tests.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.placement.cases import loads


@given(st.integers(0, 30), st.integers(1, 12))
def test_even_gives_every_rank_about_as_many_in_order(count: int, num_ranks: int) -> None:
    ranks = even(count, num_ranks)
    assert len(ranks) == count
    assert (np.diff(ranks) >= 0).all()
    per_rank = np.bincount(ranks, minlength=num_ranks)
    assert len(per_rank) == num_ranks
    assert per_rank.max() - per_rank.min() <= 1


@given(dynamic_graphs(carried=False), st.booleans())
def test_a_snapshot_costs_its_cells_and_arcs(plain: PlainGraph, later: bool) -> None:
    graph = plain.build()[1:] if later else plain.build()
    plain = plain.slice(slice(1, None)) if later else plain
    cost = [0] * len(plain.snapshots)
    for (t, _), load in loads(plain).items():
        cost[t] += load
    assert cell_loads(graph).tolist() == cost


def test_a_sequence_belongs_to_the_rank_with_most_of_its_cells() -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    placed = Placed.by_snapshot(3, np.array([2, 0, 2]), graph.num_nodes).with_sequences(graph)
    assert placed.of_sequence is not None
    assert placed.of_sequence.tolist() == [2, 2, 2]


def test_ranks_that_have_as_many_cells_share_sequences_evenly() -> None:
    graph = PlainGraph(4, AWKWARD["no edges"].snapshots).build()  # nodes 0, 1, 2 in both snapshots
    placed = Placed.by_snapshot(2, np.array([0, 1]), graph.num_nodes).with_sequences(graph)
    assert placed.of_sequence is not None
    assert placed.of_sequence.tolist() == [0, 1, 0, 1]


def test_owners_of_sequences_that_were_given_stay() -> None:
    graph = AWKWARD["isolated nodes"].build()
    placed = Placed.by_node(2, np.array([1, 0, 1, 1, 0]), len(graph))
    assert placed.with_sequences(graph) is placed
