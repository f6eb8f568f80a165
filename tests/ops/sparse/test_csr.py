from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.sparse.csr import (
    MAX_NODES,
    Parallel,
    coalesce,
    expand_rows,
    index_dtype,
    row_pointers,
    select_csr_rows,
    sort_edges,
    stable_argsort,
    transpose,
)

INT32_MAX = 2**31 - 1
keys = st.lists(st.integers(0, 9) | st.integers(0, 2**62), max_size=40)


def test_indices_are_32_bits_wide_as_long_as_they_fit() -> None:
    assert index_dtype(INT32_MAX) is np.int32
    assert index_dtype(INT32_MAX + 1) is np.int64


def test_the_largest_key_of_the_largest_graph_fits_into_int64_and_no_larger_one_does() -> None:
    assert MAX_NODES**2 - 1 <= 2**63 - 1
    assert (MAX_NODES + 1) ** 2 - 1 > 2**63 - 1


@settings(deadline=None, max_examples=100)
@given(keys)
def test_stable_argsort_equals_the_stable_sort_of_python(listed: list[int]) -> None:
    key = np.array(listed, np.int64)
    assert stable_argsort(key).tolist() == sorted(range(len(listed)), key=listed.__getitem__)


@pytest.mark.parametrize("largest", [2**61 - 1, 2**61, 2**62, 2**63 - 1])
def test_stable_argsort_is_right_on_both_sides_of_what_packs_into_63_bits(largest: int) -> None:
    key = np.array([largest, 0, largest, 1], np.int64)
    assert stable_argsort(key).tolist() == [1, 3, 0, 2]


def test_stable_argsort_of_narrow_keys_does_not_overflow() -> None:
    key = np.array([INT32_MAX, 3, INT32_MAX, 3], np.int32)
    assert stable_argsort(key).tolist() == [1, 3, 0, 2]


@settings(deadline=None, max_examples=50)
@given(keys)
def test_sorting_edges_carries_weights_along_and_keeps_parallel_ones_in_order(listed: list[int]) -> None:
    key, weight = np.array(listed, np.int64), np.arange(len(listed), dtype=np.float32)
    sorted_key, sorted_weight = sort_edges(key, weight)
    assert sorted_weight is not None
    pairs = list(zip(sorted_key.tolist(), sorted_weight.tolist(), strict=True))
    assert pairs == sorted(zip(listed, range(len(listed)), strict=True))
    assert sort_edges(key, None)[0].tolist() == sorted(listed)


@pytest.mark.parametrize(
    ("how", "kept", "weights"),
    [
        ("keep", [2, 2, 2, 5, 7, 7], [1, 2, 4, 8, 16, 32]),
        ("count", [2, 5, 7], [3, 1, 2]),
        ("sum", [2, 5, 7], [7, 8, 48]),
        ("last", [2, 5, 7], [4, 8, 32]),
    ],
)
def test_parallel_edges_are_kept_counted_summed_or_reduced_to_the_last(
    how: Parallel, kept: list[int], weights: list[float]
) -> None:
    key = np.array([2, 2, 2, 5, 7, 7])
    merged, weight = coalesce(key, np.array([1, 2, 4, 8, 16, 32], np.float32), how)
    assert weight is not None
    assert merged.tolist() == kept
    assert weight.tolist() == weights
    assert weight.dtype == np.float32


@pytest.mark.parametrize("how", ["keep", "count", "last"])
def test_unweighted_parallel_edges_get_a_weight_only_by_counting(how: Parallel) -> None:
    for key in (np.array([4, 4, 6]), np.empty(0, np.int64)):
        merged, weight = coalesce(key, None, how)
        assert (weight is not None) == (how == "count")
        assert weight is None or weight.shape == merged.shape


def test_summing_many_small_weights_loses_no_digits() -> None:
    num = 100_000
    weight = coalesce(np.zeros(num, np.int64), np.full(num, 0.1, np.float32), "sum")[1]
    assert weight is not None
    assert weight[0] == np.float32(num * float(np.float32(0.1)))


def test_row_pointers_widen_where_a_snapshot_outgrows_32_bits() -> None:
    assert row_pointers(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert row_pointers(np.empty(0, np.int64)).tolist() == [0]
    assert row_pointers(np.array([INT32_MAX])).dtype == np.int32
    wide = row_pointers(np.array([INT32_MAX, 1], np.int64))
    assert wide.dtype == np.int64
    assert wide[-1] == INT32_MAX + 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12))
def test_expanding_rows_inverts_row_pointers(degrees: list[int]) -> None:
    rows = expand_rows(row_pointers(np.array(degrees, np.int64)))
    assert rows.tolist() == [row for row, degree in enumerate(degrees) for _ in range(degree)]
    assert rows.dtype == np.int32


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=20))
def test_transposing_gives_sorted_columns_and_where_each_entry_was(entries: list[tuple[int, int]]) -> None:
    ordered = sorted(entries)
    row_ptr = row_pointers(np.bincount([row for row, _ in ordered], minlength=5).astype(np.int64))
    col = np.array([col for _, col in ordered], np.int32)
    turned_ptr, turned_col, position = transpose(row_ptr, col, 7)
    turned = list(zip(expand_rows(turned_ptr).tolist(), turned_col.tolist(), strict=True))
    assert turned == sorted((col, row) for row, col in entries)
    assert col[position].tolist() == [row for row, _ in turned]
    assert expand_rows(row_ptr)[position].tolist() == turned_col.tolist()
    assert turned_ptr.dtype == turned_col.dtype == np.int32


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=5),
    st.lists(st.integers(0, 4), max_size=6),
    st.lists(st.integers(-1, 9), min_size=5, max_size=5),
    st.booleans(),
)
def test_selected_rows_have_the_entries_whose_columns_have_new_numbers(
    rows: list[list[int]], chosen: list[int], new: list[int], weighted: bool
) -> None:
    """Parallel entries stay, rows may come in any order and twice, entries whose column is left out go."""
    chosen = [row for row in chosen if row < len(rows)]
    row_ptr = row_pointers(np.array([len(row) for row in rows], np.int64))
    col = np.array([col for row in rows for col in row], np.int32)
    weight = np.arange(len(col), dtype=np.float64) + 0.5 if weighted else None
    found_ptr, found_col, found_weight = select_csr_rows(
        (row_ptr, col, weight), np.array(chosen, np.int64), np.array(new, np.int64)
    )
    entries = [[(new[col[at]], at + 0.5) for at in range(row_ptr[row], row_ptr[row + 1])] for row in chosen]
    kept = [[(column, value) for column, value in row if column >= 0] for row in entries]
    assert found_ptr.tolist() == [0, *np.cumsum([len(row) for row in kept], dtype=np.int64).tolist()]
    assert found_col.tolist() == [column for row in kept for column, _ in row]
    assert (found_weight is not None) == weighted
    if found_weight is not None:
        assert found_weight.tolist() == [value for row in kept for _, value in row]
