"""The classifier of DySAT's evaluation: a logistic regression on features of pairs, scored by AUC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from strobe.protocols.next_links import FloatArray, LabeledPairs, Pairs, Step
from strobe.tasks.metrics import auc

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
