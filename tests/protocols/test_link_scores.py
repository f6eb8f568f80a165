from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from strobe.protocols.link_scores import BASELINES, LinkHistory, aucs, classify, fit_classifier, hadamard
from strobe.protocols.next_links import FloatArray, LabeledPairs, snapshot_links
from tests.protocols.link_files import load_links, random_links


def test_scores_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    graph = load_links(tmp_path, random_links(0, num_nodes=14, num_links=15))
    pairs = np.array(list(combinations_with_replacement(range(graph.num_nodes), 2)))
    history = LinkHistory(graph.num_nodes)
    links: dict[tuple[int, int], int] = {}
    degree, neighbors = [0] * graph.num_nodes, [set[int]() for _ in range(graph.num_nodes)]
    active = [-1] * graph.num_nodes
    for t, snapshot in enumerate(graph):
        history.read(snapshot_links(snapshot))
        for u, v in snapshot_links(snapshot).tolist():
            links[u, v] = active[u] = active[v] = t
            degree[u] += 1
            degree[v] += 1
            if u != v:
                neighbors[u].add(v)
                neighbors[v].add(u)
        scores = history.scores(pairs)
        assert tuple(scores) == BASELINES
        for row, (u, v) in enumerate(pairs.tolist()):
            assert scores["edgebank"][row] == ((u, v) in links)
            assert scores["edgebank-window"][row] == (links.get((u, v)) == t)  # 15 % of 5 snapshots: the last one
            assert scores["popularity"][row] == degree[u] * degree[v]
            assert scores["common-neighbors"][row] == len(neighbors[u] & neighbors[v])
        keys = [
            (1, links[u, v], 0.0) if (u, v) in links else (0, 0, _activity(active[u], t) * _activity(active[v], t))
            for u, v in pairs.tolist()
        ]
        recent = scores["most-recent-first"]
        order = sorted(range(len(pairs)), key=lambda row: keys[row])
        assert all(
            recent[a] <= recent[b] and (keys[a] < keys[b]) == (recent[a] < recent[b]) for a, b in pairwise(order)
        )


def _activity(last: int, t: int) -> float:
    return 0.0 if last < 0 else 1 / (1.0 + t - last)


def random_features(seed: int, number: int = 40, width: int = 6) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(number, width))
    return features, (features[:, 0] + rng.normal(size=number) > 0).astype(float)


def auc_by_comparing_all(scores: FloatArray, labels: FloatArray) -> float:
    """The share of (positive, negative) pairs in the right order; ties count one half."""
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[labels > 0] for n in scores[labels == 0]]
    return sum(won) / len(won)


def test_the_classifier_minimizes_the_loss_of_liblinear() -> None:
    features, labels = random_features(0)
    x, sign = np.column_stack([features, np.ones(len(features))]), 2 * labels - 1

    def loss(weights: FloatArray) -> float:
        return float(weights @ weights / 2 + np.logaddexp(0, -sign * (x @ weights)).sum())

    expected = minimize(loss, np.zeros(x.shape[1]), tol=1e-10).x
    assert fit_classifier(features, labels) == pytest.approx(expected, abs=1e-4)


def test_the_classifier_is_that_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = random_features(1)
    peer = linear_model.LogisticRegression(solver="liblinear", tol=1e-10, max_iter=1000).fit(features, labels)
    ours = classify(features, fit_classifier(features, labels))
    assert ours == pytest.approx(peer.predict_proba(features)[:, 1], abs=1e-4)


def test_separable_pairs_have_finite_weights() -> None:
    features = np.repeat([[1000.0], [-1000.0]], 3, axis=0)
    assert np.isfinite(fit_classifier(features, np.repeat([1.0, 0.0], 3))).all()


def test_hadamard_products_ignore_the_order_of_ends() -> None:
    z = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    pairs = np.array([[0, 3], [2, 2]])
    products = hadamard(z)(pairs)
    assert np.array_equal(products, hadamard(z)(pairs[:, ::-1]))
    assert products[0] == pytest.approx(z[0].astype(float) * z[3])


@pytest.mark.parametrize("seed", range(3))
def test_micro_auc_is_over_all_pairs_and_macro_auc_the_mean_over_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, scores = [], []
    for size in (3, 8, 5):
        labels = np.repeat([1.0, 0.0], size)
        steps.append({"test": LabeledPairs(np.zeros((2 * size, 2), np.int64), labels)})
        scores.append({"test": rng.integers(0, 6, 2 * size) / 5})
    found = aucs(steps, scores, "test")
    per_step = [
        auc_by_comparing_all(each["test"], step["test"].labels) for each, step in zip(scores, steps, strict=True)
    ]
    assert found.per_step == pytest.approx(per_step)
    assert found.macro == pytest.approx(np.mean(per_step))
    labels = np.concatenate([step["test"].labels for step in steps])
    assert found.micro == pytest.approx(auc_by_comparing_all(np.concatenate([each["test"] for each in scores]), labels))
