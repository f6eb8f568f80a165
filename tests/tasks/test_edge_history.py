from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph import DynamicGraph, from_edges
from strobe.tasks.edge_history import EdgeHistory, append_run, fit_logistic_regression, predict_log_odds
from tests.support.graphs import AWKWARD

# 0 -> 1 in snapshots 0 and 1, 1 -> 2 in 1, twice; 2 -> 0 in 3. Node 3 is present at first only.
EDGES = [[[0], [1]], [[0, 1, 1], [1, 2, 2]], [[], []], [[2], [0]]]
NODES = [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
NEVER = [0.0, 0.0, 0.0, 0.0]


def graph(directed: bool = True) -> DynamicGraph:
    return from_edges([np.array(edges, np.int64) for edges in EDGES], nodes=NODES, num_nodes=4, directed=directed)


def features(read: DynamicGraph, t: int, src: int, dst: int) -> list[float]:
    row: list[float] = EdgeHistory(read).pair_features(read[t], np.array([src]), np.array([dst]))[0].tolist()
    return row


@pytest.mark.parametrize(
    ("t", "pair", "expected"),
    [
        (0, (0, 1), [1, 1, np.log(2), 1]),
        (1, (0, 1), [1, 1, np.log(3), 1]),
        (3, (0, 1), [0, 1, np.log(3), 1 / 3]),
        (0, (1, 2), NEVER),  # it comes later
        (1, (1, 2), [1, 1, np.log(2), 1]),  # parallel edges count once
        (2, (2, 0), NEVER),
        (3, (2, 0), [1, 1, np.log(2), 1]),
        (3, (0, 2), NEVER),  # the other way round
    ],
)
def test_features_of_a_pair_have_presence_count_and_recency(
    t: int, pair: tuple[int, int], expected: list[float]
) -> None:
    assert features(graph(), t, *pair)[:4] == pytest.approx(expected)
    assert features(graph(), t, *reversed(pair))[4:8] == pytest.approx(expected)


def test_features_end_with_degrees_of_both_ends() -> None:
    # In snapshot 1 node 1 has one edge in, from 0, and two out, to 2.
    assert features(graph(), 1, 1, 2)[8:] == pytest.approx(np.log1p([1, 2, 2, 0]).tolist())


def test_undirected_features_do_not_depend_on_the_order() -> None:
    both = graph(directed=False)
    assert (
        features(both, 1, 0, 1) == features(both, 1, 1, 0) == pytest.approx([1, 1, np.log(3), 1, np.log(2), np.log(4)])
    )
    assert features(both, 3, 0, 2)[:4] == features(both, 3, 2, 0)[:4] == pytest.approx([1, 1, np.log(2), 1])


@pytest.mark.parametrize("awkward", AWKWARD)
@pytest.mark.parametrize("directed", [True, False])
def test_awkward_graphs_have_a_history(awkward: str, directed: bool) -> None:
    built = replace(AWKWARD[awkward], directed=directed).build()
    known = EdgeHistory(built)
    for snapshot in built:
        every = np.arange(snapshot.num_nodes)
        rows = known.pair_features(snapshot, every, every[::-1])
        assert rows.shape == (len(every), 12 if directed else 6)
        assert bool(np.isfinite(rows).all())


@pytest.mark.parametrize("directed", [True, False])
def test_updated_history_equals_one_built_at_once(directed: bool) -> None:
    random = np.random.default_rng(3)
    edges = [random.integers(0, 5 + t, (2, 0 if t % 7 == 4 else 3 * (30 - t))) for t in range(20)]
    until = [from_edges(edges[: t + 1], num_nodes=5 + t, directed=directed) for t in range(20)]
    growing, num_runs = EdgeHistory(until[3]), set()
    for stop in range(4, 20):
        growing.update(until[stop])
        growing.update(until[stop])  # nothing new
        num_runs.add(len(growing._runs))
        whole = EdgeHistory(until[stop])
        for snapshot in until[stop]:
            src, dst = (random.integers(0, snapshot.num_nodes, 200) for _ in range(2))
            assert (growing.pair_features(snapshot, src, dst) == whole.pair_features(snapshot, src, dst)).all()
    assert max(num_runs) > 2


def test_fit_recovers_coefficients() -> None:
    rng = np.random.default_rng(0)
    x, beta = rng.normal(size=(40_000, 2)), np.array([0.5, 2.0, -1.0])
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-predict_log_odds(x, beta)))).astype(np.float64)
    fitted = fit_logistic_regression([x[:10], x[10:]], [y[:10], y[10:]])
    np.testing.assert_allclose(fitted, beta, atol=0.06)


def test_separable_or_constant_features_have_finite_coefficients() -> None:
    fitted = fit_logistic_regression([np.array([[0.0, 3.0], [1.0, 3.0]])], [np.array([0.0, 1.0])])
    assert bool(np.isfinite(fitted).all())
    assert fitted[1] > 1
    assert bool(np.isfinite(fit_logistic_regression([np.zeros((3, 2))], [np.ones(3)])).all())


@given(st.lists(st.lists(st.integers(), max_size=9), max_size=40))
def test_runs_keep_order_and_halve_in_length(arriving: list[list[int]]) -> None:
    runs: tuple[list[int], ...] = ()
    for new in arriving:
        runs = append_run(runs, new, list.__add__)
    assert [item for run in runs for item in run] == [item for new in arriving for item in new]
    assert all(2 * len(after) < len(before) for before, after in pairwise(runs))
