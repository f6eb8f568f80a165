from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from strobe.errors import FormatError, InputError
from strobe.graph import Carrier, Degrees, DynamicGraph, PerCell, Standardised, Static, from_edges
from strobe.graph.features import from_recipe, given

# Four nodes: 0 -> 1 twice, 2 -> 1, 1 -> 1; node 3 alone. Then 3 -> 0 only, with node 1 absent.
EDGES = [[[0, 0, 2, 1], [1, 1, 1, 1]], [[3], [0]]]
NODES = [[0, 1, 2, 3], [0, 2, 3]]
IN_OUT = [[[0, 2], [4, 1], [0, 1], [0, 0]], [[1, 0], [0, 0], [0, 1]]]


def _graph(**options: Any) -> DynamicGraph:
    return from_edges(EDGES, nodes=NODES, num_nodes=4, **options)


def _x(graph: DynamicGraph) -> list[Any]:
    return [np.array(snapshot.x) for snapshot in graph]


def test_degrees_count_arcs_in_and_out() -> None:
    for x, expected in zip(_x(_graph(x=Degrees())), IN_OUT, strict=True):
        assert x.tolist() == expected
        assert x.dtype == np.float32


def test_log_degrees_are_the_logarithm_of_one_plus_the_degree() -> None:
    x = _x(_graph(x=Degrees(log=True)))[0]
    np.testing.assert_allclose(x[1], [math.log(5), math.log(2)], rtol=1e-6)
    assert x[3].tolist() == [0.0, 0.0]


def test_degrees_do_not_weigh_edges_and_see_both_ends_of_undirected_ones() -> None:
    weights = [[5.0, 5.0, 5.0, 5.0], [5.0]]
    x = _x(_graph(x=Degrees(), weights=weights, directed=False))[0]
    assert x.tolist() == [[2, 2], [4, 4], [1, 1], [0, 0]]


def test_degrees_of_a_subset_are_those_within_it() -> None:
    x = _x(_graph(x=Degrees()).subset([1, 2]))[0]
    assert x.tolist() == [[2, 1], [0, 1]]


def test_standardising_shifts_and_scales_each_column_by_hand() -> None:
    # In-degrees 0 4 0 0 | 1 0 0: mean 5/7, mean square 17/7. Out-degrees 2 1 1 0 | 0 0 1: mean 5/7, square 7/7.
    scaled = Standardised.fit(Degrees(), _graph())
    deviations = math.sqrt(17 / 7 - 25 / 49), math.sqrt(1 - 25 / 49)
    assert scaled.mean == pytest.approx((5 / 7, 5 / 7))
    assert scaled.std == pytest.approx(deviations)
    x = _x(_graph(x=scaled))[0]
    np.testing.assert_allclose(x[1], [(4 - 5 / 7) / deviations[0], (1 - 5 / 7) / deviations[1]], rtol=1e-6)
    assert x.dtype == np.float32


def test_standardising_sees_only_the_snapshots_it_is_fitted_on() -> None:
    graph = _graph()
    scaled = Standardised.fit(Degrees(), graph[:1])
    assert scaled.mean == pytest.approx((1.0, 1.0))
    assert scaled.std == pytest.approx((math.sqrt(3), math.sqrt(0.5)))
    np.testing.assert_allclose(_x(graph.with_features(scaled))[1][0], [0.0, -math.sqrt(2)], atol=1e-6)


def test_standardising_does_not_care_how_cells_are_spread_over_snapshots() -> None:
    values = np.random.default_rng(0).normal(3, 2, (40, 3))
    graph = from_edges([np.empty((2, 0))] * 4, nodes=[range(n) for n in (7, 0, 1, 32)], num_nodes=40)
    scaled = Standardised.fit(PerCell(values), graph)
    assert scaled.mean == pytest.approx(values.mean(0).tolist())
    assert scaled.std == pytest.approx(values.std(0).tolist())


@pytest.mark.parametrize("offset", [0.0, 1.7e9, -1e12])
def test_standardising_a_large_column_that_varies_little_keeps_its_variation(offset: float) -> None:
    values = offset + np.arange(8.0).reshape(8, 1)
    graph = from_edges([np.empty((2, 0))] * 2, nodes=[range(3), range(5)], num_nodes=5)
    assert Standardised.fit(PerCell(values), graph).std == pytest.approx((np.arange(8).std(),))


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 / 3, -1e15 / 7])
def test_a_constant_column_is_shifted_but_not_blown_up(constant: float) -> None:
    graph = from_edges([np.empty((2, 0))] * 3, num_nodes=7)
    scaled = Standardised.fit(Static(np.full((7, 1), constant)), graph)
    assert scaled.std == (1.0,)
    assert np.abs(_x(graph.with_features(scaled))[0]).max() <= abs(constant) * 1e-15


@pytest.mark.parametrize(
    ("carrier", "message"),
    [
        (Static(np.arange(4)), r"only rows of features can be standardised, not values of shape \(\)"),
        (Static(np.array([[1.0, 2.0], [1.0, np.nan], [1.0, 0.0], [1.0, 0.0]])), "snapshot 0: feature 1 is not finite"),
        (Static(np.array([[np.inf], [1.0], [2.0], [3.0]])), "snapshot 0: feature 0 is not finite"),
    ],
)
def test_what_has_no_mean_cannot_be_standardised(carrier: Carrier, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Standardised.fit(carrier, _graph())


def test_nothing_can_be_standardised_over_no_cells() -> None:
    for empty in (_graph()[:0], _graph().subset([])):
        with pytest.raises(InputError, match="without cells"):
            Standardised.fit(Degrees(), empty)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.0,), (1.0,), "1 means and 1 deviations for 2 features"),
        ((0.0, 0.0), (1.0, 0.0), "feature 1 .* deviation 0.0"),
        ((0.0, 0.0), (-1.0, 1.0), "feature 0 .* deviation -1.0"),
        ((0.0, math.nan), (1.0, 1.0), "feature 1 .* mean nan"),
    ],
)
def test_numbers_that_cannot_standardise_are_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Standardised(Degrees(), mean, std)


def test_static_rows_follow_the_nodes_and_per_cell_rows_the_cells() -> None:
    per_node, per_cell = np.arange(4.0)[:, None] * 10, np.arange(7.0)[:, None]
    assert [x.ravel().tolist() for x in _x(_graph().with_features(Static(per_node)))] == [[0, 10, 20, 30], [0, 20, 30]]
    assert [x.ravel().tolist() for x in _x(_graph().with_features(PerCell(per_cell)))] == [[0, 1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("values", [np.array(3.0), np.array(["a"]), np.array([None]), [[1], [1, 2]], [1j]])
@pytest.mark.parametrize("kind", [Static, PerCell])
def test_carriers_hold_rows_of_numbers_only(kind: Any, values: Any) -> None:
    with pytest.raises(InputError, match="values"):
        kind(values)


@pytest.mark.parametrize(
    "carrier",
    [
        Degrees(),
        Degrees(log=True),
        Standardised(Degrees(log=True), (0.5, 1.5), (2.0, 3.0)),
        Static(np.ones((4, 2))),
        PerCell(np.arange(14.0).reshape(7, 2)),
        Standardised(Standardised(PerCell(np.ones((7, 1))), (1.0,), (2.0,)), (0.0,), (4.0,)),
    ],
)
def test_a_recipe_and_its_array_rebuild_the_carrier(carrier: Carrier) -> None:
    bottom = given(carrier)
    again = from_recipe(carrier.recipe(), None if bottom is None else bottom.values)
    assert again is not None
    assert again.recipe() == carrier.recipe()
    assert again.shape == carrier.shape
    assert _graph().with_features(again) == _graph().with_features(carrier)


def test_a_recipe_without_its_array_or_of_an_unknown_kind_is_refused() -> None:
    assert from_recipe(None, None) is None
    with pytest.raises(FormatError, match="static values of this graph are missing"):
        from_recipe({"kind": "static"}, None)
    with pytest.raises(FormatError, match="unknown kind of features 'spectral'"):
        from_recipe({"kind": "spectral"}, None)
