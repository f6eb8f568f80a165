"""What waits for what when states are relayed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.exchange.legs import _levels
from strobe.ops.csr import FloatArray
from strobe.placement import Placed
from strobe.planner.waves import cells_in_waves, relayed_seconds
from strobe.view import Owners
from tests.engine.runs import small_graph
from tests.placed import Owned, owned_graphs


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
    levels = _levels(told)
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
        placed = Placed.by_snapshot(3, of_snapshot, graph.num_nodes)
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
    found = relayed_seconds(in_waves, groups)
    assert found == pytest.approx(slot_by_slot(in_waves, groups))
    assert found >= in_waves.sum(axis=0).max() * (1 - 1e-9), "nobody is faster than the busiest rank"


@pytest.mark.parametrize(("groups", "waves"), [(1, 1), (1, 4), (16, 1), (16, 8), (3, 5)])
def test_ranks_of_equal_load_in_a_row_wait_for_the_first_and_for_the_last_group(groups: int, waves: int) -> None:
    assert relayed_seconds(2.0 * np.eye(waves), groups) == pytest.approx(2.0 * (groups + waves - 1) / groups)
