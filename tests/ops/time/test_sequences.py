from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.time import sequences as module
from strobe.ops.time.sequences import Sequences, SlotTile

Presence = tuple[int, list[list[int]]]
"""The number of slots, and who is present in each snapshot."""


@st.composite
def presences(draw: st.DrawFn) -> Presence:
    slots = draw(st.integers(0, 7))
    anyone = st.lists(st.integers(0, slots - 1), unique=True).map(sorted) if slots else st.just([])
    present = st.just(list(range(slots))) | anyone
    return slots, draw(st.lists(present, max_size=5))


AWKWARD: dict[str, Presence] = {
    "nobody ever": (0, [[], []]),
    "no snapshots": (4, []),
    "only empty snapshots": (3, [[], []]),
    "everybody always": (3, [[0, 1, 2], [0, 1, 2]]),
    "gaps, late and early": (5, [[0, 3], [], [0, 1, 2, 3, 4], [3], [0, 4]]),
    "somebody never": (4, [[0, 2], [0, 2]]),
}


def make(presence: Presence) -> Sequences:
    slots, present = presence
    return Sequences.of([np.array(here, np.int32) for here in present], slots)


def cells(present: list[list[int]]) -> list[tuple[int, int]]:
    """(t, slot) of every cell in order."""
    return [(t, slot) for t, here in enumerate(present) for slot in here]


def cells_of(tile: SlotTile) -> list[tuple[int, int, int]]:
    """(t, slot, row) of every cell of a tile."""
    found = []
    for stretch in tile.slices:
        places = range(tile.num_slots) if stretch.at is None else stretch.at.tolist()
        rows = range(stretch.start, stretch.stop)
        found += [(stretch.t, tile.start + place, row) for place, row in zip(places, rows, strict=True)]
    return found


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


@settings(deadline=None)
@given(presences())
def test_stretches_walk_through_every_snapshot_with_its_slots(presence: Presence) -> None:
    slots, present = presence
    walked = list(make(presence).snapshot_slices())
    assert [stretch.t for stretch in walked] == list(range(len(present)))
    for stretch, here in zip(walked, present, strict=True):
        assert stretch.stop - stretch.start == len(here)
        assert (list(range(slots)) if stretch.at is None else stretch.at.tolist()) == here


def widest(tile: SlotTile) -> int:
    """The most cells of a tile in one snapshot."""
    return max((stretch.stop - stretch.start for stretch in tile.slices), default=0)


def check_tiles(presence: Presence, rows: int) -> tuple[SlotTile, ...]:
    """Tiles part the slots, and the cells of all of them are all cells, each with its slot, in order of time."""
    slots, present = presence
    tiles = make(presence).tiles(rows)
    covered = [slot for tile in tiles for slot in range(tile.start, tile.stop)]
    assert covered == list(range(slots))
    assert all(tile.num_slots > 0 for tile in tiles)
    found = [cell for tile in tiles for cell in cells_of(tile)]
    assert sorted((row, t, slot) for t, slot, row in found) == [
        (row, t, slot) for row, (t, slot) in enumerate(cells(present))
    ]
    for tile in tiles:
        times = [stretch.t for stretch in tile.slices]
        assert times == sorted(set(times))
        assert all(stretch.start < stretch.stop for stretch in tile.slices)
    return tiles


@settings(deadline=None)
@given(presences(), st.integers(1, 8))
def test_tiles_cover_every_cell_once_whoever_is_present(presence: Presence, rows: int) -> None:
    check_tiles(presence, rows)


@pytest.mark.parametrize("case", AWKWARD)
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_tiles_of_awkward_sequences_cover_every_cell_once(case: str, rows: int) -> None:
    check_tiles(AWKWARD[case], rows)


def test_tiles_have_about_the_rows_asked_for() -> None:
    everybody = (12, [list(range(12))] * 3)
    assert [tile.num_slots for tile in check_tiles(everybody, 4)] == [4, 4, 4]
    half = (12, [list(range(0, 12, 2))] * 3)  # each snapshot has half the slots, so a tile takes twice as many
    assert [widest(tile) for tile in check_tiles(half, 3)] == [3, 3]
    assert len(check_tiles(everybody, 1000)) == 1


def test_no_tile_outgrows_the_cache_however_rarely_its_nodes_are_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TILE_SLOTS", 3)
    tiles = check_tiles((10, [[0], [9]]), 1000)
    assert [tile.num_slots for tile in tiles] == [3, 3, 3, 1]


def test_tiles_are_cut_once_and_always_alike() -> None:
    presence = AWKWARD["gaps, late and early"]
    sequences = make(presence)
    assert sequences.tiles(2) is sequences.tiles(2)
    again = [(tile.start, tile.stop) for tile in make(presence).tiles(2)]
    assert [(tile.start, tile.stop) for tile in sequences.tiles(2)] == again


@settings(deadline=None, max_examples=50)
@given(presences(), st.integers(1, 8))
def test_the_grid_has_the_same_tiles_as_arrays(presence: Presence, rows: int) -> None:
    sequences = make(presence)
    grid, tiles = sequences.grids[rows], sequences.tiles(rows)
    assert list(pairwise(grid.edges.tolist())) == [(tile.start, tile.stop) for tile in tiles]
    assert grid.num_tiles == len(tiles)
    for i, tile in enumerate(tiles):
        bounds = grid.bounds[:, i : i + 2].tolist()
        filled = [(t, start, stop) for t, (start, stop) in enumerate(bounds) if start < stop]
        assert filled == [(stretch.t, stretch.start, stretch.stop) for stretch in tile.slices]
    assert grid.most_rows == max((widest(tile) for tile in tiles), default=0)
    assert grid.most_slots == max((tile.num_slots for tile in tiles), default=0)
    assert grid.most_cells == max((len(cells_of(tile)) for tile in tiles), default=0)
