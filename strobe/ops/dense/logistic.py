"""Logistic regression by Newton's method, in one pass over the rows per step."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from strobe.io.lazy_import import lazy_import
from strobe.ops import native
from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.csr import IntArray

if TYPE_CHECKING:
    from scipy import special
else:
    special = lazy_import("scipy.special")

ITERATIONS = 50
RIDGE = 1e-4
"""L2 penalty, relative to the mean square of the columns: coefficients stay finite for separable data."""

_PART_ROWS = 1 << 14
"""Rows of each partial sum; does not depend on the number of threads."""

_MANY_PAIRS, _SAMPLE_MASK, _ROUGH = 1 << 17, 15, 1e-3
"""Pairs beyond which a sample is fitted first: those whose hash has zeros at the mask, up to steps of that size."""

Doubles = npt.NDArray[np.float64]


def fit_logistic(x: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Doubles:
    """Coefficients of the columns of x, [K], for labels of 1 or 0; an intercept is a column of ones.

    Args:
        x: float32 or float64, [n, K].
        labels: [n].
    """
    x, labels = np.ascontiguousarray(x), np.ascontiguousarray(labels > 0, np.uint8)
    sum_part = _sum_compiled if native.usable(torch.from_numpy(x)) else _sum_plain
    size = x.shape[1]
    beta = np.zeros(size)
    ridge = RIDGE * float(sum(np.square(part, dtype=np.float64).sum() for part in _parts(x))) / size
    for _ in range(ITERATIONS):
        gradient, hessian = _sums(sum_part, x, labels, beta)
        step = np.linalg.solve(hessian + ridge * np.eye(size), gradient - ridge * beta)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    return beta


class PairDesign(NamedTuple):
    """The columns of a regression on pairs: 1, features of the row, of the column, of the pair where it has any, and
    whether it has.

    Args:
        row: row of each pair, [n], int32.
        column: column of each pair, [n], int32.
        of_rows: [S, K], float32.
        of_columns: [D, K], float32.
        related: pairs with features, [R].
        of_pairs: their features, [R, P], float32.
        ptr: where groups of pairs begin, which share no row and no column, [G + 1].
    """

    row: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    of_rows: npt.NDArray[np.float32]
    of_columns: npt.NDArray[np.float32]
    related: IntArray
    of_pairs: npt.NDArray[np.float32]
    ptr: IntArray

    def matrix(self) -> npt.NDArray[np.float32]:
        """All columns of all pairs, [n, 2 K + P + 2]."""
        own = np.zeros((len(self.row), self.of_pairs.shape[1] + 1), np.float32)
        own[self.related, :-1], own[self.related, -1] = self.of_pairs, 1
        ones = np.ones((len(self.row), 1), np.float32)
        return np.concatenate([ones, self.of_rows[self.row], self.of_columns[self.column], own], 1)


def fit_logistic_pairs(design: PairDesign, labels: npt.NDArray[Any]) -> Doubles:
    """``fit_logistic`` of ``design.matrix()``, which is never in memory: products with features of nodes are computed
    once per node. Of many pairs a sixteenth is fitted first: Newton's method then needs two or three passes over all.
    """
    if native.library() is None:
        return fit_logistic(design.matrix(), labels)
    sums = _PairSums(design, labels)
    ridge = RIDGE * sums.squares() / sums.size
    beta = np.zeros(sums.size)
    for mask in (_SAMPLE_MASK, 0) if len(labels) >= _MANY_PAIRS else (0,):
        share = 1 / (mask + 1)
        for _ in range(ITERATIONS):
            gradient, hessian = sums.at(beta, mask)
            step = np.linalg.solve(hessian + share * ridge * np.eye(sums.size), gradient - share * ridge * beta)
            beta += step
            # The error after a step is of the order of its square.
            if np.abs(step).max() < (_ROUGH if mask else 3e-6):
                break
    return beta


class _PairSums:
    """Gradients of the log-likelihood and its negative Hessians."""

    def __init__(self, design: PairDesign, labels: npt.NDArray[Any]) -> None:
        self._design, n = design, len(design.row)
        place = np.full(n, -1, np.int32)
        place[design.related] = np.arange(len(design.related), dtype=np.int32)
        labels = np.ascontiguousarray(labels > 0, np.uint8)
        self._pairs = (*(np.ascontiguousarray(each, np.int32) for each in (design.row, design.column)), place, labels)
        self._of_columns, self._of_pairs = (
            np.ascontiguousarray(each, np.float32) for each in (design.of_columns, design.of_pairs)
        )
        self._s, self._d = design.of_rows.astype(np.float64), design.of_columns.astype(np.float64)
        self._k, self._q = design.of_columns.shape[1], design.of_pairs.shape[1] + 1
        self.size = 1 + 2 * self._k + self._q
        cuts = np.searchsorted(design.ptr, np.arange(0, n, _PART_ROWS))  # groups are in one part
        self._cuts = np.unique(np.append(design.ptr[cuts], n))

    def squares(self) -> float:
        """The sum of the squares of all numbers of the matrix."""
        design = self._design
        ends = ((design.row, self._s), (design.column, self._d))
        of_ends = (np.bincount(at, minlength=len(x)) @ np.square(x).sum(1) for at, x in ends)
        of_pairs = np.square(self._of_pairs, dtype=np.float64).sum() + len(design.related)
        return float(len(design.row) + sum(of_ends) + of_pairs)

    def at(self, beta: Doubles, mask: int) -> tuple[Doubles, Doubles]:
        """The sums over all pairs, or over those of a sample."""
        k, q, s, d = self._k, self._q, self._s, self._d
        intercept, of_row, of_column, of_pair = np.split(beta, [1, 1 + k, 1 + 2 * k])
        odds = s @ of_row + intercept, d @ of_column, np.ascontiguousarray(of_pair)
        row_sums, column_sums, of_rows = np.zeros((len(s), 2)), np.zeros((len(d), 2)), np.zeros((len(s), k + q))
        products = np.zeros((len(self._cuts) - 1, k + q + 1, q))

        def run(part: int) -> None:
            here, tables = self._cuts[part : part + 2].tolist(), (k, q, self._of_columns, self._of_pairs)
            sums = row_sums, column_sums, of_rows, products[part]
            native.run("logistic_pairs", *here, mask, *self._pairs, *tables, *odds, *sums)

        run_parts(run, len(products))
        of_column_pairs, of_pairs, errors = np.split(products.sum(0), [k, k + q])
        (weight, error), (column_weight, column_error) = row_sums.T, column_sums.T
        hessian, cuts = np.zeros((self.size, self.size)), (0, 1, 1 + k, 1 + 2 * k, self.size)
        one, rows, columns, pairs = (slice(*each) for each in pairwise(cuts))
        hessian[one, one], hessian[one, rows], hessian[one, columns] = weight.sum(), weight @ s, column_weight @ d
        hessian[one, pairs], hessian[rows, rows] = of_rows[:, k:].sum(0), (s * weight[:, None]).T @ s
        hessian[rows, columns], hessian[rows, pairs] = s.T @ of_rows[:, :k], s.T @ of_rows[:, k:]
        hessian[columns, columns], hessian[columns, pairs] = (d * column_weight[:, None]).T @ d, of_column_pairs
        hessian[pairs, pairs] = of_pairs
        gradient = np.concatenate([[error.sum()], error @ s, column_error @ d, errors[0]])
        return gradient, np.triu(hessian) + np.triu(hessian, 1).T


def _parts(x: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [x[first : first + _PART_ROWS] for first in range(0, len(x), _PART_ROWS)]


def _sums(sum_part: Any, x: npt.NDArray[Any], labels: npt.NDArray[np.uint8], beta: Doubles) -> tuple[Doubles, Doubles]:
    """Gradient of the log-likelihood and its negative Hessian, summed over all rows."""
    count, size = -(-len(x) // _PART_ROWS), x.shape[1]
    gradients, hessians = np.zeros((count, size)), np.zeros((count, size, size))

    def run(part: int) -> None:
        here = slice(part * _PART_ROWS, (part + 1) * _PART_ROWS)
        sum_part(x[here], labels[here], beta, gradients[part], hessians[part])

    run_parts(run, count)
    upper = hessians.sum(0)
    return gradients.sum(0), np.triu(upper) + np.triu(upper, 1).T


def _sum_compiled(x: Any, labels: Any, beta: Doubles, gradient: Doubles, hessian: Doubles) -> None:
    native.call("logistic_sums", 0, len(x), x.shape[1], torch.from_numpy(x), labels, beta, gradient, hessian)


def _sum_plain(x: Any, labels: Any, beta: Doubles, gradient: Doubles, hessian: Doubles) -> None:
    x = x.astype(np.float64)
    chance = special.expit(x @ beta)
    gradient[:] = x.T @ (labels - chance)
    hessian[:] = (x * (chance * (1 - chance))[:, None]).T @ x
