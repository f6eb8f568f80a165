"""Column statistics of tall arrays in double precision, without a float64 copy.

Bit-identical to numpy, which adds row by row if rows have several numbers; other layouts are passed to numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import FloatArray, readonly_view

_MIN_ROWS_PER_THREAD = 1 << 16


def column_sums(x: FloatArray) -> FloatArray:
    """Sum of every column, [F]."""
    return _sums(readonly_view(x)) if _row_by_row(x) else x.astype(np.float64).sum(0)


def column_squared_deviations(x: FloatArray, center: FloatArray) -> FloatArray:
    """Sum of squared deviations of every column from its center, [F]."""
    if _row_by_row(x):
        return _squared_deviations(readonly_view(x), readonly_view(center))
    return np.asarray(((x.astype(np.float64) - center) ** 2).sum(0))


def column_squared_differences(x: FloatArray, base: FloatArray, fallback: FloatArray) -> FloatArray:
    """Sum of squared differences of every column to ``base``, or to ``fallback`` where it is NaN, [F]."""
    if _row_by_row(x) and _row_by_row(base):
        return _squared_differences(readonly_view(x), readonly_view(base), readonly_view(fallback))
    return np.asarray(((x.astype(np.float64) - np.where(np.isnan(base), fallback, base)) ** 2).sum(0))


def column_extremes(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimum and maximum of every column, [F] each."""
    return _extremes(readonly_view(x)) if _row_by_row(x) and len(x) else (x.min(0), x.max(0))


def scale_differences(
    x: FloatArray, base: FloatArray | None, fallback: FloatArray, scale: FloatArray, out: FloatArray
) -> None:
    """Write (x - base) / scale to ``out``, with ``fallback`` [F] where base is NaN or None."""
    x, fallback, scale = readonly_view(x), readonly_view(fallback), readonly_view(scale)
    if base is None:
        run_ranges(lambda a, b: _scale(x[a:b], fallback, scale, out[a:b]), len(x), _MIN_ROWS_PER_THREAD)
        return
    base = readonly_view(base)
    run_ranges(
        lambda a, b: _scale_differences(x[a:b], base[a:b], fallback, scale, out[a:b]), len(x), _MIN_ROWS_PER_THREAD
    )


def _row_by_row(x: FloatArray) -> bool:
    return x.ndim == 2 and x.shape[1] > 1 and x.flags.c_contiguous and x.dtype in (np.float32, np.float64)


@cached_njit
def _sums(x: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += x[i, j]
    return total


@cached_njit
def _squared_deviations(x: Any, center: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            off = np.float64(x[i, j]) - center[j]
            total[j] += off * off
    return total


@cached_njit
def _squared_differences(x: Any, base: Any, otherwise: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            start = np.float64(base[i, j])
            if np.isnan(start):
                start = otherwise[j]
            off = np.float64(x[i, j]) - start
            total[j] += off * off
    return total


@cached_njit
def _extremes(x: Any) -> tuple[FloatArray, FloatArray]:
    low, high = x[0].astype(np.float64), x[0].astype(np.float64)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            low[j], high[j] = min(low[j], x[i, j]), max(high[j], x[i, j])
    return low, high


@cached_njit
def _scale(x: Any, center: Any, scale: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = (np.float64(x[i, j]) - center[j]) / scale[j]


@cached_njit
def _scale_differences(x: Any, base: Any, otherwise: Any, scale: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            start = np.float64(base[i, j])
            if np.isnan(start):
                start = otherwise[j]
            out[i, j] = (np.float64(x[i, j]) - start) / scale[j]
