from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from strobe.errors import FormatError, InputError
from strobe.graph import Degrees, DynamicGraph, FeatureProvider, PerCell, Standardized, Static, from_edges
from strobe.graph.features import Concatenated, RandomSignature, describe_provider, find_stored, from_recipe

# Four nodes: 0 -> 1 twice, 2 -> 1, 1 -> 1; node 3 alone. Then 3 -> 0 only, with node 1 absent.
EDGES = [[[0, 0, 2, 1], [1, 1, 1, 1]], [[3], [0]]]
NODES = [[0, 1, 2, 3], [0, 2, 3]]
IN_OUT = [[[0, 2], [4, 1], [0, 1], [0, 0]], [[1, 0], [0, 0], [0, 1]]]

SIGNATURES = ["-+--+++-----", "+-+++++++-++", "+---+-+-++-+", "----+-----++"]
SEEDED = ["+-+---+++-+-", "-+-+-----++-", "-+++++-++-+-", "-+-------+++"]


def _graph(**options: Any) -> DynamicGraph:
    return from_edges(EDGES, nodes=NODES, num_nodes=4, **options)


def _x(graph: DynamicGraph) -> list[Any]:
    return [np.array(snapshot.x) for snapshot in graph]


def test_degrees_count_arcs_in_and_out() -> None:
    for x, expected in zip(_x(_graph(x=Degrees())), IN_OUT, strict=True):
        assert x.tolist() == expected
        assert x.dtype == np.float32

    x = _x(_graph(x=Degrees(log=True)))[0]
    np.testing.assert_allclose(x[1], [math.log(5), math.log(2)], rtol=1e-6)
    assert x[3].tolist() == [0.0, 0.0]


def test_degrees_do_not_weigh_edges_and_see_both_ends_of_undirected_ones() -> None:
    weights = [[5.0, 5.0, 5.0, 5.0], [5.0]]
    x = _x(_graph(x=Degrees(), weights=weights, directed=False))[0]
    assert x.tolist() == [[2, 2], [4, 4], [1, 1], [0, 0]]
    assert _x(_graph(x=Degrees()).subset([1, 2]))[0].tolist() == [[2, 1], [0, 1]]


def test_standardizing_shifts_and_scales_each_column_by_hand() -> None:
    # In-degrees 0 4 0 0 | 1 0 0: mean 5/7, mean square 17/7. Out-degrees 2 1 1 0 | 0 0 1: mean 5/7, square 7/7.
    scaled = Standardized.fit(Degrees(), _graph())
    deviations = math.sqrt(17 / 7 - 25 / 49), math.sqrt(1 - 25 / 49)
    assert scaled.mean == pytest.approx((5 / 7, 5 / 7))
    assert scaled.std == pytest.approx(deviations)
    x = _x(_graph(x=scaled))[0]
    np.testing.assert_allclose(x[1], [(4 - 5 / 7) / deviations[0], (1 - 5 / 7) / deviations[1]], rtol=1e-6)
    assert x.dtype == np.float32


def test_standardizing_sees_only_the_snapshots_it_is_fitted_on() -> None:
    graph = _graph()
    scaled = Standardized.fit(Degrees(), graph[:1])
    assert scaled.mean == pytest.approx((1.0, 1.0))
    assert scaled.std == pytest.approx((math.sqrt(3), math.sqrt(0.5)))
    np.testing.assert_allclose(_x(graph.with_features(scaled))[1][0], [0.0, -math.sqrt(2)], atol=1e-6)


def test_standardizing_does_not_care_how_cells_are_spread_over_snapshots() -> None:
    offsets = np.array([0.0, 1.7e9, -1e12])  # large columns that vary little keep their variation
    values = np.random.default_rng(0).normal(3, 2, (40, 3)) + offsets
    graph = from_edges([np.empty((2, 0))] * 4, nodes=[range(n) for n in (7, 0, 1, 32)], num_nodes=40)
    scaled = Standardized.fit(PerCell(values), graph)
    assert scaled.mean == pytest.approx(values.mean(0).tolist())
    assert scaled.std == pytest.approx((values - offsets).std(0).tolist(), rel=1e-4)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 / 3, -1e15 / 7])
def test_a_constant_column_is_shifted_but_not_blown_up(constant: float) -> None:
    graph = from_edges([np.empty((2, 0))] * 3, num_nodes=7)
    scaled = Standardized.fit(Static(np.full((7, 1), constant)), graph)
    assert scaled.std == (1.0,)
    assert np.abs(_x(graph.with_features(scaled))[0]).max() <= abs(constant) * 1e-15


