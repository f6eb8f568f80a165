"""The degree law: how many cells have how many neighbours, and how heavy the tail is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.graph.stats.spread import gini
from strobe.ops.csr import FloatArray, IntArray

MIN_XMIN, MIN_TAIL_CELLS, MIN_TAIL_VALUES, MAX_CANDIDATES = 6, 50, 5, 200
_BINS_PER_DOUBLING = 4


@dataclass(frozen=True, kw_only=True)
class Tail:
    """A power law P(degree >= k) ~ k^(1 - exponent) fitted to the cells with degree at least ``xmin``."""

    exponent: float
    xmin: int
    num_cells: int
    distance: float  # Kolmogorov-Smirnov, between the cells and the law; above 0.1 it is hardly a power law


@dataclass(frozen=True, kw_only=True)
class DegreeLaw:
    """In-degrees of all cells (undirected graphs: degrees; a self-loop counts one, parallel edges count each).

    ``bins`` are the lower ends of a histogram, [0, 1, 2, …], about four per doubling, the last one open;
    ``counts`` the cells in them. ``tail`` is None where too few cells have a degree of 6 or more.
    """

    mean: float
    median: int
    p99: int
    max: int
    gini: float
    bins: tuple[int, ...]
    counts: tuple[int, ...]
    tail: Tail | None

    @classmethod
    def of(cls, values: IntArray, counts: IntArray) -> DegreeLaw:
        """From distinct degrees in ascending order and the number of cells that have each."""
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


class DegreeTally:
    """Counts cells by degree. Distinct degrees are few (their sum is at most the arcs), so this stays small."""

    def __init__(self) -> None:
        self.values: IntArray = np.empty(0, np.int64)
        self.counts: IntArray = np.empty(0, np.int64)

    def add(self, degree: IntArray) -> None:
        ordered = np.sort(degree)
        first = _group_starts(ordered)
        values = np.concatenate([self.values, ordered[first].astype(np.int64)])
        counts = np.concatenate([self.counts, np.diff(first, append=ordered.size)])
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
        first = _group_starts(values)
        self.values = values[first]
        self.counts = np.add.reduceat(counts, first) if first.size else counts


def fit_tail(values: IntArray, counts: IntArray) -> Tail | None:
    """The power law nearest to the cells, by Clauset, Shalizi and Newman (2009), sections 3.1 and 3.3.

    For each candidate xmin the exponent is their approximation to the discrete maximum likelihood,
    1 + n / sum(ln(k / (xmin - 1/2))), good to about a percent for xmin >= 6, hence no smaller candidate; the
    xmin with the smallest Kolmogorov-Smirnov distance wins. At most 200 candidates are tried, and a tail must
    hold 50 cells and 5 distinct degrees. Every cell counts as one observation, though a node's are alike.
    """
    above = np.cumsum(counts[::-1])[::-1]  # cells with at least this degree
    distinct = np.arange(values.size, 0, -1)
    allowed = (values >= MIN_XMIN) & (above >= MIN_TAIL_CELLS) & (distinct >= MIN_TAIL_VALUES)
    candidates = np.flatnonzero(allowed)
    if candidates.size > MAX_CANDIDATES:
        spaced = np.geomspace(1, candidates.size, MAX_CANDIDATES).astype(np.int64) - 1
        candidates = candidates[spaced[_group_starts(spaced)]]
    fits = (_fit_from(values[i:], counts[i:], above[i:]) for i in candidates.tolist())
    return min(fits, key=lambda tail: tail.distance, default=None)


def _fit_from(values: IntArray, counts: IntArray, above: IntArray) -> Tail:
    xmin, num_cells = int(values[0]), int(above[0])
    exponent = 1.0 + num_cells / float((counts * np.log(values / (xmin - 0.5))).sum())
    law: FloatArray = ((values - 0.5) / (xmin - 0.5)) ** (1.0 - exponent)
    law_next: FloatArray = ((values + 0.5) / (xmin - 0.5)) ** (1.0 - exponent)
    seen = above / num_cells
    seen_next = np.append(seen[1:], 0.0)
    # the observed share is a step: it can be farthest from the law at either end of one
    distance = max(float(np.abs(seen - law).max()), float(np.abs(seen_next - law_next).max()))
    return Tail(exponent=exponent, xmin=xmin, num_cells=num_cells, distance=distance)


def _log_bins(largest: int) -> IntArray:
    """0, 1, 2, 3, … then about four bins per doubling, up to the largest degree."""
    steps = np.arange(_BINS_PER_DOUBLING * max(largest, 1).bit_length() + 1)
    ends = np.floor(2.0 ** (steps / _BINS_PER_DOUBLING)).astype(np.int64)
    ends = np.concatenate(([0], ends[_group_starts(ends)]))
    return ends[ends <= largest]


def _quantile(values: IntArray, up_to: IntArray, share: float) -> int:
    """The smallest degree that at least this share of cells does not exceed."""
    return int(values[np.searchsorted(up_to, int(np.ceil(share * int(up_to[-1]))))])


def _group_starts(ordered: IntArray) -> IntArray:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if ordered.size else ordered[:0]
