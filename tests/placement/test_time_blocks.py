from __future__ import annotations

import sys
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm import NO_RANK
from strobe.errors import OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.placement import TimeBlocks
from strobe.placement.algorithms.blocks import MAX_IMBALANCE, rows_sent
from strobe.placement.base import snapshot_loads
from strobe.placement.loads import loads_of_ranks
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.placement_cases import chain, communities, owned, smallest_largest


def few_large_snapshots(num_snapshots: int = 3) -> DynamicGraph:
    """Too few for the ranks, but of many nodes; from one to the next nearly all nodes change."""
    random = np.random.default_rng(0)
    nodes = [range(80 * t, 80 * t + 100) for t in range(num_snapshots)]
    shots = [random.integers(present.start, present.stop, (2, 400)) for present in nodes]
    return from_edges(shots, num_nodes=nodes[-1].stop, nodes=nodes)


def growing() -> DynamicGraph:
    """More nodes from time to time; four in five edges stay within communities of ten."""
    random = np.random.default_rng(0)
    sizes = [40] * 6 + [120] * 4 + [200] * 7
    shots = []
    for size in sizes:
        source, anybody = random.integers(0, size, (2, 3 * size))
        near = source // 10 * 10 + random.integers(0, 10, 3 * size)
        shots.append(np.stack([source, np.where(random.random(3 * size) < 0.8, near, anybody)]))
    return from_edges(shots, num_nodes=200, nodes=[range(size) for size in sizes], directed=False)


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
        loads = snapshot_loads(graph)[window.start : window.stop]
        of_ranks = np.bincount(placed.snapshot_owner[window.start : window.stop], loads, num_ranks)
        assert of_ranks.max() == smallest_largest(loads.tolist(), num_ranks)


def test_every_window_is_shared_by_all_ranks() -> None:
    placed = TimeBlocks(parts=1).place(chain([4, 4, 1, 1, 1, 3]), [range(2), range(2, 6)], 2)
    assert placed.snapshot_owner.tolist() == [0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_ranks_are_even_where_whole_snapshots_are_not(num_ranks: int) -> None:
    graph = growing()
    assert uneven(graph, num_ranks, TimeBlocks(parts=1)) > MAX_IMBALANCE
    assert uneven(graph, num_ranks, TimeBlocks()) < 1.04


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_only_consecutive_ranks_share_a_snapshot_and_each_pair_one(num_ranks: int) -> None:
    graph = growing()
    placed = TimeBlocks().place(graph, [], num_ranks)
    ranks = [set(placed.owners(graph, t).tolist()) for t in range(len(graph))]
    shared = [tuple(sorted(these)) for these in ranks if len(these) > 1]
    assert shared
    assert set(shared) <= {(rank, rank + 1) for rank in range(num_ranks - 1)}
    assert len(set(shared)) == len(shared)


def test_ranks_follow_each_other_in_time_in_every_window() -> None:
    graph = growing()
    windows = [range(8), range(8, 17)]
    placed = TimeBlocks().place(graph, windows, 4)
    for window in windows:
        last = np.zeros(graph.num_nodes, np.int64)
        for t in window:
            assert (placed.owners(graph, t) >= last[graph[t].nodes]).all()
            last[graph[t].nodes] = placed.owners(graph, t)
        assert last.max() == 3


def test_sharing_snapshots_at_borders_sends_fewer_rows_than_cutting_nodes_into_parts() -> None:
    graph = growing()
    last = np.full(graph.num_nodes, NO_RANK)

    def rows(placement: TimeBlocks) -> int:
        placed = placement.place(graph, [], 4)
        return rows_sent(graph, [placed.owners(graph, t) for t in range(len(graph))], last)

    assert rows(TimeBlocks()) < 0.7 * min(rows(TimeBlocks(parts=parts)) for parts in (2, 4))


def test_windows_that_are_even_keep_whole_snapshots() -> None:
    graph = chain([40, 40, 40, 40, *([10, 50] * 6)])
    placed = TimeBlocks().place(graph, [range(4), range(4, 16)], 4)
    assert [placed.owners(graph, t).tolist() for t in range(4)] == [[t] * 40 for t in range(4)]
    assert not placed.whole_snapshots


def test_snapshots_in_no_window_need_not_be_even() -> None:
    graph = chain([5] * 9)
    placed = TimeBlocks().place(graph, [range(8)], 4)
    assert placed.whole_snapshots
    assert placed.snapshot_owner[:8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_nodes_are_cut_where_that_sends_fewer_rows_than_many_ranks_in_every_snapshot() -> None:
    graph = communities([6] * 6, 3)
    owners = owned(graph, TimeBlocks().place(graph, [], 6))
    assert all(owners[t, v] == owners[0, v - v % 6] for t, v in owners)  # no node moves, and no community is cut
    assert set(owners.values()) == set(range(6))


def test_snapshots_are_shared_by_many_ranks_where_that_sends_fewer_rows_than_cutting_nodes() -> None:
    graph = few_large_snapshots()
    owners = owned(graph, TimeBlocks().place(graph, [], 6))
    assert {(t, owner // 2) for (t, _), owner in owners.items()} == {(0, 0), (1, 1), (2, 2)}
    assert set(owners.values()) == set(range(6))


def test_nodes_keep_their_part_from_block_to_block_where_they_can() -> None:
    random = np.random.default_rng(0)
    graph = from_edges([random.integers(0, 60, (2, 90)) for _ in range(4)], num_nodes=60)
    placed = TimeBlocks(parts=3).place(graph, [], 12)
    parts = [placed.owners(graph, t) % 3 for t in range(4)]
    for before, after in pairwise(parts):
        most = max(int((np.array(names)[after] == before).sum()) for names in permutations(range(3)))
        assert int((after == before).sum()) == most


def test_without_the_package_nodes_are_cut_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = few_large_snapshots(2)
    owners = owned(graph, TimeBlocks(parts=2).place(graph, [], 4))
    assert set(owners.values()) == {0, 1, 2, 3}
    assert {(t, owner // 2) for (t, _), owner in owners.items()} == {(0, 0), (1, 1)}


def test_without_the_package_snapshots_are_shared_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = growing()
    assert uneven(graph, 4, TimeBlocks()) <= MAX_IMBALANCE
    assert not TimeBlocks().place(graph, [], 4).whole_snapshots


def test_parts_that_do_not_divide_the_ranks_are_refused() -> None:
    with pytest.raises(OptionError, match="choose one of 1, 2, 3, 6"):
        TimeBlocks(parts=4).place(chain([1]), [], 6)
