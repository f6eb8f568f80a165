"""How answers are scored, each metric one pure function of arrays with one exact definition.

A metric that is not defined for what it is given (no examples, only one kind of pair, an answer that is not a number)
is NaN, never a number that looks like a result. Everything is computed in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.ops.csr import FloatArray, IntArray
from strobe.ops.threads import run_ranges

Answers = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

_BLOCK_ROWS = 1 << 14
"""Rows that are compared at a time: what is made of them stays in a core's cache."""


class Errors(NamedTuple):
    """How many numbers were said, and the sums of their squared and absolute errors: those of parts add up."""

    numbers: int
    squares: float
    absolute: float


def errors(
    said: FloatArray, true: FloatArray, *, units: FloatArray | None = None, otherwise: FloatArray | None = None
) -> Errors:
    """Of rows of numbers [n, K] against what is true, in ``units`` of their column; with what is said ``otherwise`` of
    the column where they are none. The same bits on any number of threads."""
    blocks = -(-len(true) // _BLOCK_ROWS)
    sums = np.zeros((blocks, 2))

    def compare(first: int, end: int) -> None:
        for block in range(first, end):
            rows = slice(block * _BLOCK_ROWS, (block + 1) * _BLOCK_ROWS)
            off = said[rows].astype(np.float64)
            if otherwise is not None:
                np.copyto(off, otherwise, where=np.isnan(off))
            off -= true[rows]
            if units is not None:
                off *= units
            sums[block] = np.square(off).sum(), np.abs(off, out=off).sum()

    run_ranges(compare, blocks)
    squares, absolute = sums.sum(0).tolist()
    return Errors(true.size, squares, absolute)


def mse(parts: Sequence[Errors]) -> float:
    """The mean over all numbers of the squared error."""
    numbers = sum(part.numbers for part in parts)
    return sum(part.squares for part in parts) / numbers if numbers else math.nan


def mae(parts: Sequence[Errors]) -> float:
    """The mean over all numbers of the absolute error."""
    numbers = sum(part.numbers for part in parts)
    return sum(part.absolute for part in parts) / numbers if numbers else math.nan


def accuracy(said: Answers, true: Answers) -> float:
    """The share of examples whose class is the one that was said."""
    return float((said == true).mean()) if len(true) else math.nan


def macro_f1(said: Answers, true: Answers) -> float:
    """The mean over classes of F1 = 2 hits / (times said + times true), over classes that were said or are true."""
    if not len(true):
        return math.nan
    classes, index = np.unique(np.concatenate([said, true]), return_inverse=True)
    said_at, true_at = index[: len(said)], index[len(said) :]
    hits = np.bincount(true_at[said_at == true_at], minlength=len(classes))
    return float((2 * hits / np.bincount(index, minlength=len(classes))).mean())


def auc(score: FloatArray, positive: BoolArray) -> float:
    """The chance that a positive scores higher than a negative, where a tie counts one half (area under the ROC)."""
    true, false = _at_thresholds(score, positive)
    if not len(true) or not (true[-1] and false[-1]):
        return math.nan
    # Negatives that join at a threshold lose against all positives above it and tie with those that join with them.
    won = np.diff(false, prepend=0) * (true - np.diff(true, prepend=0) / 2)
    return float(won.sum() / (float(true[-1]) * float(false[-1])))


def ap(score: FloatArray, positive: BoolArray) -> float:
    """Average precision: over the distinct scores from the highest down, the precision of all pairs that score at
    least as much, weighted by the share of the positives with just this score."""
    true, false = _at_thresholds(score, positive)
    if not len(true) or not true[-1]:
        return math.nan
    return float((np.diff(true, prepend=0) * (true / (true + false))).sum() / true[-1])


def ranks(score: FloatArray, positive: BoolArray) -> FloatArray:
    """The rank of each positive among itself and its own negatives, the pairs that follow it up to the next positive.

    1 is best; with ties it is the mean of the ranks they share: 1 + higher negatives + equal negatives / 2. Positives
    without negatives have no rank and are left out. A score that is not a number makes the rank so.
    """
    group = np.cumsum(positive, dtype=np.int64) - 1
    own = score[positive][group]
    # Twice the rank less one, a whole number; NaN compares with nothing, so it is carried by the sum itself.
    beats = np.where(np.isnan(score) | np.isnan(own), np.nan, 2.0 * (score > own) + (score == own))
    beats[positive] = np.where(np.isnan(score[positive]), np.nan, 0.0)
    number = int(positive.sum())
    rank: FloatArray = 1 + np.bincount(group, weights=beats, minlength=number) / 2
    return rank[np.bincount(group, minlength=number) > 1]


def mrr(rank: FloatArray) -> float:
    """The mean of 1 / rank."""
    return float((1 / rank).mean()) if len(rank) else math.nan


def hits(rank: FloatArray, k: int) -> float:
    """The share of ranks that are k or better."""
    return float((rank <= k).mean()) if len(rank) and not np.isnan(rank).any() else math.nan


def _at_thresholds(score: FloatArray, positive: BoolArray) -> tuple[IntArray, IntArray]:
    """Positives and negatives that score at least as much, for each distinct score from the highest down."""
    if np.isnan(score).any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(-score)
    falling = score[order]
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], len(falling) > 0))
    true = np.cumsum(positive[order], dtype=np.int64)[last]
    return true, last + 1 - true
