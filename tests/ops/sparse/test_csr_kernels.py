from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops import native
from strobe.ops.sparse.csr import FloatArray, IntArray, row_pointers
from strobe.ops.sparse.csr_kernels import gcn_norm, reorder_rows, reorder_rows_reference, row_ends, row_ends_reference
from strobe.ops.sparse.normalize import normalize

WEIGHTS: list[npt.DTypeLike | None] = [None, np.float32, np.float64]
AWKWARD = [0.0, -0.0, 1e-310, 1e-30, 1e30, np.inf, np.nan, 0.1, -0.3]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[IntArray, IntArray, FloatArray]:
    """Columns ascend in each row; parallel arcs, self-loops, empty rows, weights whose sums depend on the order."""
    rows = draw(st.integers(0, 6))
    cell = st.integers(0, max(rows - 1, 0))
    arcs = sorted(draw(st.lists(st.tuples(cell, cell), max_size=30))) if rows else []
    weight = st.sampled_from(AWKWARD) | st.floats(-2, 2, allow_nan=False)
    drawn = draw(st.lists(weight, min_size=len(arcs), max_size=len(arcs)))
    ptr = row_pointers(np.bincount([row for row, _ in arcs], minlength=rows))
    return ptr, np.array([col for _, col in arcs], np.int32), np.array(drawn, np.float64)


def check(row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> None:
    with np.errstate(all="ignore"), patch.object(native, "library", return_value=None):
        wanted = normalize("gcn", row_ptr, col, weight)
    found = gcn_norm(row_ptr, col, weight)
    for each, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(each, expected)
    values, others = found[2], wanted[2]
    assert values is not None
    assert others is not None
    some = ~np.isnan(values)
    assert (np.signbit(values) == np.signbit(others))[some].all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # weights that float32 cannot hold
@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
@given(matrices(), st.sampled_from([np.int32, np.int64]), st.sampled_from([np.int32, np.int64]))
def test_every_bit_is_as_in_numpy(
    dtype: npt.DTypeLike | None,
    matrix: tuple[IntArray, IntArray, FloatArray],
    of_ptr: type[np.integer],
    of_col: type[np.integer],
) -> None:
    row_ptr, col, weight = matrix
    check(row_ptr.astype(of_ptr), col.astype(of_col), None if dtype is None else weight.astype(dtype))


@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
def test_long_rows_are_summed_in_their_order(dtype: npt.DTypeLike | None) -> None:
    random = np.random.default_rng(0)
    arcs = np.unique(random.integers(0, 300, (20_000, 2)), axis=0)
    ptr = row_pointers(np.bincount(arcs[:, 0], minlength=300))
    weight = None if dtype is None else random.standard_normal(len(arcs)).astype(dtype)
    check(ptr, arcs[:, 1].astype(np.int32), weight)


def test_what_was_given_stays_as_it_was() -> None:
    row_ptr, col, weight = np.array([0, 1, 2]), np.array([0, 1], np.int32), np.array([2.0, 3.0])
    found = gcn_norm(row_ptr, col, weight)  # every row has its loop: nothing is added
    assert not any(np.shares_memory(new, old) for new, old in zip(found, (row_ptr, col, weight), strict=True))
    assert (row_ptr.tolist(), col.tolist(), weight.tolist()) == ([0, 1, 2], [0, 1], [2.0, 3.0])
    assert row_ptr.flags.writeable


@settings(deadline=None)
@given(matrices(), st.randoms(use_true_random=False), st.booleans())
def test_rows_in_another_order_are_as_by_sorting(
    matrix: tuple[IntArray, IntArray, FloatArray], random: Random, weighted: bool
) -> None:
    row_ptr, col, weight = matrix
    rows = [row for row in range(len(row_ptr) - 1) if random.random() < 0.8]
    columns = list(range(-1, len(row_ptr) - 2))
    random.shuffle(rows)
    random.shuffle(columns)
    given_ = row_ptr, col, weight if weighted else None
    found = reorder_rows(given_, np.array(rows, np.int64), np.array(columns, np.int64))
    wanted = reorder_rows_reference(given_, np.array(rows, np.int64), np.array(columns, np.int64))
    for each, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(each, expected)


def test_long_rows_keep_the_order_of_equal_columns() -> None:
    row_ptr, col, weight = np.array([0, 400]), np.arange(400) % 7, np.arange(400.0)
    matrix = row_ptr, np.sort(col).astype(np.int32), weight
    columns = np.array([3, -1, 0, 5, 1, 4, 2])
    found = reorder_rows(matrix, np.zeros(1, np.int64), columns)
    for each, expected in zip(found, reorder_rows_reference(matrix, np.zeros(1, np.int64), columns), strict=True):
        np.testing.assert_array_equal(each, expected)


@given(matrices(), st.integers(0, 7), st.integers(0, 7))
def test_ends_are_as_by_counting(matrix: tuple[IntArray, IntArray, FloatArray], rows: int, limit: int) -> None:
    row_ptr, col, _ = matrix
    rows = min(rows, len(row_ptr) - 1)
    np.testing.assert_array_equal(row_ends(row_ptr, col, rows, limit), row_ends_reference(row_ptr, col, rows, limit))
