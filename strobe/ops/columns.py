"""Sums down the columns of tall arrays, in double precision, without a copy of the array in it.

They are numpy's to the last bit, which adds row after row where rows have several numbers. Of arrays that it would add
in another order it is asked itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, fixed
from strobe.ops.threads import run_ranges

_LEAST_ROWS = 1 << 16
"""Of a thread: fewer are done before another has begun."""


def column_sums(x: FloatArray) -> FloatArray:
    """The sum of every column, [F]."""
    return _sums(fixed(x)) if _row_by_row(x) else x.astype(np.float64).sum(0)


def column_squares(x: FloatArray, center: FloatArray) -> FloatArray:
    """The sum of the squares of what every column is off its center, [F]."""
    if _row_by_row(x):
        return _squares(fixed(x), fixed(center))
    return np.asarray(((x.astype(np.float64) - center) ** 2).sum(0))


def column_squares_between(x: FloatArray, base: FloatArray, otherwise: FloatArray) -> FloatArray:
    """The sum of the squares of what every column is off another array, or off one number where that has NaN, [F]."""
    if _row_by_row(x) and _row_by_row(base):
        return _squares_between(fixed(x), fixed(base), fixed(otherwise))
    return np.asarray(((x.astype(np.float64) - np.where(np.isnan(base), otherwise, base)) ** 2).sum(0))


def column_extremes(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and the largest of every column, [F] each."""
    return _extremes(fixed(x)) if _row_by_row(x) and len(x) else (x.min(0), x.max(0))


def scaled_between(
    x: FloatArray, base: FloatArray | None, otherwise: FloatArray, scale: FloatArray, out: FloatArray
) -> None:
    """Writes by how many units of ``scale`` x is off another array, or off one number a column where that has NaN or is
    not there."""
    x, otherwise, scale = fixed(x), fixed(otherwise), fixed(scale)
    if base is None:
        run_ranges(lambda a, b: _scaled(x[a:b], otherwise, scale, out[a:b]), len(x), _LEAST_ROWS)
        return
    base = fixed(base)
    run_ranges(lambda a, b: _scaled_between(x[a:b], base[a:b], otherwise, scale, out[a:b]), len(x), _LEAST_ROWS)


def _row_by_row(x: FloatArray) -> bool:
    return x.ndim == 2 and x.shape[1] > 1 and x.flags.c_contiguous and x.dtype in (np.float32, np.float64)


@compiled
def _sums(x: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += x[i, j]
    return total


@compiled
def _squares(x: Any, center: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            off = np.float64(x[i, j]) - center[j]
            total[j] += off * off
    return total


@compiled
def _squares_between(x: Any, base: Any, otherwise: Any) -> FloatArray:
    total = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            start = np.float64(base[i, j])
            if np.isnan(start):
                start = otherwise[j]
            off = np.float64(x[i, j]) - start
            total[j] += off * off
    return total


@compiled
def _extremes(x: Any) -> tuple[FloatArray, FloatArray]:
    low, high = x[0].astype(np.float64), x[0].astype(np.float64)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            low[j], high[j] = min(low[j], x[i, j]), max(high[j], x[i, j])
    return low, high


@compiled
def _scaled(x: Any, center: Any, scale: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = (np.float64(x[i, j]) - center[j]) / scale[j]


@compiled
def _scaled_between(x: Any, base: Any, otherwise: Any, scale: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            start = np.float64(base[i, j])
            if np.isnan(start):
                start = otherwise[j]
            out[i, j] = (np.float64(x[i, j]) - start) / scale[j]
