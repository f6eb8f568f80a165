from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strobe.graph import DynamicGraph, from_edges
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.blocks import (
    SNAP_SHARE,
    FractionalBlocks,
    PartitionCandidate,
    balance_blocks,
    choose_candidate,
    evaluate_candidate,
    imbalance,
    rows_sent,
    split_snapshot,
)
from strobe.placement.loads import loads_of_cells
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.placement_cases import chain, communities, smallest_largest

pytest.importorskip("pymetis")


LOADS = st.lists(st.integers(0, 9) | st.just(50), max_size=9)


@given(LOADS, st.integers(1, 6))
@example([20, 1, 20, 3, 5, 2, 9], 4)  # blocks that are only even with their neighbours may have 21 here
@example([9, 3, 3, 0, 9, 2, 2], 3)
def test_blocks_are_not_empty_and_no_other_cuts_are_more_even(loads: list[int], num_blocks: int) -> None:
    """Neither for the largest block, nor for two neighbours."""
    block = balance_blocks(np.array(loads, np.int64), num_blocks)
    assert (np.diff(block) >= 0).all()
    assert len(set(block.tolist())) == min(len(loads), num_blocks)
    assert max(np.bincount(block, loads, num_blocks)) == smallest_largest(loads, num_blocks)
    for left in range(num_blocks - 1 if len(loads) >= num_blocks else 0):
        both = [load for load, at in zip(loads, block.tolist(), strict=True) if at in (left, left + 1)]
        apart = [abs(sum(both[:at]) - sum(both[at:])) for at in range(1, len(both))]
        assert apart[block.tolist().count(left) - 1] == min(apart)


def counts(sizes: list[int], num_ranks: int) -> list[list[int]]:
    """Cells of each rank in each snapshot, for snapshots of these sizes without edges."""
    owners = FractionalBlocks.of(chain(sizes), num_ranks).owners()
    return [np.bincount(owner, minlength=num_ranks).tolist() for owner in owners]


@pytest.mark.parametrize(
    ("sizes", "num_ranks", "expected"),
    [
        ([100, 100, 100], 2, [[100, 0], [50, 50], [0, 100]]),  # divided where a block ends
        ([100, 102, 98, 100], 2, [[100, 0], [102, 0], [0, 98], [0, 100]]),  # whole if a block ends near its edge
        ([100, 110, 90, 100], 2, [[100, 0], [100, 10], [0, 90], [0, 100]]),
        ([50, 300, 50], 4, [[50, 0, 0, 0], [50, 100, 100, 50], [0, 0, 0, 50]]),
        ([0, 40, 0, 0, 40, 0], 2, [[0, 0], [40, 0], [0, 0], [0, 0], [0, 40], [0, 0]]),
        ([0, 0], 3, [[0, 0, 0]] * 2),
    ],
)
def test_blocks_of_equal_load_divide_snapshots(sizes: list[int], num_ranks: int, expected: list[list[int]]) -> None:
    assert counts(sizes, num_ranks) == expected


@settings(max_examples=40, deadline=None)
@given(dynamic_graphs(carried=False, max_nodes=12, max_snapshots=12), st.integers(1, 6))
def test_all_ranks_of_a_snapshot_come_before_those_of_the_next(plain: PlainGraph, num_ranks: int) -> None:
    owners = [owner for owner in FractionalBlocks.of(plain.build(), num_ranks).owners() if owner.size]
    for before, after in pairwise(owners):
        assert before.max() <= after.min()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(1, 6))
def test_loads_are_even(sizes: list[int], num_ranks: int) -> None:
    cells = np.array(counts(sizes, num_ranks)).sum(0)
    assert np.abs(cells - cells.mean()).max() <= 2 * (SNAP_SHARE * cells.mean() + 1)


def test_ranks_share_in_pairs_where_snapshots_are_many_and_none_is_heavy() -> None:
    assert FractionalBlocks.of(chain([10] * 9), 4).is_pairwise
    assert not FractionalBlocks.of(chain([10] * 7), 4).is_pairwise
    assert not FractionalBlocks.of(chain([10] * 9 + [190]), 4).is_pairwise


def parts(graph: DynamicGraph, shares: list[float], slack: float = 0.0) -> IntArray:
    return split_snapshot(graph, 0, np.array(shares), slack)


