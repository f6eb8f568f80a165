"""Logistic regression by Newton's method, in one pass over the rows per step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from strobe.io.lazy_import import lazy_import
from strobe.ops import native
from strobe.ops.runtime.parallel import run_parts

if TYPE_CHECKING:
    from scipy import special
else:
    special = lazy_import("scipy.special")

ITERATIONS = 50
RIDGE = 1e-4
"""L2 penalty, relative to the mean square of the columns: coefficients stay finite for separable data."""

_PART_ROWS = 1 << 14
"""Rows of each partial sum; does not depend on the number of threads."""

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
