from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import InputError
from strobe.placement import Partition
from strobe.placement.base import snapshot_loads, split_at_windows, split_evenly
from tests.support.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.support.placement_cases import loads


@given(st.integers(0, 30), st.integers(1, 12))
def test_even_gives_every_rank_about_as_many_in_order(count: int, num_ranks: int) -> None:
    ranks = split_evenly(count, num_ranks)
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
    assert snapshot_loads(graph).tolist() == cost


def test_a_sequence_belongs_to_the_rank_with_most_of_its_cells() -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    placed = Partition.by_snapshot(3, np.array([2, 0, 2]), graph.num_nodes).with_sequence_owner(graph)
    assert placed.sequence_owner is not None
    assert placed.sequence_owner.tolist() == [2, 2, 2]


def test_ranks_that_have_as_many_cells_share_sequences_evenly() -> None:
    graph = PlainGraph(4, AWKWARD["no edges"].snapshots).build()  # nodes 0, 1, 2 in both snapshots
    placed = Partition.by_snapshot(2, np.array([0, 1]), graph.num_nodes).with_sequence_owner(graph)
    assert placed.sequence_owner is not None
    assert placed.sequence_owner.tolist() == [0, 1, 0, 1]


def test_owners_of_sequences_that_were_given_stay() -> None:
    graph = AWKWARD["isolated nodes"].build()
    placed = Partition.by_node(2, np.array([1, 0, 1, 1, 0]), len(graph))
    assert placed.with_sequence_owner(graph) is placed


def test_snapshots_are_split_at_windows_and_gaps() -> None:
    assert split_at_windows([range(6, 8), range(2, 4)], 9) == [
        range(2),
        range(2, 4),
        range(4, 6),
        range(6, 8),
        range(8, 9),
    ]


def test_without_windows_all_snapshots_are_one_span() -> None:
    assert split_at_windows([], 5) == split_at_windows([range(3, 3)], 5) == [range(5)]


def test_graph_without_snapshots_has_no_spans() -> None:
    assert split_at_windows([], 0) == []


def test_windows_that_overlap_are_cut_where_the_other_begins() -> None:
    assert split_at_windows([range(0, 3), range(2, 5)], 5) == [range(2), range(2, 3), range(3, 5)]


@pytest.mark.parametrize("window", [range(2, 6), range(-1, 2), range(0, 4, 2)])
def test_window_outside_the_graph_raises(window: range) -> None:
    with pytest.raises(InputError, match="5 snapshots"):
        split_at_windows([window], 5)
