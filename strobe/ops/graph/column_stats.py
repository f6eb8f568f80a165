"""Column statistics of tall arrays in double precision, without a float64 copy.

Bit-identical to numpy, which adds row by row if rows have several numbers; other layouts and small arrays are passed to
numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import SMALL, cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import FloatArray, readonly_view

_MIN_ROWS_PER_THREAD = 1 << 16


def column_sums(x: FloatArray) -> FloatArray:
    """Sum of every column, [F]."""
    return _sums(readonly_view(x)) if _row_by_row(x) else x.astype(np.float64).sum(0)


def column_squared_differences(x: FloatArray, base: FloatArray | None, fallback: FloatArray) -> FloatArray:
    """Sum of squared differences of every column to ``base``, or to ``fallback`` [F] where that is NaN or None, [F]."""
    if _row_by_row(x) and (base is None or _row_by_row(base)):
        return _squared_differences(readonly_view(x), _readonly(base), readonly_view(fallback))
    return np.asarray(((x.astype(np.float64) - _fill(base, fallback)) ** 2).sum(0))


def column_extremes(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimum and maximum of every column, [F] each."""
    return _extremes(readonly_view(x)) if _row_by_row(x) and len(x) else (x.min(0), x.max(0))


def scale_differences(
    x: FloatArray, base: FloatArray | None, fallback: FloatArray, scale: FloatArray, out: FloatArray
) -> None:
    """Write (x - base) / scale to ``out``, with ``fallback`` [F] where base is NaN or None."""
    if x.size < SMALL:
        out[...] = (x.astype(np.float64) - _fill(base, fallback)) / scale
        return
    x, base, fallback, scale = readonly_view(x), _readonly(base), readonly_view(fallback), readonly_view(scale)

    def work(a: int, b: int) -> None:
        _scale_differences(x[a:b], None if base is None else base[a:b], fallback, scale, out[a:b])

    run_ranges(work, len(x), _MIN_ROWS_PER_THREAD)


def _fill(base: FloatArray | None, fallback: FloatArray) -> FloatArray:
    return fallback if base is None else np.where(np.isnan(base), fallback, base)


def _readonly(array: FloatArray | None) -> Any:
    return None if array is None else readonly_view(array)


def _row_by_row(x: FloatArray) -> bool:
    return (
        x.size >= SMALL
        and x.ndim == 2
        and x.shape[1] > 1
        and x.flags.c_contiguous
        and x.dtype in (np.float32, np.float64)
    )


@cached_njit
def _sums(x: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += x[i, j]
    return total


@cached_njit
def _start(base: Any, fallback: Any, i: int, j: int) -> Any:
    if base is None:
        return fallback[j]
    start = np.float64(base[i, j])
    return fallback[j] if np.isnan(start) else start


@cached_njit
def _squared_differences(x: Any, base: Any, fallback: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            off = np.float64(x[i, j]) - _start(base, fallback, i, j)
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
def _scale_differences(x: Any, base: Any, fallback: Any, scale: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = (np.float64(x[i, j]) - _start(base, fallback, i, j)) / scale[j]
