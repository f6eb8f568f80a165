"""Lanes: every cell has a place of its own, sequences stay whole, and hardly anything is left empty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.time.packing import PackedSequences, pack
from strobe.ops.time.sequences import Sequences
from tests.support.sequences import awkward, presences

Lengths = npt.NDArray[np.int64]


def of_lengths(lengths: Lengths | list[int]) -> Sequences:
    """Sequences of these lengths that all begin in the first snapshot."""
    counts = np.array(lengths, np.int64)
    shots = [np.flatnonzero(counts > t) for t in range(int(counts.max(initial=0)))]
    return Sequences.of(shots, len(counts))


def first_fit(lengths: list[int], length: int) -> tuple[list[int], list[int]]:
    """The obvious version: one after the other, longest first, each into the first lane with room."""
    lane, first, full = [-1] * len(lengths), [0] * len(lengths), list[int]()
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if lengths[i]:
            at = next((n for n, used in enumerate(full) if used + lengths[i] <= length), len(full))
            full += [0] * (at + 1 - len(full))
            lane[i], first[i] = at, full[at]
            full[at] += lengths[i]
    return lane, first


def cells_in_lanes(lanes: PackedSequences) -> list[list[int]]:
    """The cells of every lane from left to right."""
    found: list[list[int]] = [[] for _ in range(lanes.num_lanes)]
    for column in lanes.cell.split(lanes.columns):
        for lane, cell in enumerate(column.tolist()):
            found[lane].append(cell)
    return found


def check(sequences: Sequences) -> PackedSequences:
    """Lanes read from left to right, cut at boundaries, are the sequences, each of them once."""
    lanes = PackedSequences.of(sequences)
    slots = sequences.slots.tolist()
    expected = [[cell for cell in range(len(slots)) if slots[cell] == slot] for slot in range(sequences.num_slots)]
    assert lanes.length == max(map(len, expected), default=0)
    found = []
    for lane, cells in enumerate(cells_in_lanes(lanes)):
        starting = lanes.boundary_lane.split(lanes.boundary_columns)
        begins = [column for column in range(lanes.length) if lane in starting[column]]
        assert begins[0] == 0
        found += [cells[a:b] for a, b in zip(begins, [*begins[1:], None], strict=True)]
    assert sorted(found) == sorted(cells for cells in expected if cells)
    assert lanes.cell[lanes.place].tolist() == list(range(len(slots)))
    ends = dict(zip(lanes.boundary_slot.tolist(), lanes.cell[lanes.end].tolist(), strict=True))
    assert ends == {slot: cells[-1] for slot, cells in enumerate(expected) if cells}
    assert sum(lanes.columns) == lanes.num_cells == sequences.num_cells
    assert list(lanes.columns) == sorted(lanes.columns, reverse=True)
    return lanes


@settings(deadline=None)
@given(presences())
def test_lanes_hold_every_sequence_whole_and_once(sequences: Sequences) -> None:
    check(sequences)


def test_sequences_without_cells_have_no_lanes() -> None:
    for sequences in (Sequences.of([], 4), Sequences.of([np.array([], np.int64)] * 3, 4), Sequences.of([], 0)):
        lanes = check(sequences)
        assert (lanes.num_lanes, lanes.length, lanes.padding, lanes.padding_unpacked) == (0, 0, 0.0, 0.0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 3))
def test_packing_is_first_fit_with_the_longest_first(lengths: list[int], room: int) -> None:
    length = max(lengths, default=0) + room
    lane, first = pack(np.array(lengths, np.int64), length)
    assert (lane.tolist(), first.tolist()) == first_fit(lengths, length)


def test_a_sequence_longer_than_a_lane_is_refused() -> None:
    with pytest.raises(AssertionError, match="5 cells does not fit into a lane of 4"):
        pack(np.array([1, 5]), 4)


def test_little_of_the_grid_is_empty() -> None:
    lengths = np.minimum(np.random.default_rng(0).geometric(0.08, 5000), 64)
    lanes = PackedSequences.of(of_lengths(lengths))
    assert lanes.padding == pytest.approx(1 - lengths.sum() / (lanes.num_lanes * lanes.length))
    assert lanes.padding < 0.05
    assert lanes.padding_unpacked == pytest.approx(1 - lengths.mean() / 64)
    assert lanes.padding_unpacked > 0.4


def test_sequences_of_one_length_stay_as_they_are() -> None:
    lanes = PackedSequences.of(of_lengths([6] * 20))
    assert (lanes.num_lanes, lanes.padding, lanes.padding_unpacked) == (20, 0.0, 0.0)
    assert lanes.cell.tolist() == list(range(120))
    assert lanes.boundary_columns == (20, 0, 0, 0, 0, 0)


def test_the_same_sequences_have_the_same_lanes_always() -> None:
    sequences = awkward()
    lanes, again = PackedSequences.of(sequences), PackedSequences.of(awkward())
    assert PackedSequences.of(sequences) is lanes
    assert again is not lanes
    assert lanes.boundary_columns == again.boundary_columns
    for name in ("cell", "place", "boundary_slot", "boundary_lane", "end"):
        assert torch.equal(getattr(lanes, name), getattr(again, name))
