from __future__ import annotations

import sys
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.placement import TimeBlocks
from strobe.placement.base import cell_loads
from strobe.placement.loads import loads_of_ranks
from strobe.placement.time_blocks import EVEN
from tests.graphs import PlainGraph, dynamic_graphs
from tests.placement.cases import chain, owned, smallest_largest


def few_large_snapshots(num_snapshots: int = 3) -> DynamicGraph:
    """Too few for the ranks, but of many nodes; from one to the next nearly all nodes change."""
    random = np.random.default_rng(0)
    nodes = [range(80 * t, 80 * t + 100) for t in range(num_snapshots)]
    shots = [random.integers(present.start, present.stop, (2, 400)) for present in nodes]
    return from_edges(shots, num_nodes=nodes[-1].stop, nodes=nodes)


def uneven(graph: DynamicGraph, num_ranks: int, placement: TimeBlocks) -> float:
    of_ranks = loads_of_ranks(graph, placement.place(graph, [], num_ranks), [range(len(graph))])
    return float(of_ranks.max() / of_ranks.mean())


@given(dynamic_graphs(carried=False, max_snapshots=6, min_snapshots=1), st.integers(1, 4), st.integers(0, 6))
def test_the_largest_block_of_every_window_is_as_small_as_can_be(
    plain: PlainGraph, num_ranks: int, middle: int
) -> None:
    graph = plain.build()
    middle = min(middle, len(graph))
    placed = TimeBlocks(parts=1).place(graph, [range(middle), range(middle, len(graph))], num_ranks)
    for window in (range(middle), range(middle, len(graph))):
        loads = cell_loads(graph)[window.start : window.stop]
        of_ranks = np.bincount(placed.of_snapshot[window.start : window.stop], loads, num_ranks)
        assert of_ranks.max() == smallest_largest(loads.tolist(), num_ranks)


def test_blocks_are_cut_where_the_load_balances_not_where_the_count_does() -> None:
    placed = TimeBlocks().place(chain([1, 1, 1, 1, 4, 4]), [], 3)
    assert placed.of_snapshot.tolist() == [0, 0, 0, 0, 1, 2]


def test_every_window_is_shared_by_all_ranks() -> None:
    placed = TimeBlocks(parts=1).place(chain([4, 4, 1, 1, 1, 3]), [range(2), range(2, 6)], 2)
    assert placed.of_snapshot.tolist() == [0, 1, 0, 0, 0, 1]


def test_snapshots_stay_whole_where_blocks_are_even_enough() -> None:
    assert TimeBlocks().place(chain([5] * 8), [], 4).whole_snapshots


def test_nodes_are_cut_where_snapshots_alone_cannot_balance() -> None:
    graph = few_large_snapshots()
    assert uneven(graph, 6, TimeBlocks(parts=1)) > 1.5
    assert uneven(graph, 6, TimeBlocks()) <= EVEN


def test_the_fewest_parts_that_are_even_are_taken() -> None:
    graph = few_large_snapshots()
    owners = owned(graph, TimeBlocks().place(graph, [], 6))
    assert {(t, owner // 2) for (t, _), owner in owners.items()} == {(0, 0), (1, 1), (2, 2)}
    assert set(owners.values()) == set(range(6))


@given(dynamic_graphs(carried=False, max_nodes=12, max_edges=12, min_snapshots=1))
def test_the_fewest_parts_that_are_even_are_taken_and_where_none_are_the_nearest(plain: PlainGraph) -> None:
    graph = plain.build()
    if not graph.num_cells:
        return
    found = [uneven(graph, 6, TimeBlocks(parts=parts)) for parts in (1, 2, 3, 6)]
    expected = next((value for value in found if value <= EVEN), min(found))
    assert uneven(graph, 6, TimeBlocks()) == expected


def test_nodes_keep_their_part_from_block_to_block_where_they_can() -> None:
    random = np.random.default_rng(0)
    graph = from_edges([random.integers(0, 60, (2, 90)) for _ in range(4)], num_nodes=60)
    placed = TimeBlocks(parts=3).place(graph, [], 12)
    parts = [placed.owners(graph, t) % 3 for t in range(4)]
    for before, after in pairwise(parts):
        most = max(int((np.array(names)[after] == before).sum()) for names in permutations(range(3)))
        assert int((after == before).sum()) == most


def test_ranks_are_blocks_times_parts_as_asked() -> None:
    graph = few_large_snapshots(4)
    owners = owned(graph, TimeBlocks(parts=4).place(graph, [], 8))
    assert {(t // 2, owner // 4) for (t, _), owner in owners.items()} == {(0, 0), (1, 1)}


def test_one_rank_takes_any_number_of_parts() -> None:
    assert set(owned(chain([2, 2]), TimeBlocks(parts=8).place(chain([2, 2]), [], 1)).values()) == {0}


def test_without_the_package_nodes_are_cut_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = few_large_snapshots(2)
    owners = owned(graph, TimeBlocks(parts=2).place(graph, [], 4))
    assert set(owners.values()) == {0, 1, 2, 3}
    assert {(t, owner // 2) for (t, _), owner in owners.items()} == {(0, 0), (1, 1)}


def test_parts_that_do_not_divide_the_ranks_are_refused() -> None:
    with pytest.raises(OptionError, match="6 ranks cannot be blocks of 4 parts each: choose one of 1, 2, 3, 6"):
        TimeBlocks(parts=4).place(chain([1]), [], 6)


def test_less_than_one_part_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 part, not 0"):
        TimeBlocks(parts=0)


def test_whole_snapshots_are_promised_only_for_one_part() -> None:
    assert [TimeBlocks(parts=parts).gives for parts in (None, 1, 2)] == [(), ("whole snapshots",), ()]