@pytest.mark.parametrize(
    ("carrier", "message"),
    [
        (Static(np.arange(4)), r"only rows of features can be standardized, not values of shape \(\)"),
        (Static(np.array([[1.0, 2.0], [1.0, np.nan], [1.0, 0.0], [1.0, 0.0]])), "snapshot 0: feature 1 is not finite"),
        (Static(np.array([[np.inf], [1.0], [2.0], [3.0]])), "snapshot 0: feature 0 is not finite"),
    ],
)
def test_values_without_a_mean_cannot_be_standardized(carrier: FeatureProvider, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Standardized.fit(carrier, _graph())


def test_nothing_can_be_standardized_over_no_cells() -> None:
    for empty in (_graph()[:0], _graph().subset([])):
        with pytest.raises(InputError, match="without cells"):
            Standardized.fit(Degrees(), empty)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.0,), (1.0,), "1 means and 1 deviations for 2 features"),
        ((0.0, 0.0), (1.0, 0.0), "feature 1 .* deviation 0.0"),
        ((0.0, 0.0), (-1.0, 1.0), "feature 0 .* deviation -1.0"),
        ((0.0, math.nan), (1.0, 1.0), "feature 1 .* mean nan"),
    ],
)
def test_invalid_mean_or_deviation_is_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Standardized(Degrees(), mean, std)


def test_a_signature_is_the_same_at_all_times_and_in_all_views() -> None:
    graph = _graph(x=RandomSignature(48))
    first, second = _x(graph)
    assert second.tolist() == first[[0, 2, 3]].tolist()
    assert _x(graph.subset([2, 3]))[0].tolist() == first[[2, 3]].tolist()
    assert _x(graph[1:])[0].tolist() == second.tolist()
    assert first.dtype == np.float32


def test_a_signature_is_the_same_on_every_machine() -> None:
    assert ["".join("-+"[int(v > 0)] for v in row) for row in _x(_graph(x=RandomSignature(12)))[0]] == SIGNATURES
    assert ["".join("-+"[int(v > 0)] for v in row) for row in _x(_graph(x=RandomSignature(12, seed=7)))[0]] == SEEDED


@pytest.mark.parametrize(("width", "seed"), [(64, 0), (200, 0), (64, 1), (65, 2**64 - 1)])
def test_signatures_are_of_length_one_per_number_and_nearly_orthogonal(width: int, seed: int) -> None:
    graph = from_edges([np.empty((2, 0))], num_nodes=500, x=RandomSignature(width, seed))
    x = _x(graph)[0].astype(np.float64)
    assert set(np.unique(x)) == {-1.0, 1.0}
    products = (x @ x.T / width)[~np.eye(500, dtype=bool)]
    assert np.abs(products).max() < 6 / math.sqrt(width)
    assert products.std() == pytest.approx(1 / math.sqrt(width), rel=0.05)
    assert np.abs((x.T @ x / 500)[~np.eye(width, dtype=bool)]).max() < 6 / math.sqrt(500)
    assert np.abs(x.mean(0)).max() < 6 / math.sqrt(500)


@pytest.mark.parametrize(("width", "seed"), [(0, 0), (-1, 0), (8, -1), (8, 1 << 64)])
def test_invalid_signatures_are_refused(width: int, seed: int) -> None:
    with pytest.raises(InputError, match="signature"):
        RandomSignature(width, seed)


def test_concatenated_providers_have_all_columns() -> None:
    per_cell = np.arange(14.0).reshape(7, 2)
    parts = (Degrees(), Standardized(PerCell(per_cell), (1.0, 0.0), (2.0, 1.0)), RandomSignature(3))
    graph = _graph().with_features(Concatenated(parts))
    alone = [_x(_graph().with_features(part)) for part in parts]
    for t, x in enumerate(_x(graph)):
        assert x.tolist() == np.concatenate([rows[t] for rows in alone], axis=1).tolist()
        assert x.shape[1:] == Concatenated(parts).shape == (7,)
    bottom = find_stored(Concatenated(parts))
    assert bottom is not None
    assert bottom.values.tolist() == per_cell.tolist()
    assert describe_provider(Concatenated(parts)) == ("7", "per cell")
    assert describe_provider(Concatenated(parts[::2])) == ("5", "derived")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "at least one provider"),
        ((Static(np.ones((4, 1))), Degrees(), PerCell(np.ones((7, 1)))), "2 providers with arrays"),
        ((Degrees(), Static(np.ones(4))), r"only rows of features can be concatenated, not values of shape \(\)"),
    ],
)
def test_invalid_concatenation_is_refused(parts: tuple[FeatureProvider, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Concatenated(parts)


@pytest.mark.parametrize("values", [np.array(3.0), np.array(["a"]), np.array([None]), [[1], [1, 2]], [1j]])
@pytest.mark.parametrize("kind", [Static, PerCell])
def test_stored_features_must_be_rows_of_numbers(kind: Any, values: Any) -> None:
    with pytest.raises(InputError, match="values"):
        kind(values)


@pytest.mark.parametrize(
    "carrier",
    [
        Degrees(),
        Degrees(log=True),
        Standardized(Degrees(log=True), (0.5, 1.5), (2.0, 3.0)),
        RandomSignature(8, 5),
        Concatenated((Degrees(log=True), RandomSignature(70))),
        Concatenated((Static(np.ones((4, 2))), RandomSignature(2))),
        Static(np.ones((4, 2))),
        PerCell(np.arange(14.0).reshape(7, 2)),
        Standardized(Standardized(PerCell(np.ones((7, 1))), (1.0,), (2.0,)), (0.0,), (4.0,)),
    ],
)
def test_recipe_and_array_restore_the_provider(carrier: FeatureProvider) -> None:
    bottom = find_stored(carrier)
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
