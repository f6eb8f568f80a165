from __future__ import annotations

import numpy as np
import pytest

from strobe.ops import native
from strobe.ops.graph.column_stats import (
    column_extremes,
    column_squared_differences,
    column_sums,
    rows_or_nan,
    scale_differences,
)
from strobe.ops.runtime.njit import SMALL
from strobe.ops.sparse.csr import FloatArray


@pytest.fixture(params=["kernels", "numpy"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compiled kernels, and where there are none."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "base_library", lambda: None)


def tall(columns: int, dtype: type, layout: str = "C", rows: int = 3001) -> FloatArray:
    x = 1000 * np.random.default_rng(columns).standard_normal((rows, columns)) + 7
    return np.asarray(x, dtype, order=layout)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("columns", [1, 2, 3, 33])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("rows", [3001, SMALL])
def test_sums_are_numpys_to_the_last_bit(columns: int, dtype: type, layout: str, rows: int) -> None:
    x = tall(columns, dtype, layout, rows)
    wide = x.astype(np.float64)
    center = wide.mean(0)
    np.testing.assert_array_equal(column_sums(x), wide.sum(0))
    np.testing.assert_array_equal(column_squared_differences(x, None, center), ((wide - center) ** 2).sum(0))
    low, high = column_extremes(x)
    np.testing.assert_array_equal(low, wide.min(0))
    np.testing.assert_array_equal(high, wide.max(0))


@pytest.mark.parametrize("rows", [3001, SMALL])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_what_is_not_there_is_replaced_by_the_columns_number(columns: int, rows: int) -> None:
    x, base = tall(columns, np.float32, rows=rows), tall(columns, np.float32, rows=rows)[::-1].copy()
    base[::3] = np.nan
    mean, scale = np.arange(columns) + 0.1, np.arange(columns) + 3.0
    filled = np.where(np.isnan(base), mean, base)
    squares = column_squared_differences(x, base, mean)
    np.testing.assert_array_equal(squares, ((x.astype(np.float64) - filled) ** 2).sum(0))
    for given, start in ((base, filled), (None, mean)):
        for dtype in (np.float32, np.float64):
            out = np.empty(x.shape, dtype)
            scale_differences(x, given, mean, scale, out)
            np.testing.assert_array_equal(out, ((x.astype(np.float64) - start) / scale).astype(dtype))


def test_nothing_sums_to_nothing() -> None:
    assert column_sums(np.empty((0, 2), np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("rows", [11, SMALL])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_rows_are_taken_or_are_nan(columns: int, dtype: type, rows: int) -> None:
    x, at = tall(columns, dtype, rows=rows), np.random.default_rng(0).integers(-1, rows, 2 * rows)
    expected = np.where(at[:, None] < 0, np.nan, x[at])
    found = rows_or_nan(x, at)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype
