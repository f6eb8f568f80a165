"""Logistic regression: its optimum, and compiled against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from strobe.ops import native
from strobe.ops.dense import logistic
from strobe.ops.dense.logistic import RIDGE, fit_logistic


def data(rows: int, *, separable: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = np.column_stack(
        [np.ones(rows), rng.normal(size=(rows, 3)), rng.random((rows, 2)) * (rng.random((rows, 1)) < 0.1)]
    )
    z = x @ np.array([-1.0, 2.0, 0.0, -0.5, 3.0, 1.0])
    return x, z > 0 if separable else rng.random(rows) < expit(z)


@pytest.mark.parametrize("rows", [1, 5, 400])
@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_gradient_is_zero(rows: int, separable: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_PART_ROWS", 32)
    if not compiled:
        monkeypatch.setattr(native, "usable", lambda *_: False)
    x, labels = data(rows, separable=separable)
    beta = fit_logistic(x, labels)
    ridge = RIDGE * np.square(x).sum() / x.shape[1]
    np.testing.assert_allclose(x.T @ (labels - expit(x @ beta)), ridge * beta, atol=1e-8)


def test_compiled_sums_equal_plain_ones_in_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = data(1000)
    found = fit_logistic(x.astype(np.float32), labels), fit_logistic(x.astype(np.float32).astype(np.float64), labels)
    monkeypatch.setattr(native, "usable", lambda *_: False)
    expected = fit_logistic(x.astype(np.float32), labels)
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-9, atol=1e-9)


def test_fit_recovers_coefficients() -> None:
    rng = np.random.default_rng(0)
    x, beta = np.column_stack([np.ones(40_000), rng.normal(size=(40_000, 2))]), np.array([0.5, 2.0, -1.0])
    np.testing.assert_allclose(fit_logistic(x, rng.random(len(x)) < expit(x @ beta)), beta, atol=0.06)


def test_separable_or_constant_columns_have_finite_coefficients() -> None:
    fitted = fit_logistic(np.array([[1.0, 0.0, 3.0], [1.0, 1.0, 3.0]]), np.array([0.0, 1.0]))
    assert bool(np.isfinite(fitted).all())
    assert fitted[1] > 1
    assert bool(np.isfinite(fit_logistic(np.eye(1, 3).repeat(3, 0), np.ones(3))).all())
