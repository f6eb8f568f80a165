"""Metrics: pure functions of arrays, in double precision.

An undefined metric (no examples, pairs of one kind only, a NaN prediction) is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.ops import native
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import FloatArray, IntArray

ClassArray = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

_BLOCK_ROWS = 1 << 14
"""Rows compared at a time; they fit into a core's cache."""


class ErrorSums(NamedTuple):
    """The count of predicted numbers, and the sums of their squared and absolute errors."""

    numbers: int
    squares: float
    absolute: float


def sum_errors(
    predicted: FloatArray, true: FloatArray, *, units: FloatArray | None = None, fill_value: FloatArray | None = None
) -> ErrorSums:
    """Sum the errors of rows [n, K]; equal bits on any number of threads.

    Args:
        predicted: predictions, [n, K].
        true: targets, [n, K].
        units: factor of each column's errors, [K].
        fill_value: prediction of each column where ``predicted`` is NaN, [K].
    """
    blocks = -(-len(true) // _BLOCK_ROWS)
    sums = np.zeros((blocks, 2))

    def compare(first: int, end: int) -> None:
        for block in range(first, end):
            rows = slice(block * _BLOCK_ROWS, (block + 1) * _BLOCK_ROWS)
            off = predicted[rows].astype(np.float64)
            if fill_value is not None:
                np.copyto(off, fill_value, where=np.isnan(off))
            off -= true[rows]
            if units is not None:
                off *= units
            sums[block] = np.square(off).sum(), np.abs(off, out=off).sum()

    run_ranges(compare, blocks)
    squares, absolute = sums.sum(0).tolist()
    return ErrorSums(true.size, squares, absolute)


def sum_snapshot_errors(
    predicted: FloatArray, true: FloatArray, sizes: Sequence[int], *, units: FloatArray | None = None
) -> ErrorSums:
    """The sum of ``sum_errors`` of each of several snapshots, to the last bit, given all rows and how many each has."""
    ends = [0, *accumulate(sizes)]
    if max(sizes, default=0) > _BLOCK_ROWS:  # a snapshot is worth several threads
        rows = (slice(a, b) for a, b in pairwise(ends))
        parts = [sum_errors(predicted[each], true[each], units=units) for each in rows]
        return ErrorSums(true.size, sum(part.squares for part in parts), sum(part.absolute for part in parts))
    off = predicted.astype(np.float64)
    off -= true
    if units is not None:
        off *= units
    ends = [off.shape[1] * end for end in ends]
    return ErrorSums(true.size, *(sum(_sum_snapshots(of(off).reshape(-1), ends)) for of in (np.square, np.abs)))


def _sum_snapshots(values: FloatArray, ends: list[int]) -> list[float]:
    """The sum of the values between each two ends."""
    sizes = {b - a for a, b in pairwise(ends)}
    if len(sizes) == 1 and 0 not in sizes:
        sums: list[float] = values.reshape(-1, *sizes).sum(1).tolist()
        return sums
    return [float(values[a:b].sum()) for a, b in pairwise(ends)]


def mse(parts: Sequence[ErrorSums]) -> float:
    """Mean squared error over all numbers."""
    numbers = sum(part.numbers for part in parts)
    return sum(part.squares for part in parts) / numbers if numbers else math.nan


def mae(parts: Sequence[ErrorSums]) -> float:
    """Mean absolute error over all numbers."""
    numbers = sum(part.numbers for part in parts)
    return sum(part.absolute for part in parts) / numbers if numbers else math.nan


def accuracy(predicted: ClassArray, true: ClassArray) -> float:
    """Share of examples with the predicted class."""
    return float((predicted == true).mean()) if len(true) else math.nan


def macro_f1(predicted: ClassArray, true: ClassArray) -> float:
    """Mean of F1 = 2 hits / (times predicted + times true) over classes that are predicted or true."""
    if not len(true):
        return math.nan
    classes, index = np.unique(np.concatenate([predicted, true]), return_inverse=True)
    predicted_at, true_at = index[: len(predicted)], index[len(predicted) :]
    hits = np.bincount(true_at[predicted_at == true_at], minlength=len(classes))
    return float((2 * hits / np.bincount(index, minlength=len(classes))).mean())


class SortedScores(NamedTuple):
    """Scores of positives and of negatives, ascending."""

    positives: FloatArray
    negatives: FloatArray

    @classmethod
    def split(cls, score: FloatArray, positive: BoolArray) -> SortedScores:
        """Sort scores of both kinds; both are empty if a score is NaN."""
        if np.isnan(score).any():
            return cls(score[:0], score[:0])
        return cls(np.sort(score[positive]), np.sort(score[~positive]))

    def auc(self) -> float:
        """``auc`` of these scores."""
        if not len(self.positives) or not len(self.negatives):
            return math.nan
        below, up_to = (np.searchsorted(self.negatives, self.positives, side=side) for side in ("left", "right"))
        won = (int(below.sum()) + int(up_to.sum())) / 2
        return won / (float(len(self.positives)) * float(len(self.negatives)))

    def ap(self) -> float:
        """``ap`` of these scores: thresholds without a positive add nothing."""
        if not len(self.positives):
            return math.nan
        falling = self.positives[::-1]
        last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        false = len(self.negatives) - np.searchsorted(self.negatives, falling[last], side="left")
        true = last + 1
        return float((np.diff(true, prepend=0) * (true / (true + false))).sum() / len(falling))


def auc(score: FloatArray, positive: BoolArray) -> float:
    """Area under the ROC: the probability that a positive scores higher than a negative; ties count one half."""
    return SortedScores.split(score, positive).auc()


def ap(score: FloatArray, positive: BoolArray) -> float:
    """Average precision: precision at each distinct score, weighted by the share of positives with that score."""
    return SortedScores.split(score, positive).ap()


def rank_positives(score: FloatArray, positive: BoolArray) -> FloatArray:
    """The rank of each positive among itself and its negatives, which follow it up to the next positive.

    Ranks start at 1; ties share their mean rank: 1 + higher negatives + equal negatives / 2. Positives without
    negatives are left out. A NaN score gives a NaN rank.
    """
    starts = np.flatnonzero(positive)
    ends = np.append(starts[1:], len(score))
    rank = np.empty(len(starts))
    score = np.ascontiguousarray(score, np.float64)
    arrays = score, starts, ends, rank

    def run(first: int, last: int) -> None:
        if native.library() is None:
            _rank_groups(first, last, *arrays)
        else:
            native.run("rank_groups", first, last, *arrays)

    run_ranges(run, len(starts), _BLOCK_ROWS)
    return rank[ends - starts > 1]


@cached_njit
def _rank_groups(first: int, last: int, score: Any, starts: Any, ends: Any, rank: Any) -> None:
    for group in range(first, last):
        own = score[starts[group]]
        twice = np.nan if np.isnan(own) else 0.0
        for i in range(starts[group] + 1, ends[group]):
            if np.isnan(score[i]):
                twice = np.nan
            elif score[i] > own:
                twice += 2.0
            elif score[i] == own:
                twice += 1.0
        rank[group] = 1 + twice / 2


def mrr(rank: FloatArray) -> float:
    """Mean reciprocal rank."""
    return float((1 / rank).mean()) if len(rank) else math.nan


def hits_at_k(rank: FloatArray, k: int) -> float:
    """Share of ranks up to k."""
    return float((rank <= k).mean()) if len(rank) and not np.isnan(rank).any() else math.nan


def rank_metrics(ranked: Sequence[FloatArray], sources: Sequence[IntArray]) -> dict[str, float]:
    """Metrics of positives that were ranked among candidates.

    ``mrr`` and ``hits@k``: of the rank of each positive among the negatives of its source, 1 + higher + equal / 2.
    ``best_mrr``: of the best rank of each source. ``source_mrr``: of the position of each positive among negatives and
    the other positives of its source; the mean over the positives of a source, then over sources, then over snapshots.
    ``map``: average precision of each source. ``ndcg@10``: of each source, the sum of 1 / log2(1 + position) over
    positives up to position 10, relative to that of positives at the first positions. ``auc``: share of negatives below
    a positive, mean over the positives of a source, then over sources.

    Args:
        ranked: per snapshot, of each positive its score, the numbers of negatives with a higher and an equal score, and
            of all negatives, [n, 4].
        sources: per snapshot, the source of each positive.
    """
    ranks, by_snapshot, best, precision, areas, gains = [], [], [], [], [], []
    for values, nodes in zip(ranked, sources, strict=True):
        score, higher, equal, negatives = np.asarray(values, np.float64).T
        rank = 1 + higher + equal / 2
        order = np.lexsort((-score, nodes))
        rank, area = rank[order], 1 - ((higher + equal / 2) / np.maximum(negatives, 1))[order]
        first = np.flatnonzero(np.diff(nodes[order], prepend=-1))
        size = np.diff(np.append(first, len(order)))
        before = np.arange(len(order)) - np.repeat(first, size)  # positives of the same source with a higher score
        ranks.append(rank)
        by_snapshot.append((np.add.reduceat(1 / (rank + before), first) / size).mean())
        best.append(1 / rank[first])
        precision.append(np.add.reduceat((1 + before) / (rank + before), first) / size)
        areas.append(np.add.reduceat(area, first) / size)
        gain, ideal = (np.add.reduceat(_discount(place, 10), first) for place in (rank + before, 1.0 + before))
        gains.append(gain / ideal)
    every = np.concatenate(ranks)
    means = {"map": precision, "auc": areas, "best_mrr": best, "ndcg@10": gains}
    return {
        "mrr": mrr(every),
        "source_mrr": float(np.mean(by_snapshot)),
        **{name: float(np.concatenate(values).mean()) for name, values in means.items()},
        **{f"hits@{k}": hits_at_k(every, k) for k in (1, 3, 10)},
    }


def _discount(position: FloatArray, k: int) -> FloatArray:
    """1 / log2(1 + position) up to position k, then 0; NaN of NaN."""
    return np.where(position > k, 0.0, 1 / np.log2(1 + position))