def loads(graph: DynamicGraph, part: IntArray, num_parts: int) -> IntArray:
    return np.bincount(part, loads_of_cells(graph[0]), num_parts)


@pytest.mark.parametrize(
    "shares", [[1.0, 1.0], [1.0, 3.0], [5.0, 1.0], [1.0, 2.0, 2.0, 1.0], [1.0, 8.0, 8.0, 8.0, 3.0]]
)
def test_every_part_has_its_share(shares: list[float]) -> None:
    random = np.random.default_rng(0)
    graph = from_edges([random.integers(0, 500, (2, 2000))], num_nodes=500)
    wanted = np.array(shares) / sum(shares)
    found = loads(graph, parts(graph, shares), len(shares))
    assert found / found.sum() == pytest.approx(wanted, abs=0.01)


def test_communities_stay_together() -> None:
    graph = communities([8] * 12, 1)
    for shares in ([1.0, 2.0], [3.0, 1.0], [1.0, 1.0, 1.0]):
        # A slack of half a node: those at the ends of the row have an edge less than others.
        part = parts(graph, shares, slack=12).reshape(12, 8)
        assert (part == part[:, :1]).all()


def test_no_more_cells_than_parts_are_laid_end_to_end() -> None:
    assert parts(chain([2]), [1.0, 1.0]).tolist() == [0, 1]
    assert parts(chain([2]), [1.0, 5.0]).tolist() == [1, 1]
    assert parts(chain([1]), [1.0, 4.0, 1.0]).tolist() == [1]


def test_small_snapshots_are_divided_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        size = int(random.integers(1, 30))
        edges = random.integers(0, size, (2, int(random.integers(0, 60))))
        shares = random.random(int(random.integers(1, 7))) + 0.02
        part = parts(from_edges([edges], num_nodes=size, directed=False), shares.tolist())
        assert part.shape == (size,)
        assert 0 <= part.min() <= part.max() < shares.size
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_without_the_package_cells_are_divided_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    part = parts(chain([1000]), [1.0, 3.0])
    assert np.bincount(part).tolist() == [250, 750]
    assert len(set(part[:50].tolist())) == 2  # blind to the order of nodes
    assert parts(chain([1000]), [1.0, 3.0]).tolist() == part.tolist()


@given(dynamic_graphs(carried=False), st.data())
def test_rows_are_cells_read_elsewhere_and_states_that_change_ranks(plain: PlainGraph, data: st.DataObject) -> None:
    graph = plain.build()
    rank = st.integers(0, 2)
    last = np.array([data.draw(st.integers(-1, 2)) for _ in range(graph.num_nodes)], np.int64)
    owners = [np.array([data.draw(rank) for _ in range(shot.num_nodes)], np.int16) for shot in graph]
    at = {v: owner for v, owner in enumerate(last.tolist()) if owner >= 0}
    expected = 0
    for t, owner in enumerate(owners):
        of = dict(zip(graph[t].nodes.tolist(), owner.tolist(), strict=True))
        expected += len({(read, of[reader]) for reader, read, _ in plain.arcs(t) if of[read] != of[reader]})
        expected += sum(at.get(v, here) != here for v, here in of.items())
        at |= of
    assert rows_sent(graph, owners, last) == expected


def test_a_way_knows_how_uneven_it_is_and_what_it_sends() -> None:
    graph = chain([3, 3])
    found = evaluate_candidate(graph, [np.zeros(3, np.int16), np.array([0, 1, 1], np.int16)], np.array([1, -1, -1]), 2)
    assert (found.imbalance, found.rows_sent) == (4 / 3, 3)


@pytest.mark.parametrize("values", [[(1.2, 0), (1.0, 9), (1.04, 5)], [(2.0, 0), (1.30, 9), (1.33, 5)]])
def test_of_even_candidates_the_one_that_sends_fewest_rows_wins(values: list[tuple[float, int]]) -> None:
    candidates = [PartitionCandidate([], uneven, rows) for uneven, rows in values]
    assert choose_candidate(candidates).rows_sent == 5


def test_unevenness_counts_the_slowest_rank_of_every_stretch() -> None:
    assert imbalance(np.array([[3, 1], [1, 3]])) == 1.5
    assert imbalance(np.zeros((0, 3), np.int64)) == imbalance(np.zeros((2, 3), np.int64)) == 1.0
