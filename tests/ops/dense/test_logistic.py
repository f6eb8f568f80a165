"""Logistic regression: its optimum, and compiled against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from strobe.ops import native
from strobe.ops.dense import logistic
from strobe.ops.dense.logistic import RIDGE, PairDesign, fit_logistic, fit_logistic_pairs


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


def pair_design(rng: np.random.Generator, groups: int, pairs: int) -> PairDesign:
    """Groups of pairs of 9 rows and 7 columns each; a fifth of the pairs has features of its own."""
    ptr = np.arange(groups + 1) * pairs
    group = np.repeat(np.arange(groups), pairs)
    row, column = (rng.integers(0, size, len(group)) + size * group for size in (9, 7))
    related = np.sort(rng.permutation(len(group))[: len(group) // 5])
    of_rows, of_columns = (rng.normal(size=(size * groups, 3)).astype(np.float32) for size in (9, 7))
    of_pairs = rng.random((len(related), 2)).astype(np.float32)
    return PairDesign(row.astype(np.int32), column.astype(np.int32), of_rows, of_columns, related, of_pairs, ptr)


@pytest.mark.parametrize(("groups", "pairs", "many"), [(1, 40, 1000), (7, 300, 1000), (30, 100, 0)])
def test_pairs_are_fitted_as_their_matrix(groups: int, pairs: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and after a fit to a sample; in parts of some groups."""
    monkeypatch.setattr(logistic, "_PART_ROWS", 256)
    monkeypatch.setattr(logistic, "_MANY_PAIRS", many)
    rng = np.random.default_rng(groups)
    design = pair_design(rng, groups, pairs)
    matrix = design.matrix()
    assert matrix.shape == (groups * pairs, 10)
    assert matrix[:, -1].sum() == len(design.related)
    labels = rng.random(len(matrix)) < expit(matrix @ rng.normal(size=10))
    expected = fit_logistic(matrix.astype(np.float64), labels)
    np.testing.assert_allclose(fit_logistic_pairs(design, labels), expected, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(native, "library", lambda: None)
    np.testing.assert_allclose(fit_logistic_pairs(design, labels), expected, rtol=1e-9, atol=1e-9)
