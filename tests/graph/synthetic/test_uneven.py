from __future__ import annotations

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Uneven


def lengths(graph: DynamicGraph) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.bincount(np.concatenate([snapshot.nodes for snapshot in graph]), minlength=graph.num_nodes)


@pytest.mark.parametrize("spread", [0.0, 1.0, 15.0])
def test_totals_hold_exactly_at_any_spread(spread: float) -> None:
    graph = Uneven(
        cells=50_000, edges=20_000, snapshots=50, mean_length=20, length_spread=spread, edge_spread=40 * spread
    ).write()
    assert (graph.num_cells, graph.num_edges, graph.num_nodes) == (50_000, 20_000, 2_500)


def test_spreads_are_the_given_standard_deviations() -> None:
    made = Uneven(cells=400_000, edges=2_000_000, snapshots=400, mean_length=100, length_spread=20, edge_spread=500)
    graph = made.write()
    # The standard error of a standard deviation is s / sqrt(2 n): 1.8% for 400 snapshots, 0.8% for 4,000 nodes.
    assert made.edges_per_snapshot.std() == pytest.approx(500, rel=0.1)
    assert lengths(graph).std() == pytest.approx(20, rel=0.05)
    assert lengths(graph).mean() == 100


def test_without_spread_all_snapshots_and_sequences_are_alike() -> None:
    graph = Uneven(cells=20_000, edges=4_000, snapshots=20, mean_length=10, length_spread=0, edge_spread=0).write()
    assert [snapshot.num_edges for snapshot in graph] == [200] * 20
    assert (lengths(graph) == 10).all()
    # Nodes per snapshot: binomial(2,000, 1/2), standard deviation 22.
    assert [snapshot.num_nodes for snapshot in graph] == pytest.approx([1_000] * 20, abs=5 * 22)


def test_sequences_begin_and_end() -> None:
    graph = Uneven(cells=10_000, edges=0, snapshots=20, mean_length=5, length_spread=2).write()
    here = np.zeros((20, graph.num_nodes), bool)
    for snapshot in graph:
        here[snapshot.t, snapshot.nodes] = True
    turns = (here != np.roll(here, 1, axis=0)).sum(0)
    assert (turns <= 2).all()


def test_the_published_setting_is_the_default() -> None:
    made = Uneven()
    assert (made.cells, made.edges, made.snapshots) == (5_000_000, 2_000_000, 100)
    assert made.edges_per_snapshot.mean() == 20_000


@pytest.mark.parametrize(
    "tiny",
    [
        Uneven(cells=1, edges=0, snapshots=1, mean_length=1),
        Uneven(cells=2, edges=9, snapshots=1, mean_length=1),
        Uneven(cells=7, edges=0, snapshots=3, mean_length=3, length_spread=100),
        Uneven(cells=60, edges=30, snapshots=2, mean_length=1.5, edge_spread=1e9),
    ],
)
def test_tiny_graphs_hold_their_totals_too(tiny: Uneven) -> None:
    graph = tiny.write()
    assert (graph.num_cells, graph.num_edges) == (tiny.cells, tiny.edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": 0}, "cells must be a whole number of at least 1"),
        ({"mean_length": 101}, "mean_length must be a number from 1 to 100, not 101"),
        ({"edge_spread": -1.0}, "edge_spread must be a number of at least 0"),
        ({"length_spread": float("inf")}, "length_spread must be a number"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Uneven(**options)  # type: ignore[arg-type]


def test_edges_without_two_nodes_are_refused() -> None:
    with pytest.raises(OptionError, match="snapshot 0 is to have 5 edges but has 1 nodes"):
        Uneven(cells=1, edges=5, snapshots=1, mean_length=1).write()
