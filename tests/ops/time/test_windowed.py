"""How cells are laid out in pieces: each own one once, with all it may see, in few rows that leave little empty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.time import windowed
from strobe.ops.time.sequences import Sequences
from strobe.ops.time.windowed import Piece, WindowedOp, extract_history, prepend_history
from tests.ops.time.test_attention import CHANGING, EVERYONE, sequences_of
from tests.support.sequences import presences

pytestmark = pytest.mark.usefixtures("one_thread")


def pieces_of(
    sequences: Sequences, *, past: int = 0, span: int | None = None, pairs: int = 1 << 18, stride: int = 4
) -> list[Piece]:
    look = WindowedOp(step=lambda *_: torch.empty(0), width=1, past=past, span=span, pairs=pairs, stride=stride)
    grid = sequences.grid(1 << 10)
    return [piece for tile in range(grid.num_tiles) for piece in look.pieces(sequences, grid, tile)]


def read(piece: Piece, span: int | None, begin: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """(own cell, [(cell it reads, how far back), …]) for every own cell of a piece."""
    seen_at = dict(zip(piece.seen.at.tolist(), piece.seen.rows.tolist(), strict=True))
    hidden, distance = piece.mask(span), piece.distance
    found = []
    for cell, at in zip(piece.own.rows.tolist(), piece.own.at.tolist(), strict=True):
        row, column = divmod(at, piece.own.columns)
        open_to = torch.nonzero(~hidden[row, column]).flatten().tolist()
        reads = [(seen_at[row * piece.seen.columns + c], int(distance[row, column, c])) for c in open_to]
        found.append((cell + begin, sorted(reads)))
    return found


@settings(max_examples=60, deadline=None)
@given(
    presences(max_slots=9, max_snapshots=9),
    st.sampled_from([None, 1, 3]),
    st.integers(0, 3),
    st.sampled_from([1, 12, 1 << 18]),
)
def test_every_cell_reads_its_own_node_up_to_itself(
    sequences: Sequences, span: int | None, past: int, pairs: int
) -> None:
    past = min(past, sequences.num_snapshots)
    slot = sequences.slots.tolist()
    time = np.repeat(np.arange(sequences.num_snapshots), np.diff(sequences.cell_ptr)).tolist()
    begin = sequences.cell_ptr[past]
    expected = []
    for cell in range(begin, len(slot)):
        before = [(row, time[cell] - time[row]) for row in range(cell + 1) if slot[row] == slot[cell]]
        expected.append((cell, [(row, far) for row, far in before if span is None or far < span]))
    pieces = pieces_of(sequences, past=past, span=span, pairs=pairs)
    assert sorted(each for piece in pieces for each in read(piece, span, begin)) == expected


def of_lengths(lengths: list[int]) -> Sequences:
    return Sequences.of([np.flatnonzero(np.array(lengths) > t) for t in range(max(lengths))], len(lengths))


def test_a_few_long_sequences_take_short_ones_into_their_rows() -> None:
    (piece,) = pieces_of(of_lengths([1, 4, 1, 1, 2, 1, 2]))
    assert (piece.own.slots, piece.own.columns, piece.seen.columns) == (3, 4, 4)


def test_sequences_of_one_length_have_a_row_each() -> None:
    (piece,) = pieces_of(of_lengths([3] * 5))
    assert piece.own.rows.tolist() == torch.arange(15).view(3, 5).t().flatten().tolist()
    assert piece.own.at.tolist() == list(range(15))
    assert piece.own.slots == 5


def test_many_short_sequences_have_a_narrower_piece_of_their_own() -> None:
    """Where rows of the long ones alone make a piece, short ones would only widen it."""
    found = pieces_of(of_lengths([4] * 10 + [1] * 100), pairs=4 * 4 * 40)
    assert [(piece.own.slots, piece.own.columns) for piece in found] == [(10, 4), (100, 1)]


def test_no_piece_holds_a_cell_twice() -> None:
    """Else sums of gradients on a GPU would depend on who comes first."""
    for piece in pieces_of(of_lengths([13, 9, 2, 6, 1, 1, 11])):
        for places in (piece.own, piece.seen):
            assert len(places.rows.unique()) == len(places.rows)
            assert len(places.at.unique()) == len(places.at)


def test_sharing_rows_computes_fewer_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.minimum(np.random.default_rng(0).geometric(0.3, 300), 16).tolist()
    pairs = []
    for share in (windowed.FEWER_ROWS, 0.0):
        monkeypatch.setattr(windowed, "FEWER_ROWS", share)
        found = pieces_of(of_lengths(lengths), pairs=1 << 26, stride=32)
        pairs.append(sum(piece.own.slots * piece.own.columns * piece.seen.columns for piece in found))
    assert pairs[0] < 0.7 * pairs[1]


@pytest.mark.parametrize("present", [CHANGING, EVERYONE])
@pytest.mark.parametrize("cut", [0, 1, 3, 5])
def test_history_and_window_together_are_the_whole(present: list[list[int]], cut: int) -> None:
    slots = 1 + max(max(nodes, default=0) for nodes in present)
    whole, first, second = (sequences_of(part, slots) for part in (present, present[:cut], present[cut:]))
    x = torch.arange(float(whole.num_cells))[:, None]
    state = extract_history(x[: first.num_cells], first, None)
    both, joined, past = prepend_history(x[first.num_cells :], state, second)
    assert past == cut
    assert torch.equal(both, x)
    assert joined.cell_ptr == whole.cell_ptr
    assert joined.slots.tolist() == whole.slots.tolist()
    assert (joined.slot is None) == (whole.slot is None)


@pytest.mark.parametrize(("span", "snapshots", "cells"), [(1, 0, 0), (2, 1, 1), (4, 3, 8), (9, 8, 18), (50, 8, 18)])
def test_history_is_the_span_before_the_next_window(span: int, snapshots: int, cells: int) -> None:
    sequences = sequences_of(CHANGING)
    assert sequences.num_cells == 18
    x = torch.randn(sequences.num_cells, 2)
    state = extract_history(x, sequences, span)
    assert len(state["cell_ptr"]) == snapshots + 1
    assert torch.equal(state["x"], x[18 - cells :])
    assert state["slots"].tolist() == sequences.slots.tolist()[18 - cells :]


def test_history_does_not_keep_the_window_in_memory() -> None:
    sequences = sequences_of(CHANGING)
    state = extract_history(torch.randn(sequences.num_cells, 2), sequences, 2)
    assert state["x"].untyped_storage().nbytes() == state["x"].numel() * 4
