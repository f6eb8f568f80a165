"""From scores of pairs to probabilities of edges: prior correction, a fit by log loss, and the calibration error.

Training sees ``negatives`` uniform negatives k per positive. A source s with m positives brings k m negatives, spread
over the n candidates: a pair (s, d) with the probability p is a positive p times and a negative about k μ / n times,
where μ is the expected number of edges of s. Log-odds that fit such a sample are log p - log(k μ / n), so

    logit p = score - log(n / k) + log μ.

The number of edges of a source cancels in training, and so has to be put back: μ is estimated from the recent edges of
the source. Scores of a softmax are comparable within a source only. There p = μ exp(score) / Σ exp(scores), that is

    logit p ≈ score - logsumexp(scores) + log μ.

A calibration has a slope of the score, a weight of log μ and a bias; without any fit they are 1, 1 and 0. Log-odds that
are linear in the score are too sure of the likeliest pairs, so a piecewise linear, ascending map of log-odds follows:
isotonic regression of bins of equally many expected edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import FloatArray

if TYPE_CHECKING:
    from scipy import special
else:
    special = lazy_import("scipy.special")

NORMALIZATIONS = ("negatives", "softmax")
"""What is subtracted from scores: log(candidates / negatives), or the logarithm of the sum of the source's odds."""

NUM_BINS = 15
RIDGE = 0.1
"""Penalty of squared differences to 1 of slope and weight, in units of the log loss of one positive."""

MAX_STEPS = 100
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """A weighted sample of pairs that represents all pairs of sources and candidates of some snapshots.

    Args:
        scores: scores of pairs, [n].
        log_sum: logarithm of the sum of exp(score) over all candidates of the source, [n].
        num_candidates: candidates of the snapshot, [n].
        rate: expected number of edges of the source in the target snapshot, [n].
        labels: whether the target snapshot has the edge, [n].
        weights: how many pairs each one represents, [n].
    """

    scores: FloatArray
    log_sum: FloatArray
    num_candidates: FloatArray
    rate: FloatArray
    labels: BoolArray
    weights: FloatArray

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredPairs]) -> ScoredPairs:
        """The pairs of several blocks."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))


@dataclass(frozen=True, kw_only=True)
class LinkCalibration:
    """sigmoid(map(slope · (score - normalization) + activity · log μ + bias)); see the module.

    Within a source the order of probabilities is that of scores: the slope is not negative, and the map ascends.

    Args:
        normalization: one of ``NORMALIZATIONS``.
        negatives: negatives per positive in training.
        slope: of the score.
        activity: weight of the logarithm of the source's expected number of edges.
        bias: added.
        knots: log-odds and what they are mapped to, both ascending; linear between them, and beyond them shifted as at
            the nearest one.
    """

    normalization: str
    negatives: int
    slope: float = 1.0
    activity: float = 1.0
    bias: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()

    @property
    def needs_log_sum(self) -> bool:
        """Whether a probability needs the scores of all candidates of its source."""
        return self.normalization == "softmax"

    def probabilities(
        self, scores: FloatArray, rate: FloatArray, *, num_candidates: FloatArray | float, log_sum: FloatArray | float
    ) -> FloatArray:
        """Probabilities of edges; arguments as in ``ScoredPairs``, of any shapes that broadcast."""
        found: FloatArray = special.expit(self._log_odds(scores, rate, num_candidates, log_sum))
        return found

    def _log_odds(self, scores: FloatArray, rate: FloatArray, num_candidates: Any, log_sum: Any) -> FloatArray:
        shift = log_sum if self.needs_log_sum else np.log(num_candidates / self.negatives)
        z: FloatArray = self.slope * (scores - shift) + self.activity * np.log(rate) + self.bias
        if not self.knots:
            return z
        before, after = np.array(self.knots).T
        mapped: FloatArray = z + np.interp(z, before, after - before)
        return mapped

    def of_pairs(self, pairs: ScoredPairs) -> FloatArray:
        """Probabilities of sampled pairs."""
        return self.probabilities(pairs.scores, pairs.rate, num_candidates=pairs.num_candidates, log_sum=pairs.log_sum)

    def log_loss(self, pairs: ScoredPairs) -> float:
        """Log loss of all pairs that the sample represents, per edge."""
        z = self._log_odds(pairs.scores, pairs.rate, pairs.num_candidates, pairs.log_sum)
        losses = pairs.weights * (np.logaddexp(0, z) - pairs.labels * z)
        return float(losses.sum() / (pairs.weights * pairs.labels).sum())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LinkCalibration:
        given = {each.name: values[each.name] for each in fields(cls)}
        return cls(**given | {"knots": tuple((float(a), float(b)) for a, b in given["knots"])})


def fit_calibration(pairs: ScoredPairs, negatives: int) -> LinkCalibration | None:
    """Fit slope, weight and bias of each normalization by log loss, and take the one with the lower loss.

    Args:
        pairs: of validation snapshots.
        negatives: negatives per positive in training.

    Returns:
        The calibration; None without an edge, or where a score is not finite.
    """
    if not pairs.labels.any() or pairs.labels.all() or not np.isfinite(pairs.scores).all():
        return None
    found = [_fit(LinkCalibration(normalization=each, negatives=negatives), pairs) for each in NORMALIZATIONS]
    best = min(found, key=lambda calibration: calibration.log_loss(pairs))
    bent = replace(best, knots=_fit_knots(best.of_pairs(pairs), pairs.labels, pairs.weights))
    return min(best, bent, key=lambda calibration: calibration.log_loss(pairs))


def _fit_knots(probabilities: FloatArray, labels: BoolArray, weights: FloatArray) -> tuple[tuple[float, float], ...]:
    """Isotonic regression of bins of equally many expected edges, by pooling adjacent violators.

    Every bin has one more edge where its probability expects one, so that no bin is without edges.
    """
    scale = float((weights * labels).sum() / labels.sum())  # edges that a sampled edge stands for
    pools: list[list[float]] = []  # pairs, expected and actual edges
    for each in reliability(probabilities, labels, weights, by=weights * probabilities):
        size = each.share * weights.sum()
        more = scale / max(each.predicted, 1e-12)
        pools.append([size + more, (size + more) * each.predicted, size * each.actual + scale])
        while len(pools) > 1 and pools[-1][2] / pools[-1][0] <= pools[-2][2] / pools[-2][0]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    return tuple(
        (float(special.logit(expected / size)), float(special.logit(actual / size))) for size, expected, actual in pools
    )


def _fit(start: LinkCalibration, pairs: ScoredPairs) -> LinkCalibration:
    """Newton's method with step halving, from the values that need no fit."""
    unscaled = replace(start, activity=0.0, bias=0.0)
    scores = unscaled._log_odds(pairs.scores, pairs.rate, pairs.num_candidates, pairs.log_sum)
    x = np.column_stack([scores, np.log(pairs.rate), np.ones(len(pairs))])
    y, w = pairs.labels, pairs.weights * (pairs.labels.sum() / (pairs.weights * pairs.labels).sum())
    ridge = np.array([RIDGE, RIDGE, 0.0])
    prior = np.array([1.0, 1.0, _matching_bias(scores + x[:, 1], y, w)])

    def solve(free: list[int]) -> FloatArray:
        beta = prior.copy()
        if 0 not in free:
            beta[0] = 0.0

        def loss(beta: FloatArray) -> float:
            z = x @ beta
            return float((w * (np.logaddexp(0, z) - y * z)).sum() + (ridge * (beta - prior) ** 2).sum() / 2)

        last = loss(beta)
        for _ in range(MAX_STEPS):
            chance = special.expit(x @ beta)
            gradient = x.T @ (w * (y - chance)) - ridge * (beta - prior)
            hessian = (x * (w * chance * (1 - chance))[:, None]).T @ x + np.diag(ridge + 1e-9)
            step = np.zeros(3)
            step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
            while loss(beta + step) > last and np.abs(step).max() > 1e-9:
                step /= 2
            beta = beta + step
            last, before = loss(beta), last
            if before - last <= 1e-10 * abs(before):
                break
        return beta

    beta = solve([0, 1, 2])
    if beta[0] < 0:
        beta = solve([1, 2])
    slope, activity, bias = map(float, beta)
    return replace(start, slope=slope, activity=activity, bias=bias)


