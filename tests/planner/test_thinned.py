"""Thinned graphs have the proportions of the whole one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.graph.synthetic import Social
from strobe.planner.thinned import thinned
from tests.engine.runs import small_graph

WHOLE = Social(nodes=3_000, snapshots=6, edges=9_000, away=0.3, communities=4, labels=True, seed=1).write()


def test_cells_have_as_many_arcs_as_in_the_whole_graph() -> None:
    thin = thinned(WHOLE, 600)
    assert thin.num_nodes == 600
    for few, all_of_them in zip(thin, WHOLE, strict=True):
        assert few.num_nodes / 600 == pytest.approx(all_of_them.num_nodes / 3_000, abs=0.07)
        assert few.num_arcs / few.num_nodes == pytest.approx(all_of_them.num_arcs / all_of_them.num_nodes, rel=0.01)
        assert few.in_degree.max() > 3 * few.in_degree.mean(), "some cells are read much more often than others"


def test_features_labels_times_and_kind_are_those_of_the_graph() -> None:
    thin = thinned(WHOLE, 600)
    assert (thin.directed, thin.weighted, thin.times) == (WHOLE.directed, WHOLE.weighted, WHOLE.times)
    assert thin.features is not None
    assert WHOLE.features is not None
    assert thin.features.shape == WHOLE.features.shape
    assert set(np.concatenate([each.y for each in thin])) <= set(np.concatenate([each.y for each in WHOLE]))


def test_the_same_seed_draws_the_same_nodes() -> None:
    assert thinned(WHOLE, 100, seed=3) == thinned(WHOLE, 100, seed=3)
    assert thinned(WHOLE, 100, seed=3) != thinned(WHOLE, 100, seed=4)


@pytest.mark.parametrize("nodes", [1, 40, 1_000])
@pytest.mark.parametrize("change", [{}, {"features": None}])
def test_hardly_anything_and_everything_can_be_left(nodes: int, change: dict[str, Any]) -> None:
    graph = small_graph() if not change else small_graph().with_features(None)
    thin = thinned(graph, nodes)
    assert (thin.num_nodes, len(thin)) == (min(nodes, 40), len(graph))
    assert (thin.features is None) == bool(change)
