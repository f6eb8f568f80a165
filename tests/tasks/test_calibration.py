from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.special import expit, logit

from strobe.ops.sparse.csr import FloatArray
from strobe.tasks.calibration import (
    LinkCalibration,
    ScoredPairs,
    calibration_error,
    edge_rate,
    fit_calibration,
    reliability,
)

SOURCES, CANDIDATES, NEGATIVES = 300, 400, 5


def synthetic_pairs(seed: int, distort: float = 1.0, softmax: bool = False) -> tuple[ScoredPairs, FloatArray]:
    """Pairs whose probability of an edge is known, with the scores of a model that was trained on sampled negatives or
    by a softmax: sources with many and with few edges, a few likely destinations of each."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(-1, 1.2, SOURCES))
    shares = rng.dirichlet(np.full(CANDIDATES, 0.05), SOURCES) + 1e-7
    chances = np.clip(rate[:, None] * shares, 1e-9, 0.95)
    scores = logit(chances) - np.log(NEGATIVES * rate / CANDIDATES)[:, None]
    if softmax:
        scores = np.log(shares) + rng.normal(4, 3, SOURCES)[:, None]  # comparable within a source only
    scores = distort * scores

    def column(values: FloatArray) -> FloatArray:
        return np.broadcast_to(values, scores.shape).ravel()

    pairs = ScoredPairs(
        scores=scores.ravel(),
        log_sum=column(np.log(np.exp(scores).sum(1))[:, None]),
        num_candidates=np.full(scores.size, float(CANDIDATES)),
        rate=column(rate[:, None]),
        labels=(rng.random(scores.shape) < chances).ravel(),
        weights=np.ones(scores.size),
    )
    return pairs, chances.ravel()


def error_of(chances: FloatArray, pairs: ScoredPairs) -> float:
    return calibration_error(reliability(chances, pairs.labels, pairs.weights))


def test_derived_correction_gives_true_probabilities_without_a_fit() -> None:
    pairs, chances = synthetic_pairs(0)
    found = LinkCalibration(normalization="negatives", negatives=NEGATIVES).of_pairs(pairs)
    np.testing.assert_allclose(found, chances, rtol=1e-9)


@pytest.mark.parametrize(("distort", "softmax"), [(1.0, False), (1.6, False), (1.0, True)])
def test_fitted_probabilities_are_calibrated_on_other_pairs(distort: float, softmax: bool) -> None:
    fitted = fit_calibration(synthetic_pairs(1, distort, softmax)[0], NEGATIVES)
    test, true = synthetic_pairs(2, distort, softmax)
    assert fitted is not None
    assert fitted.normalization == ("softmax" if softmax else "negatives")
    found = fitted.of_pairs(test)
    assert error_of(expit(test.scores), test) > 0.02
    assert error_of(found, test) < 0.001
    assert np.abs(found - true)[true > 0.2].mean() < 0.1
    assert np.abs(expit(test.scores) - true)[true > 0.01].mean() > 0.2
    if distort == 1.6:
        assert fitted.slope == pytest.approx(1 / 1.6, rel=0.1)


def test_weighted_sample_gives_about_the_calibration_of_all_pairs() -> None:
    pairs, _ = synthetic_pairs(3)
    rng = np.random.default_rng(0)
    kept = pairs.labels | (pairs.scores > np.quantile(pairs.scores, 0.9))
    kept |= (sampled := ~kept & (rng.random(len(pairs)) < 0.1))
    sample = ScoredPairs(*(getattr(pairs, each.name)[kept] for each in fields(pairs)))
    sample = replace(sample, weights=np.where(sampled[kept], 10.0, 1.0))
    whole, part = (fit_calibration(each, NEGATIVES) for each in (pairs, sample))
    assert whole is not None
    assert part is not None
    np.testing.assert_allclose(part.of_pairs(pairs), whole.of_pairs(pairs), rtol=0.2, atol=1e-4)


def test_probabilities_of_a_source_are_in_the_order_of_scores() -> None:
    pairs, _ = synthetic_pairs(4)
    shuffled = replace(pairs, scores=-pairs.scores)  # a model that is worse than none
    for each in (pairs, shuffled):
        fitted = fit_calibration(each, NEGATIVES)
        assert fitted is not None
        scores = np.linspace(-40, 40, 1000)
        found = fitted.probabilities(scores, np.ones(1000), num_candidates=400.0, log_sum=3.0)
        assert (np.diff(found) >= 0).all()
        assert fitted.slope == 0 or each is pairs


def test_bins_and_error_equal_plain_loops() -> None:
    rng = np.random.default_rng(0)
    chances, weights = rng.random(600), np.ones(600)
    labels = rng.random(600) < chances**2
    expected = 0.0
    order = sorted(range(600), key=lambda k: chances[k])
    for first in range(0, 600, 40):
        inside = order[first : first + 40]
        expected += abs(sum(chances[k] for k in inside) - sum(labels[k] for k in inside)) / 600
    # A pair on the border of two bins belongs to either.
    assert calibration_error(reliability(chances, labels, weights)) == pytest.approx(expected, abs=0.004)
    doubled = calibration_error(reliability(np.tile(chances, 2), np.tile(labels, 2), np.tile(weights, 2)))
    weighted = calibration_error(reliability(chances, labels, 2 * weights))
    assert doubled == pytest.approx(weighted, abs=0.004)


def test_nothing_is_fitted_without_edges_or_with_nan() -> None:
    pairs, _ = synthetic_pairs(0)
    assert fit_calibration(replace(pairs, labels=np.zeros(len(pairs), bool)), NEGATIVES) is None
    assert fit_calibration(replace(pairs, scores=np.full(len(pairs), np.nan)), NEGATIVES) is None


def test_calibration_survives_json() -> None:
    fitted = fit_calibration(synthetic_pairs(1)[0], NEGATIVES)
    assert fitted is not None
    assert len(fitted.knots) > 1
    assert LinkCalibration.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted


def test_edge_rate_is_the_mean_number_of_recent_edges() -> None:
    counts = np.log1p(np.array([[1, 4, 8, 100, 0], [0, 0, 0, 0, 0]]))
    np.testing.assert_allclose(edge_rate(counts, 20), [(4 / 4 + 8 / 16) / 2 + 1 / 64, 1 / 64])
    np.testing.assert_allclose(edge_rate(counts, 1), [(4 / 2 + 8 / 2) / 2 + 1 / 64, 1 / 64])
