"""Scores of undirected links in DySAT's evaluation, and their AUC.

Trivial ones are read from the snapshots so far; the classifier is a logistic regression on features of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit

from strobe.protocols.next_links import FloatArray, LabeledPairs, Pairs, Step
from strobe.tasks.metrics import auc

BASELINES = ("edgebank", "edgebank-window", "most-recent-first", "popularity", "common-neighbors")
NODE_ACTIVITY = "node-activity"
"""The classifier on Hadamard products of the models' inputs without node ids: what a model must add to."""
PAIR_FEATURES = "pair-features"
"""The classifier on pair features without embeddings."""
WINDOW = 0.15
"""Share of the snapshots so far that EdgeBank with a window remembers, at least the last one."""
FITTED = (NODE_ACTIVITY, PAIR_FEATURES)
"""Baselines whose classifier is fitted, as the models' is."""


class LinkHistory:
    """All links of the snapshots read so far, self-loops included."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes, self._time = num_nodes, -1
        self._keys = np.empty(0, np.int64)
        self._last = np.empty(0, np.int64)
        self._degree = np.zeros(num_nodes)
        self._active = np.full(num_nodes, -1)

    def read(self, links: Pairs) -> None:
        """Read the links of the next snapshot, as ``snapshot_links`` returns them."""
        self._time += 1
        keys = np.concatenate([self._keys, self._to_keys(links)])
        times = np.concatenate([self._last, np.full(len(links), self._time)])
        self._keys, at = np.unique(keys[::-1], return_index=True)  # of equal keys the last one
        self._last = times[::-1][at]
        self._degree += np.bincount(links.ravel(), minlength=self._num_nodes)
        self._active[links.ravel()] = self._time

    def scores(self, pairs: Pairs) -> dict[str, FloatArray]:
        """Score pairs; scores of different snapshots are comparable.

        ``edgebank``: 1 if the pair had a link; ``edgebank-window``: in the last snapshots. ``most-recent-first``: pairs
        by their last link, then others by the last links of both ends. ``popularity``: product of the ends' numbers of
        links (preferential attachment). ``common-neighbors``: nodes that both ends had links with.
        """
        last, since = self._last_link(pairs), self._time + 1 - max(round(WINDOW * (self._time + 1)), 1)
        ends = 1 / (1.0 + self._time - self._active[pairs]) * (self._active[pairs] >= 0)
        return {
            "edgebank": (last >= 0).astype(np.float64),
            "edgebank-window": ((last >= 0) & (last >= since)).astype(np.float64),
            "most-recent-first": np.where(last >= 0, 1 + 1 / (1.0 + self._time - last), ends.prod(axis=1)),
            "popularity": self._degree[pairs].prod(axis=1),
            "common-neighbors": self._common_neighbors(pairs),
        }

    def _to_keys(self, pairs: Pairs) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = pairs[:, 0] * self._num_nodes + pairs[:, 1]
        return keys

    def _last_link(self, pairs: Pairs) -> npt.NDArray[np.int64]:
        """Snapshot of the last link of each pair; -1 without one."""
        if not len(self._keys):
            return np.full(len(pairs), -1)
        keys = self._to_keys(pairs)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._last[at], -1)

    def _common_neighbors(self, pairs: Pairs) -> FloatArray:
        one, other = np.divmod(self._keys, self._num_nodes)
        one, other = one[one != other], other[one != other]
        ends = np.concatenate([one, other]), np.concatenate([other, one])
        neighbors = sp.csr_array((np.ones(len(ends[0])), ends), shape=(self._num_nodes, self._num_nodes))
        common = neighbors[pairs[:, 0]] * neighbors[pairs[:, 1]]
        return np.asarray(common.sum(axis=1), np.float64).ravel()


PENALTY = 1.0
"""scikit-learn's C = 1, the default that the authors' code leaves."""
_ITERATIONS = 50
_TOLERANCE = 1e-8

SCORED = ("validation", "test")

PairFeatures = Callable[[Pairs], FloatArray]
"""Features of pairs, [n, K]."""

StepScores = Mapping[str, FloatArray]
"""Scores of a step's pairs by part, ``validation`` and ``test``."""


def fit_classifier(features: FloatArray, labels: FloatArray, penalty: float = PENALTY) -> FloatArray:
    """Fit a logistic regression as scikit-learn's ``LogisticRegression`` did by default up to 0.21 (liblinear).

    Minimizes |w|² / 2 + the sum of log-losses / ``penalty`` by Newton's method; the intercept is penalized, too.

    Args:
        features: features of pairs, [n, K].
        labels: 1 or 0, [n].
        penalty: strength of the penalty, 1 / C.

    Returns:
        Coefficients and the intercept, [K + 1].
    """
    x = _add_intercept(features)
    weights = np.zeros(x.shape[1])
    for _ in range(_ITERATIONS):
        chance = expit(x @ weights)
        gradient = penalty * weights - x.T @ (labels - chance)
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x + penalty * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < _TOLERANCE:
            break
    return weights


def classify(features: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the probability of a link, [n]."""
    chance: FloatArray = expit(_add_intercept(features) @ weights)
    return chance


def classify_step(step: Step, features: PairFeatures) -> dict[str, FloatArray]:
    """Train the classifier on the training pairs of a step and score the others."""
    train = step["train"]
    weights = fit_classifier(features(train.pairs), train.labels)
    return {part: classify(features(step[part].pairs), weights) for part in SCORED}


def hadamard(embeddings: npt.NDArray[np.float32]) -> PairFeatures:
    """Return the features of the published protocol: products of both ends' embeddings, given by node id."""

    def features(pairs: Pairs) -> FloatArray:
        source, destination = (embeddings[pairs[:, end]].astype(np.float64) for end in (0, 1))
        return source * destination

    return features


def step_auc(scores: FloatArray, pairs: LabeledPairs) -> float:
    """AUC of one part of one step."""
    return auc(scores, pairs.labels > 0)


@dataclass(frozen=True)
class StepAucs:
    """AUC of a part over all steps.

    Attributes:
        micro: AUC over the pairs of all steps together.
        per_step: AUC of every step.
    """

    micro: float
    per_step: tuple[float, ...]

    @property
    def macro(self) -> float:
        """Mean of the steps' AUC."""
        return float(np.mean(self.per_step))


def aucs(steps: Sequence[Step], scores: Iterable[StepScores], part: str) -> StepAucs:
    """Score a part of all steps."""
    found = [each[part] for each in scores]
    per_step = tuple(step_auc(values, step[part]) for values, step in zip(found, steps, strict=True))
    labels = np.concatenate([step[part].labels for step in steps])
    return StepAucs(auc(np.concatenate(found), labels > 0), per_step)


def _add_intercept(features: FloatArray) -> FloatArray:
    return np.column_stack([features, np.ones(len(features))])
