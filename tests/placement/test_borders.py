from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph import DynamicGraph
from strobe.placement.borders import SNAP, Borders
from tests.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.placement.cases import chain


def counts(sizes: list[int], num_ranks: int) -> list[list[int]]:
    """How many cells of each snapshot, of so many cells without edges, each rank has."""
    owners = Borders.of(chain(sizes), num_ranks).owners()
    return [np.bincount(owner, minlength=num_ranks).tolist() for owner in owners]


def test_a_snapshot_is_divided_where_a_block_ends_in_it() -> None:
    assert counts([100, 100, 100], 2) == [[100, 0], [50, 50], [0, 100]]
    assert counts([100, 200, 100, 50], 2) == [[100, 0], [125, 75], [0, 100], [0, 50]]


def test_every_snapshot_near_whose_edge_a_block_ends_stays_whole() -> None:
    assert counts([100, 102, 98, 100], 2) == [[100, 0], [102, 0], [0, 98], [0, 100]]
    assert counts([100, 110, 90, 100], 2) == [[100, 0], [100, 10], [0, 90], [0, 100]]


def test_a_heavy_snapshot_is_shared_by_many_ranks() -> None:
    assert counts([50, 300, 50], 4) == [[50, 0, 0, 0], [50, 100, 100, 50], [0, 0, 0, 50]]


def test_empty_snapshots_are_no_obstacle() -> None:
    assert counts([0, 40, 0, 0, 40, 0], 2) == [[0, 0], [40, 0], [0, 0], [0, 0], [0, 40], [0, 0]]
    assert counts([0, 0], 3) == [[0, 0, 0]] * 2


@pytest.mark.parametrize("graph", [plain.build() for plain in AWKWARD.values()], ids=list(AWKWARD))
def test_every_cell_of_awkward_graphs_has_an_owner(graph: DynamicGraph) -> None:
    for num_ranks in (1, 2, 5, 12):
        owners = Borders.of(graph, num_ranks).owners()
        assert [owner.size for owner in owners] == np.diff(graph.cell_ptr).tolist()
        assert all(0 <= rank < num_ranks for owner in owners for rank in owner.tolist())


@settings(max_examples=40, deadline=None)
@given(dynamic_graphs(carried=False, max_nodes=12, max_snapshots=12), st.integers(1, 6))
def test_all_ranks_of_a_snapshot_come_before_those_of_the_next(plain: PlainGraph, num_ranks: int) -> None:
    owners = [owner for owner in Borders.of(plain.build(), num_ranks).owners() if owner.size]
    for before, after in pairwise(owners):
        assert before.max() <= after.min()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(1, 6))
def test_loads_are_even(sizes: list[int], num_ranks: int) -> None:
    cells = np.array(counts(sizes, num_ranks)).sum(0)
    assert np.abs(cells - cells.mean()).max() <= 2 * (SNAP * cells.mean() + 1)


def test_ranks_share_in_pairs_where_snapshots_are_many_and_none_is_heavy() -> None:
    assert Borders.of(chain([10] * 9), 4).in_pairs
    assert not Borders.of(chain([10] * 7), 4).in_pairs
    assert not Borders.of(chain([10] * 9 + [190]), 4).in_pairs
