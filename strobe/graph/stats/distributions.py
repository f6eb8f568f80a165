"""Distributions: imbalance of loads, degrees, and power-law tails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.ops.sparse.csr import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Imbalance of one number per snapshot; all fields are None if the mean is 0 or there is no snapshot."""

    max_over_mean: float | None
    max_over_min: float | None  # None too if the smallest is 0
    variation: float | None  # population standard deviation over mean
    gini: float | None  # 0: all equal; near 1: one has everything

    @classmethod
    def from_values(cls, values: npt.ArrayLike) -> Spread:
        loads = np.asarray(values, np.float64)
        if loads.size == 0 or loads.sum() == 0:
            return cls(max_over_mean=None, max_over_min=None, variation=None, gini=None)
        mean, low, high = float(loads.mean()), float(loads.min()), float(loads.max())
        return cls(
            max_over_mean=high / mean,
            max_over_min=high / low if low else None,
            variation=float(loads.std()) / mean,
            gini=gini(np.sort(loads)),
        )


def gini(values: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> float:
    """Return the Gini coefficient of ascending values, each present ``counts`` times; 0 if their sum is 0."""
    amounts = np.asarray(values, np.float64)
    people = np.ones(amounts.size) if counts is None else np.asarray(counts, np.float64)
    wealth = np.concatenate(([0.0], np.cumsum(amounts * people)))
    if wealth[-1] == 0:
        return 0.0
    # one minus twice the area under the Lorenz curve; trapezoids are exact for steps
    area = float((people * (wealth[1:] + wealth[:-1])).sum()) / (float(people.sum()) * float(wealth[-1]))
    return max(0.0, 1.0 - area)


MIN_XMIN, MIN_TAIL_CELLS, MIN_TAIL_VALUES, MAX_CANDIDATES = 6, 50, 5, 200
_BINS_PER_DOUBLING = 4


@dataclass(frozen=True, kw_only=True)
class PowerLawTail:
    """A power law P(degree >= k) ~ k^(1 - exponent) fitted to the cells with degree at least ``xmin``."""

    exponent: float
    xmin: int
    num_cells: int
    distance: float  # Kolmogorov-Smirnov distance; above 0.1 it is hardly a power law


@dataclass(frozen=True, kw_only=True)
class DegreeDistribution:
    """In-degrees of all cells (undirected graphs: degrees; a self-loop counts one, parallel edges count each).

    ``bins`` are the lower ends of a histogram, [0, 1, 2, …], about four per doubling, the last one open; ``counts`` the
    cells in them. ``tail`` is None if too few cells have a degree of 6 or more.
    """

    mean: float
    median: int
    p99: int
    max: int
    gini: float
    bins: tuple[int, ...]
    counts: tuple[int, ...]
    tail: PowerLawTail | None

    @classmethod
    def from_counts(cls, cells: IntArray) -> DegreeDistribution:
        """Make the distribution from the number of cells of each degree, [largest + 1]."""
        values = np.flatnonzero(cells)
        counts = cells[values]
        if values.size == 0:
            return cls(mean=0.0, median=0, p99=0, max=0, gini=0.0, bins=(), counts=(), tail=None)
        up_to = np.cumsum(counts)
        num_cells, largest = int(up_to[-1]), int(values[-1])
        bins = _log_bins(largest)
        below = np.concatenate(([0], up_to))[np.searchsorted(values, bins)]
        return cls(
            mean=float((values * counts).sum() / num_cells),
            median=_quantile(values, up_to, 0.5),
            p99=_quantile(values, up_to, 0.99),
            max=largest,
            gini=gini(values, counts),
            bins=tuple(bins.tolist()),
            counts=tuple(np.diff(below, append=num_cells).tolist()),
            tail=fit_tail(values, counts),
        )


def fit_tail(values: IntArray, counts: IntArray) -> PowerLawTail | None:
    """Fit a power law by Clauset, Shalizi and Newman (2009), sections 3.1 and 3.3.

    For each candidate xmin the exponent is their approximation to the discrete maximum likelihood, 1 + n / sum(ln(k /
    (xmin - 1/2))), good to about a percent for xmin >= 6, hence no smaller candidate; the xmin with the smallest
    Kolmogorov-Smirnov distance wins. At most 200 candidates are tried, and a tail must have 50 cells and 5 distinct
    degrees. Every cell counts as one observation, though cells of a node are correlated.
    """
    above = np.cumsum(counts[::-1])[::-1]  # cells with at least this degree
    distinct = np.arange(values.size, 0, -1)
    allowed = (values >= MIN_XMIN) & (above >= MIN_TAIL_CELLS) & (distinct >= MIN_TAIL_VALUES)
    candidates = np.flatnonzero(allowed)
    if candidates.size > MAX_CANDIDATES:
        spaced = np.geomspace(1, candidates.size, MAX_CANDIDATES).astype(np.int64) - 1
        candidates = candidates[np.unique(spaced)]
    fits = (_fit_from(values[i:], counts[i:], above[i:]) for i in candidates.tolist())
    return min(fits, key=lambda tail: tail.distance, default=None)


def _fit_from(values: IntArray, counts: IntArray, above: IntArray) -> PowerLawTail:
    xmin, num_cells = int(values[0]), int(above[0])
    exponent = 1.0 + num_cells / float((counts * np.log(values / (xmin - 0.5))).sum())
    law: FloatArray = ((values - 0.5) / (xmin - 0.5)) ** (1.0 - exponent)
    law_next: FloatArray = ((values + 0.5) / (xmin - 0.5)) ** (1.0 - exponent)
    seen = above / num_cells
    seen_next = np.append(seen[1:], 0.0)
    # the empirical distribution is a step function: check the distance at both ends of a step
    distance = max(float(np.abs(seen - law).max()), float(np.abs(seen_next - law_next).max()))
    return PowerLawTail(exponent=exponent, xmin=xmin, num_cells=num_cells, distance=distance)


def _log_bins(largest: int) -> IntArray:
    """Return bins 0, 1, 2, 3, … then about four per doubling, up to the largest degree."""
    steps = np.arange(_BINS_PER_DOUBLING * max(largest, 1).bit_length() + 1)
    ends = np.floor(2.0 ** (steps / _BINS_PER_DOUBLING)).astype(np.int64)
    return np.unique([0, *ends[ends <= largest].tolist()])


def _quantile(values: IntArray, up_to: IntArray, share: float) -> int:
    """Return the smallest degree that at least this fraction of cells does not exceed."""
    return int(values[np.searchsorted(up_to, int(np.ceil(share * int(up_to[-1]))))])
