"""Column statistics of tall arrays in double precision, without a float64 copy.

Bit-identical to numpy, which adds row by row if rows have several numbers; other layouts and small arrays are passed to
numpy, and all arrays without compiled kernels.
"""

from __future__ import annotations

import numpy as np

from strobe.ops import native
from strobe.ops.runtime.njit import SMALL
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import FloatArray, IntArray

_MIN_ROWS_PER_THREAD = 1 << 16


def column_sums(x: FloatArray) -> FloatArray:
    """Sum of every column, [F]."""
    if not _row_by_row(x):
        return np.asarray(x.astype(np.float64).sum(0))
    total = np.zeros(x.shape[1])
    native.run_base("column_sums", x, *x.shape, x, total)
    return total


def column_squared_differences(x: FloatArray, base: FloatArray | None, fallback: FloatArray) -> FloatArray:
    """Sum of squared differences of every column to ``base``, or to ``fallback`` [F] where that is NaN or None, [F]."""
    if not _row_by_row(x) or not (base is None or _alike(base, x)):
        return np.asarray(((x.astype(np.float64) - _fill(base, fallback)) ** 2).sum(0))
    total = np.zeros(x.shape[1])
    native.run_base("column_squares", x, *x.shape, x, base, np.ascontiguousarray(fallback, np.float64), total)
    return total


def column_extremes(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimum and maximum of every column, [F] each."""
    if not _row_by_row(x):
        return x.min(0), x.max(0)
    low, high = x[0].astype(np.float64), x[0].astype(np.float64)
    native.run_base("column_extremes", x, *x.shape, x, low, high)
    return low, high


def scale_differences(
    x: FloatArray, base: FloatArray | None, fallback: FloatArray, scale: FloatArray, out: FloatArray
) -> None:
    """Write (x - base) / scale to ``out``, with ``fallback`` [F] where base is NaN or None."""
    if not _is_tall(x) or not (base is None or _alike(base, x)) or out.dtype not in (np.float32, np.float64):
        out[...] = (x.astype(np.float64) - _fill(base, fallback)) / scale
        return
    assert out.shape == x.shape
    outputs = (out, None) if out.dtype == np.float32 else (None, out)
    factors = np.ascontiguousarray(fallback, np.float64), np.ascontiguousarray(scale, np.float64)

    def work(first: int, end: int) -> None:
        native.run_base("scale_differences", x, first, end, x.shape[1], x, base, *factors, *outputs)

    run_ranges(work, len(x), _MIN_ROWS_PER_THREAD)


def rows_or_nan(x: FloatArray, at: IntArray) -> FloatArray:
    """Rows of ``x`` at positions ``at``; NaN where a position is negative."""
    out = np.empty((len(at), x.shape[1]), x.dtype)
    if at.dtype == np.int64 and at.flags.c_contiguous and _is_tall(x):
        native.run_base("rows_or_nan", x, *out.shape, at, x, out)
        return out
    present = at >= 0
    out[present], out[~present] = x[at[present]], np.nan
    return out


def _fill(base: FloatArray | None, fallback: FloatArray) -> FloatArray:
    return fallback if base is None else np.where(np.isnan(base), fallback, base)


def _is_tall(x: FloatArray) -> bool:
    """Whether kernels take the rows of x, and there are enough."""
    return (
        x.size >= SMALL
        and x.ndim == 2
        and x.flags.c_contiguous
        and x.dtype in (np.float32, np.float64)
        and native.base_library() is not None
    )


def _row_by_row(x: FloatArray) -> bool:
    """Whether numpy adds the rows of x one after another, as kernels do."""
    return _is_tall(x) and x.shape[1] > 1


def _alike(base: FloatArray, x: FloatArray) -> bool:
    return base.shape == x.shape and base.dtype == x.dtype and base.flags.c_contiguous
