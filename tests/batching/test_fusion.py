from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching.fusion import Extent, fuse


def by_loaded(extent: Extent) -> float:
    return float(extent.loaded)


def loads(*rows: list[int]) -> sp.csr_array:
    """Which rows every chunk loads."""
    ptr = np.cumsum([0, *map(len, rows)])
    cols = np.array([row for each in rows for row in each], np.int64)
    return sp.csr_array((np.ones(len(cols), np.int8), cols, ptr), shape=(len(rows), int(cols.max(initial=0)) + 1))


def fused(rows: sp.csr_array, budget: float) -> list[int]:
    ones = np.ones(rows.shape[0], np.int64)
    return [int(piece) for piece in fuse(rows, ones, ones, by_loaded, budget)]


def test_the_pair_that_shares_most_rows_is_fused_first() -> None:
    rows = loads([0, 1, 2, 3], [3, 4, 5, 6], [4, 5, 6, 7])  # 0 and 1 share one row, 1 and 2 share three
    assert fused(rows, 6) == [0, 1, 1]


def test_everything_is_one_piece_where_memory_allows() -> None:
    assert fused(loads([0, 1], [1, 2], [2, 3], [9]), 100) == [0, 0, 0, 0]


def test_nothing_is_fused_without_memory() -> None:
    assert fused(loads([0, 1], [1, 2], [2, 3]), 0) == [0, 1, 2]


def test_a_chunk_that_does_not_fit_stays_alone_and_others_are_fused_around_it() -> None:
    assert fused(loads([0, 1], list(range(50)), [1, 2]), 4) == [0, 1, 0]


def test_chunks_that_share_nothing_fill_pieces_in_order() -> None:
    assert fused(loads([0, 1], [2, 3], [4, 5], [6, 7]), 4) == [0, 0, 1, 1]


def test_rows_that_are_shared_count_once_against_the_budget() -> None:
    assert fused(loads([0, 1, 2], [0, 1, 2], [0, 1, 2]), 3) == [0, 0, 0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True), min_size=1, max_size=12), st.data())
def test_no_piece_of_several_chunks_takes_more_than_the_budget(chunks: list[list[int]], data: st.DataObject) -> None:
    budget = data.draw(st.integers(0, 25))
    piece_of = fused(loads(*map(sorted, chunks)), budget)
    assert sorted(set(piece_of)) == list(range(max(piece_of) + 1))
    for piece in set(piece_of):
        members = [chunk for chunk, at in zip(chunks, piece_of, strict=True) if at == piece]
        assert len(members) == 1 or len(set().union(*members)) <= budget


def test_joining_adds_what_two_pieces_have_and_takes_off_what_they_share() -> None:
    assert Extent(2, 5, 7).joined(Extent(1, 4, 3), 2) == Extent(3, 7, 10)


@pytest.mark.parametrize("count", [0, 1])
def test_hardly_any_chunks(count: int) -> None:
    assert fused(loads(*[[0]] * count), 10) == [0] * count
