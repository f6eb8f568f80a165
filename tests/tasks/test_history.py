from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strobe.graph import DynamicGraph, from_edges
from strobe.tasks.history import History, fit_log_odds, log_odds
from tests.graphs import AWKWARD

# 0 -> 1 in snapshots 0 and 1, 1 -> 2 in 1, twice; 2 -> 0 in 3. Node 3 is present at first only.
EDGES = [[[0], [1]], [[0, 1, 1], [1, 2, 2]], [[], []], [[2], [0]]]
NODES = [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
NEVER = [0.0, 0.0, 0.0, 0.0]


def graph(directed: bool = True) -> DynamicGraph:
    return from_edges([np.array(edges, np.int64) for edges in EDGES], nodes=NODES, num_nodes=4, directed=directed)


def facts(read: DynamicGraph, t: int, src: int, dst: int) -> list[float]:
    found: list[float] = History(read).facts(read[t], np.array([src]), np.array([dst]))[0].tolist()
    return found


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
def test_facts_of_a_pair_are_whether_how_often_and_how_long_ago(
    t: int, pair: tuple[int, int], expected: list[float]
) -> None:
    assert facts(graph(), t, *pair)[:4] == pytest.approx(expected)
    assert facts(graph(), t, *reversed(pair))[4:8] == pytest.approx(expected)


def test_facts_end_with_the_degrees_of_source_and_destination() -> None:
    # In snapshot 1 node 1 has one edge in, from 0, and two out, to 2.
    assert facts(graph(), 1, 1, 2)[8:] == pytest.approx(np.log1p([1, 2, 2, 0]).tolist())


def test_in_an_undirected_graph_the_order_does_not_matter() -> None:
    both = graph(directed=False)
    assert facts(both, 1, 0, 1) == facts(both, 1, 1, 0) == pytest.approx([1, 1, np.log(3), 1, np.log(2), np.log(4)])
    assert facts(both, 3, 0, 2)[:4] == facts(both, 3, 2, 0)[:4] == pytest.approx([1, 1, np.log(2), 1])


def test_positions_are_those_of_the_snapshot_read() -> None:
    plain = from_edges([[[1], [3]], [[1], [3]]], nodes=[[1, 3], [0, 1, 2, 3]], num_nodes=4)
    assert facts(plain, 0, 0, 1)[:4] == facts(plain, 0, 0, 1)[:4] == pytest.approx([1, 1, np.log(2), 1])
    assert facts(plain, 1, 1, 3)[:4] == pytest.approx([1, 1, np.log(3), 1])
    assert facts(plain, 1, 0, 1)[:4] == NEVER


@pytest.mark.parametrize("awkward", AWKWARD)
@pytest.mark.parametrize("directed", [True, False])
def test_awkward_graphs_have_a_history(awkward: str, directed: bool) -> None:
    built = replace(AWKWARD[awkward], directed=directed).build()
    known = History(built)
    for snapshot in built:
        every = np.arange(snapshot.num_nodes)
        found = known.facts(snapshot, every, every[::-1])
        assert found.shape == (len(every), 12 if directed else 6)
        assert bool(np.isfinite(found).all())


@pytest.mark.parametrize("directed", [True, False])
def test_snapshots_read_as_they_come_make_the_same_history(directed: bool) -> None:
    """While nodes come, too, and some snapshots have no edges."""
    drawn = np.random.default_rng(3)
    edges = [drawn.integers(0, 5 + t, (2, 0 if t % 7 == 4 else 3 * (30 - t))) for t in range(20)]
    until = [from_edges(edges[: t + 1], num_nodes=5 + t, directed=directed) for t in range(20)]
    growing, num_runs = History(until[3]), set()
    for stop in range(4, 20):
        growing.read(until[stop])
        growing.read(until[stop])  # nothing has come since
        num_runs.add(len(growing._runs))
        whole = History(until[stop])
        for snapshot in until[stop]:
            src, dst = (drawn.integers(0, snapshot.num_nodes, 200) for _ in range(2))
            assert (growing.facts(snapshot, src, dst) == whole.facts(snapshot, src, dst)).all()
    assert max(num_runs) > 2


def test_the_fit_finds_the_coefficients_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    x, beta = rng.normal(size=(40_000, 2)), np.array([0.5, 2.0, -1.0])
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-log_odds(x, beta)))).astype(np.float64)
    found = fit_log_odds([x[:10], x[10:]], [y[:10], y[10:]])
    np.testing.assert_allclose(found, beta, atol=0.06)


def test_facts_that_tell_everything_or_nothing_have_finite_coefficients() -> None:
    told = fit_log_odds([np.array([[0.0, 3.0], [1.0, 3.0]])], [np.array([0.0, 1.0])])
    assert bool(np.isfinite(told).all())
    assert told[1] > 1
    assert bool(np.isfinite(fit_log_odds([np.zeros((3, 2))], [np.ones(3)])).all())
