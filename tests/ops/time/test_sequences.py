from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.time import sequences as module
from strobe.ops.time.sequences import Sequences

Presence = tuple[int, list[list[int]]]
"""The number of slots, and the slots present in each snapshot."""


@st.composite
def presences(draw: st.DrawFn) -> Presence:
    slots = draw(st.integers(0, 7))
    anyone = st.lists(st.integers(0, slots - 1), unique=True).map(sorted) if slots else st.just([])
    present = st.just(list(range(slots))) | anyone
    return slots, draw(st.lists(present, max_size=5))


def make(presence: Presence) -> Sequences:
    slots, present = presence
    return Sequences.of([np.array(here, np.int32) for here in present], slots)


def cells(present: list[list[int]]) -> list[tuple[int, int]]:
    """(t, slot) of every cell in order."""
    return [(t, slot) for t, here in enumerate(present) for slot in here]


@settings(deadline=None)
@given(presences())
def test_cells_are_numbered_by_time_then_slot(presence: Presence) -> None:
    slots, present = presence
    sequences = make(presence)
    assert (sequences.num_slots, sequences.num_snapshots) == (slots, len(present))
    assert sequences.num_cells == len(cells(present))
    assert sequences.slots.tolist() == [slot for _, slot in cells(present)]
    assert [b - a for a, b in pairwise(sequences.cell_ptr)] == [len(here) for here in present]
    assert (sequences.slot is None) == all(len(here) == slots for here in present)


def check_tiles(presence: Presence, rows: int) -> list[int]:
    """Tiles split the slots, and each snapshot's cells of a tile are those of its slots; returns the sizes of tiles."""
    (slots, present), grid = presence, make(presence).grid(rows)
    tiles = list(pairwise(grid.edges.tolist()))
    assert [slot for first, last in tiles for slot in range(first, last)] == list(range(slots))
    assert all(first < last for first, last in tiles)
    counts = [[0] * len(present) for _ in tiles]
    for i, (first, last) in enumerate(tiles):
        for t, (start, stop) in enumerate(grid.bounds[:, i : i + 2].tolist()):
            assert cells(present)[start:stop] == [(t, slot) for slot in present[t] if first <= slot < last]
            counts[i][t] = stop - start
    assert grid.num_tiles == len(tiles)
    assert grid.most_rows == max((count for each in counts for count in each), default=0)
    assert grid.most_slots == max((last - first for first, last in tiles), default=0)
    assert grid.most_cells == max(map(sum, counts), default=0)
    return [last - first for first, last in tiles]


@settings(deadline=None)
@given(presences(), st.integers(1, 8))
def test_tiles_cover_every_cell_once(presence: Presence, rows: int) -> None:
    check_tiles(presence, rows)


def test_tiles_have_about_the_requested_rows() -> None:
    everybody = (12, [list(range(12))] * 3)
    assert check_tiles(everybody, 4) == [4, 4, 4]
    half = (12, [list(range(0, 12, 2))] * 3)  # each snapshot has half the slots, so a tile takes twice as many
    assert check_tiles(half, 3) == [6, 6]
    assert check_tiles(everybody, 1000) == [12]


def test_no_tile_outgrows_the_cache_however_rarely_its_nodes_are_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TILE_SLOTS", 3)
    assert check_tiles((10, [[0], [9]]), 1000) == [3, 3, 3, 1]


def test_tiles_are_made_once() -> None:
    sequences = make((5, [[0, 3], [], [0, 1, 2, 3, 4], [3], [0, 4]]))
    assert sequences.grid(2) is sequences.grid(2)
