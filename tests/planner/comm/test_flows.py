from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.exchange.relay.legs import NO_RANK, _rank_levels
from strobe.ops.sparse.csr import FloatArray
from strobe.placement import Partition
from strobe.planner.comm.flows import (
    cells_in_waves,
    rank_levels,
    relay_seconds,
    snapshot_flows,
    unique_below,
    window_flow,
)
from strobe.view import Owners
from tests.support.partitions import Owned, owned_graphs
from tests.support.runs import small_graph

ranks = st.integers(0, 3)


@given(st.lists(st.integers(0, 20)), st.sampled_from([21, 1_000]))
def test_keys_come_once_and_ascending_whether_they_are_sorted_or_marked(keys: list[int], limit: int) -> None:
    assert unique_below(np.array(keys, np.int64), limit).tolist() == sorted(set(keys))


@given(st.lists(st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])))
def test_levels_are_those_of_a_relay_and_none_where_sequences_go_round_in_circles(pairs: list[tuple[int, int]]) -> None:
    told = np.zeros((4, 4), bool)
    for source, target in pairs:
        told[source, target] = True
    found, expected = rank_levels(told), _rank_levels(told)
    assert (found is None) == (expected is None)
    assert found is None or expected is None or found.tolist() == expected.tolist()


@given(st.lists(st.lists(st.tuples(st.integers(NO_RANK, 3), ranks)), max_size=3))
def test_rows_that_stay_and_rows_of_nobody_do_not_travel(window: list[list[tuple[int, int]]]) -> None:
    rows = [(np.array([a for a, _ in each], np.int16), np.array([b for _, b in each], np.int16)) for each in window]
    travel = [[(a, b) for a, b in each if a not in (b, NO_RANK)] for each in window]
    for found, expected in zip(snapshot_flows(rows, 4), travel, strict=True):
        assert found.rows_sent.tolist() == [sum(a == rank for a, _ in expected) for rank in range(4)]
        assert found.rows_received.tolist() == [sum(b == rank for _, b in expected) for rank in range(4)]
        assert found.messages_sent.tolist() == [len({b for a, b in expected if a == rank}) for rank in range(4)]
        assert found.backward.messages_sent.tolist() == [
            len({a for a, b in expected if b == rank}) for rank in range(4)
        ]
    whole, everything = window_flow(rows, 4), [pair for each in travel for pair in each]
    assert whole.rows_sent.tolist() == [sum(a == rank for a, _ in everything) for rank in range(4)]
    assert whole.messages_received.tolist() == [len({a for a, b in everything if b == rank}) for rank in range(4)]


def walked(owned: Owned) -> tuple[dict[tuple[int, int], int], bool]:
    """Cells by (wave, rank), one sequence after the other; and whether ranks come in turn."""
    told = np.zeros((owned.num_ranks, owned.num_ranks), bool)
    found: dict[tuple[int, int], int] = {}
    for node in range(owned.graph.num_nodes):
        at = [(t, np.flatnonzero(owned.graph[t].nodes == node)) for t in range(len(owned.graph))]
        visited = [owned.owner(t)[int(k[0])] for t, k in at if len(k)]
        wave, before = 0, None
        for owner in (each for each in visited if each >= 0):
            if before not in (None, owner):
                told[before, owner] = True
                wave += 1
            found[wave, owner] = found.get((wave, owner), 0) + 1
            before = owner
    levels = _rank_levels(told)
    if levels is None:
        return found, False
    total = {(int(levels[rank]), rank): 0 for rank in range(owned.num_ranks)}
    for (_, rank), cells in found.items():
        total[int(levels[rank]), rank] += cells
    return {key: cells for key, cells in total.items() if cells}, True


@given(owned_graphs(min_ranks=1, some=True))
@settings(deadline=None, max_examples=150)
def test_waves_are_those_of_a_walk_over_sequences(owned: Owned) -> None:
    owners = Owners(owned.graph, owned.placed, range(len(owned.graph)), owned.chosen)
    cells, in_turn = cells_in_waves(owners)
    found = {(int(w), int(r)): int(cells[w, r]) for w, r in zip(*np.nonzero(cells), strict=True)}
    assert (found, in_turn) == walked(owned)
    assert cells.shape[1] == owned.num_ranks


def test_blocks_of_time_have_a_wave_each_and_circles_have_many() -> None:
    graph = small_graph()
    blocks = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    for of_snapshot, waves in ((blocks, 3), (np.arange(10) % 2, 10)):
        placed = Partition.by_snapshot(3, of_snapshot, graph.num_nodes)
        cells, in_turn = cells_in_waves(Owners(graph, placed, range(10)))
        assert in_turn == (waves == 3)
        assert len(cells) <= waves
        assert (np.count_nonzero(cells, axis=0) == 1).all() == in_turn


def slot_by_slot(in_waves: FloatArray, groups: int) -> float:
    """Every slot by itself: whoever has something to do in it, and for how long."""
    waves, ranks = in_waves.shape
    total = 0.0
    for slot in range(groups + waves - 1):
        busy = [0.0] * ranks
        for group in range(groups):
            for wave in range(waves):
                if group + wave == slot:
                    for rank in range(ranks):
                        busy[rank] += in_waves[wave, rank] / groups
        total += max(busy)
    return total


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.data())
def test_a_stage_takes_what_its_slots_take(waves: int, ranks: int, groups: int, data: st.DataObject) -> None:
    seconds = st.lists(st.integers(0, 1_000), min_size=waves * ranks, max_size=waves * ranks)
    in_waves = np.array(data.draw(seconds), np.float64).reshape(waves, ranks)
    found = relay_seconds(in_waves, groups)
    assert found == pytest.approx(slot_by_slot(in_waves, groups))
    assert found >= in_waves.sum(axis=0).max() * (1 - 1e-9), "nobody is faster than the busiest rank"


@pytest.mark.parametrize(("groups", "waves"), [(1, 1), (1, 4), (16, 1), (16, 8), (3, 5)])
def test_ranks_of_equal_load_in_a_row_wait_for_the_first_and_for_the_last_group(groups: int, waves: int) -> None:
    assert relay_seconds(2.0 * np.eye(waves), groups) == pytest.approx(2.0 * (groups + waves - 1) / groups)