def _matching_bias(z: FloatArray, labels: BoolArray, weights: FloatArray) -> float:
    """The bias with which as many edges are expected as there are, by bisection."""
    low, high = -100.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        too_few = (weights * special.expit(z + middle)).sum() < (weights * labels).sum()
        low, high = (middle, high) if too_few else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class Bin:
    """Pairs of similar probability: their share of all pairs, the mean probability and the share that has an edge."""

    share: float
    predicted: float
    actual: float


def reliability(
    probabilities: FloatArray, labels: BoolArray, weights: FloatArray, *, by: FloatArray | None = None
) -> list[Bin]:
    """Cut pairs, in order of probability, into ``NUM_BINS`` bins of equal total ``by``, by default of equal weight.

    Edges are rare among all pairs, so that bins of equal weight are nearly all near 0. ``by=weights * probabilities``
    gives bins of equally many expected edges.
    """
    order = np.argsort(probabilities, kind="stable")
    total = np.cumsum((weights if by is None else by)[order])
    place = np.minimum(total / total[-1] * NUM_BINS, NUM_BINS - 1).astype(np.int64)
    sums = [np.bincount(place, each[order], NUM_BINS) for each in (weights, weights * probabilities, weights * labels)]
    return [
        Bin(float(weight / weights.sum()), float(predicted / weight), float(actual / weight))
        for weight, predicted, actual in zip(*sums, strict=True)
        if weight
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error (ECE): the mean over pairs of |mean probability - share of edges| of their bin."""
    return sum(each.share * abs(each.predicted - each.actual) for each in bins)


def edge_rate(log_counts: FloatArray, t: int) -> FloatArray:
    """The expected number of edges of nodes in a snapshot, from ``EdgeTimes.node_features`` of one direction.

    The mean of the edges per snapshot in the last 4 and in the last 16 snapshots; a node without edges has 1 / 64.
    """
    counts = np.expm1(log_counts.astype(np.float64))
    recent = counts[:, 1] / min(4, t + 1) + counts[:, 2] / min(16, t + 1)
    found: FloatArray = recent / 2 + 1 / 64
    return found
