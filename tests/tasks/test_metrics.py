"""Each metric against a slow, obvious version of its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strobe.tasks.metrics import (
    accuracy,
    ap,
    auc,
    hits_at_k,
    macro_f1,
    mae,
    mrr,
    mse,
    rank_positives,
    sum_errors,
    sum_snapshot_errors,
)

Pairs = list[tuple[float, bool]]
pairs = st.lists(st.tuples(st.integers(-2, 3).map(float), st.booleans()), min_size=1, max_size=25)  # few values: ties
classes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=25)
groups = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=4)), min_size=1, max_size=8)


def arrays(scored: Pairs) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in scored]), np.array([positive for _, positive in scored], bool)


@given(pairs)
def test_auc_counts_pairs_won(scored: Pairs) -> None:
    duels = [(a > b) + (a == b) / 2 for a, up in scored if up for b, down in scored if not down]
    found = auc(*arrays(scored))
    assert math.isnan(found) if not duels else found == pytest.approx(sum(duels) / len(duels))


@given(pairs)
def test_ap_sums_precision_over_thresholds(scored: Pairs) -> None:
    positives = sum(positive for _, positive in scored)
    expected = 0.0
    for threshold in {score for score, _ in scored}:
        chosen = [positive for score, positive in scored if score >= threshold]
        joined = sum(positive for score, positive in scored if score == threshold)
        expected += sum(chosen) / len(chosen) * joined / max(positives, 1)
    found = ap(*arrays(scored))
    assert math.isnan(found) if not positives else found == pytest.approx(expected)


@given(groups)
def test_ranks_average_over_every_order_of_ties(asked: list[tuple[int, list[int]]]) -> None:
    score = np.array([value for own, others in asked for value in (own, *others)], float)
    positive = np.array([first for _, others in asked for first in (True, *[False] * len(others))])
    expected = []
    for own, others in asked:
        best, worst = 1 + sum(o > own for o in others), 1 + sum(o >= own for o in others)
        expected += [(best + worst) / 2] if others else []
    found = rank_positives(score, positive)
    assert found.tolist() == expected
    if expected:
        assert mrr(found) == pytest.approx(sum(1 / rank for rank in expected) / len(expected))
        assert hits_at_k(found, 2) == pytest.approx(sum(rank <= 2 for rank in expected) / len(expected))


@given(classes)
def test_accuracy_and_f1_count_class_by_class(answers: list[tuple[int, int]]) -> None:
    said, true = (np.array(column) for column in zip(*answers, strict=True))
    scores = []
    for label in {label for answer in answers for label in answer}:
        hit = sum(s == label == t for s, t in answers)
        wrong = sum(s == label != t for s, t in answers)
        missed = sum(s != label == t for s, t in answers)
        scores.append(2 * hit / (2 * hit + wrong + missed))
    assert macro_f1(said, true) == pytest.approx(sum(scores) / len(scores))
    assert accuracy(said, true) == pytest.approx(sum(s == t for s, t in answers) / len(answers))


def test_errors_weigh_all_numbers_equally() -> None:
    said, true = np.array([[1.0, 2.0], [0.0, 0.0]], np.float32), np.array([[1.0, 0.0], [0.0, -1.0]])
    found = sum_errors(said, true)
    assert mse([found]) == (0 + 4 + 0 + 1) / 4
    assert mae([found, found._replace(numbers=4, absolute=0.0)]) == (0 + 2 + 0 + 1) / 8


@pytest.mark.parametrize("rows", [1, 17, 40_000])
def test_errors_have_units_and_fill_missing_predictions(rows: int) -> None:
    draw = np.random.default_rng()
    said, true = draw.normal(size=(rows, 3)).astype(np.float32), draw.normal(size=(rows, 3))
    said[draw.random(said.shape) < 0.3] = np.nan
    units, otherwise = draw.random(3) + 1, draw.normal(size=3)
    found = sum_errors(said, true, units=units, fill_value=otherwise)
    off = (np.where(np.isnan(said), otherwise, said) - true) * units
    assert found.numbers == off.size
    assert found.squares == pytest.approx((off**2).sum(), rel=1e-12)
    assert found.absolute == pytest.approx(np.abs(off).sum(), rel=1e-12)
    assert np.isnan(said).any() == math.isnan(sum_errors(said, true).squares)


def test_errors_are_bit_identical_on_any_number_of_threads() -> None:
    said, true = np.random.default_rng().normal(size=(2, 90_000, 2))
    threads, found = torch.get_num_threads(), set()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            found.add(sum_errors(said, true))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


@pytest.mark.parametrize("sizes", [[5], [20] * 9, [1] * 7, [3, 0, 300, 1], [200] * 3, [4, 20_000]])
@pytest.mark.parametrize("columns", [1, 2, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_of_snapshots_are_those_of_each_alone(dtype: type, columns: int, sizes: list[int]) -> None:
    draw = np.random.default_rng(0)
    said, true = draw.normal(size=(2, sum(sizes), columns))
    said, units = said.astype(dtype), draw.random(columns) + 1
    ends = np.cumsum([0, *sizes])
    expected = [
        sum_errors(said[a:b], true[a:b], units=units)
        for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    found = sum_snapshot_errors(said, true, sizes, units=units)
    assert (found.numbers, mse([found]), mae([found])) == (said.size, mse(expected), mae(expected))


def test_metrics_without_examples_are_nan() -> None:
    nothing = np.empty(0)
    for metric in (accuracy, macro_f1):
        assert math.isnan(metric(nothing, nothing))
    for error in (mse, mae):
        assert math.isnan(error([]))
        assert math.isnan(error([sum_errors(nothing, nothing)]))
    assert math.isnan(auc(nothing, nothing.astype(bool)))
    assert math.isnan(ap(nothing, nothing.astype(bool)))
    assert math.isnan(mrr(nothing))
    assert math.isnan(hits_at_k(nothing, 1))


def test_auc_needs_positives_and_negatives() -> None:
    score = np.array([1.0, 2.0])
    assert math.isnan(auc(score, np.array([True, True])))
    assert math.isnan(auc(score, np.array([False, False])))
    assert ap(score, np.array([True, True])) == 1
    assert math.isnan(ap(score, np.array([False, False])))
    assert len(rank_positives(score, np.array([True, True]))) == 0


@pytest.mark.parametrize("broken", [0, 1])
def test_nan_score_gives_nan_metrics(broken: int) -> None:
    score, positive = np.array([1.0, 0.5, 2.0, 1.0]), np.array([True, False, True, False])
    score[broken] = math.nan
    rank = rank_positives(score, positive)
    assert np.isnan(rank).tolist() == [True, False]
    for found in (auc(score, positive), ap(score, positive), mrr(rank), hits_at_k(rank, 1)):
        assert math.isnan(found)


def test_counts_do_not_overflow() -> None:
    number = 70_000  # its square does not fit into 32 bits
    score = np.arange(2 * number, dtype=np.float32)
    assert auc(score, score >= number) == 1
