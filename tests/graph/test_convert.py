from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from strobe.errors import InputError, StrobeError
from strobe.graph import (
    DynamicGraph,
    from_edges,
    from_pyg,
    from_scipy,
    from_signal,
    to_edges,
    to_pyg,
    to_scipy,
    to_signal,
)
from tests.support.graphs import AWKWARD, PlainGraph, dynamic_graphs


class DynamicSignal:
    """Stands in for PyTorch Geometric Temporal's ``DynamicGraphTemporalSignal``."""

    def __init__(
        self,
        edge_indices: Sequence[Any],
        edge_weights: Sequence[Any],
        features: Sequence[Any],
        targets: Sequence[Any],
        **kwargs: Sequence[Any],
    ) -> None:
        self.edge_indices, self.edge_weights = edge_indices, edge_weights
        self.features, self.targets = features, targets

    def __iter__(self) -> Iterator[Data]:
        for index, weight, x, y in zip(self.edge_indices, self.edge_weights, self.features, self.targets, strict=True):
            yield Data(
                x=None if x is None else torch.FloatTensor(np.array(x)),
                edge_index=None if index is None else torch.LongTensor(index),
                edge_attr=None if weight is None else torch.FloatTensor(np.array(weight)),
                y=_target(y),
            )


def _target(y: Any) -> torch.Tensor | None:
    if y is None:
        return None
    return torch.LongTensor(np.array(y)) if y.dtype.kind == "i" else torch.FloatTensor(np.array(y))


def _extras(graph: DynamicGraph) -> dict[str, Any]:
    """What edge arrays and matrices do not hold: who is present, what they carry."""
    return {
        "nodes": [snapshot.nodes for snapshot in graph],
        "num_nodes": graph.num_nodes,
        "x": None if graph.features is None else [snapshot.x for snapshot in graph],
        "y": None if graph.labels is None else [snapshot.y for snapshot in graph],
        "directed": graph.directed,
    }


@settings(deadline=None, max_examples=80)
@given(dynamic_graphs() | st.sampled_from(list(AWKWARD.values())))
def test_edge_arrays_matrices_and_pyg_data_out_and_in_again_give_the_same_graph(plain: PlainGraph) -> None:
    graph = plain.build()
    weights = [snapshot.edges()[2] for snapshot in graph] if graph.weighted else None
    assert from_edges(to_edges(graph), weights=weights, **_extras(graph)) == graph
    assert from_scipy(to_scipy(graph), weighted=graph.weighted, **_extras(graph)) == graph
    again = from_pyg(to_pyg(graph), num_nodes=graph.num_nodes, directed=graph.directed)
    assert (again if len(graph) else replace(again, storage=graph.storage)) == graph


@settings(deadline=None, max_examples=60)
@given(dynamic_graphs(everyone=True, min_snapshots=1))
def test_a_signal_out_and_in_again_gives_the_same_graph_with_weights(plain: PlainGraph) -> None:
    """Every edge of a signal has a weight: 1 where the graph had none."""
    signal = to_signal(plain.build(), DynamicSignal)
    if not plain.weighted:
        ones = [replace(shot, edges=[(u, v, 1.0) for u, v, _ in shot.edges]) for shot in plain.snapshots]
        plain = replace(plain, weighted=True, snapshots=ones)
    assert from_signal(signal, num_nodes=plain.num_nodes, directed=plain.directed) == plain.build()


@pytest.mark.parametrize(
    ("features", "targets"), [(np.ones((5, 1)), None), (None, np.ones(5)), (np.ones((5, 1)), np.ones(5))]
)
def test_a_signal_has_as_many_nodes_as_it_has_features_or_targets(features: Any, targets: Any) -> None:
    signal = DynamicSignal([np.array([[0], [1]]), None], [None, None], [features] * 2, [targets] * 2)
    graph = from_signal(signal)
    assert (graph.num_nodes, graph.num_cells, graph.num_edges) == (5, 10, 1)


def test_a_signal_of_edges_alone_has_as_many_nodes_as_its_largest_id_in_every_snapshot() -> None:
    signal = DynamicSignal([np.array([[0], [1]]), np.array([[4], [0]])], [None, None], [None, None], [None, None])
    assert from_signal(signal).cell_ptr.tolist() == [0, 5, 10]


def test_conventions_a_matrix_has_sources_as_rows_and_pyg_lists_them_first() -> None:
    graph = from_edges([[[0, 0], [1, 2]]], weights=[[5.0, 7.0]])
    assert to_scipy(graph)[0].toarray().tolist() == [[0, 5, 7], [0, 0, 0], [0, 0, 0]]
    data = to_pyg(graph)[0]
    assert data.edge_index.tolist() == [[0, 0], [1, 2]]
    assert data.edge_weight.tolist() == [5.0, 7.0]
    assert to_edges(graph)[0].tolist() == [[0, 0], [1, 2]]


def test_pyg_data_holds_present_nodes_only_and_their_ids() -> None:
    data = to_pyg(AWKWARD["features and labels per cell"].build())
    assert [item.n_id.tolist() for item in data] == [[0, 2], [], [0, 1, 2]]
    assert [item.num_nodes for item in data] == [2, 0, 3]
    assert data[0].edge_index.tolist() == [[1, 0], [0, 1]]
    assert data[0].x[1].tolist() == [0.5, 1.0]


def test_tensors_from_a_graph_can_be_written_without_changing_it() -> None:
    graph = from_edges([[[0], [1]]], weights=[[1.0]], x=np.ones((2, 1)))
    data = to_pyg(graph)[0]
    for tensor in (data.x, data.edge_weight, data.edge_index, data.n_id):
        tensor.zero_()
    assert graph == from_edges([[[0], [1]]], weights=[[1.0]], x=np.ones((2, 1)))


def test_pyg_rows_may_stand_in_any_order_of_ids() -> None:
    item = Data(
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        n_id=torch.tensor([7, 3, 5]),
        x=torch.tensor([[70.0], [30.0], [50.0]]),
        y=torch.tensor([0, 1, 2]),
    )
    graph = from_pyg([item])
    assert graph.num_nodes == 8
    assert graph[0].nodes.tolist() == [3, 5, 7]
    assert np.array(graph[0].x).ravel().tolist() == [30, 50, 70]
    assert np.array(graph[0].y).tolist() == [1, 2, 0]
    assert sorted(zip(*(ids.tolist() for ids in graph[0].edges()[:2]), strict=True)) == [(3, 5), (7, 3)]


def test_pyg_data_without_edges_or_with_a_column_of_weights_is_read() -> None:
    graph = from_pyg([Data(x=torch.ones(3, 1, requires_grad=True))])
    assert (graph.num_cells, graph.num_edges) == (3, 0)
    column = Data(edge_index=torch.tensor([[0], [1]]), edge_attr=torch.tensor([[2.5]]), num_nodes=2)
    assert from_pyg([column])[0].weight == np.float32(2.5)


def test_a_static_signal_has_the_same_edges_in_every_snapshot() -> None:
    rng = np.random.default_rng(0)
    features = [rng.normal(size=(4, 2)).astype(np.float32) for _ in range(3)]
    targets = [rng.normal(size=4).astype(np.float32) for _ in range(3)]
    index, weight = np.array([[0, 1, 2], [1, 2, 3]]), np.array([0.5, 1.5, 2.5])
    graph = from_signal(DynamicSignal([index] * 3, [weight] * 3, features, targets))
    assert graph == from_edges([index] * 3, weights=[weight.astype(np.float32)] * 3, x=features, y=targets)


def test_a_graph_whose_nodes_come_and_go_is_no_signal() -> None:
    with pytest.raises(InputError, match="snapshot 1 has 2 of 3 nodes"):
        to_signal(AWKWARD["a node that leaves and returns"].build(), DynamicSignal)


def test_one_number_per_node_is_one_feature_and_a_list_of_arrays_is_per_snapshot() -> None:
    edges = [[[0], [1]]] * 2
    assert np.array(from_edges(edges, x=[5.0, 6.0])[1].x).tolist() == [[5.0], [6.0]]
    assert np.array(from_edges(edges, x=[np.array([1, 2]), np.array([3, 4])])[1].x).tolist() == [[3.0], [4.0]]


def test_the_number_of_nodes_is_one_more_than_the_largest_id_of_edges_and_nodes() -> None:
    assert from_edges([[[0], [1]]]).num_nodes == 2
    assert from_edges([[[0], [1]]], nodes=[[0, 1, 6]]).num_nodes == 7
    assert from_edges([np.empty((2, 0))]).num_nodes == 0
    assert from_edges([]).num_nodes == 0
    assert from_scipy([sp.csr_array((3, 3))]).num_nodes == 3
    assert from_scipy([]).num_nodes == 0
    assert from_pyg([]).num_nodes == 0


ONE = [[[0], [1]]]
BAD_EDGES: dict[str, tuple[dict[str, Any], str]] = {
    "flat edges": ({"edges": [[0, 1, 2]]}, r"snapshot 0: .*shape \[2, E\], not \(3,\)"),
    "edges as rows of pairs": ({"edges": [[[0, 1], [1, 2], [2, 0]]]}, r"snapshot 0: .*not \(3, 2\)"),
    "ragged edges": ({"edges": [[[0, 1], [1]]]}, "snapshot 0: edges cannot be read"),
    "float edges": ({"edges": [*ONE, [[0.5], [1]]]}, "snapshot 1: edges must be integers, not float64 .*0.5"),
    "huge unsigned": ({"edges": [np.full((2, 1), 2**63, np.uint64)]}, "snapshot 0: edges contain 9223372036854775808"),
    "huge": ({"edges": [[[0], [2**62]]]}, "num_nodes must be .*4,611,686,018,427,387,905"),
    "nodes for some": ({"edges": ONE * 2, "nodes": [[0, 1]]}, "1 nodes for 2 snapshots"),
    "times for some": ({"edges": ONE * 2, "times": [1]}, "1 times for 2 snapshots"),
    "features for some": ({"edges": ONE * 2, "x": [np.ones((2, 1))]}, "1 x for 2 snapshots"),
}


@pytest.mark.parametrize("name", BAD_EDGES)
def test_bad_edge_arrays_are_refused_with_snapshot_and_value(name: str) -> None:
    options, message = BAD_EDGES[name]
    with pytest.raises(StrobeError, match=message):
        from_edges(**options)


def _matrix(entries: list[tuple[int, int, float]], size: int = 3) -> sp.coo_array:
    rows, cols, data = zip(*entries, strict=True)
    return sp.coo_array((np.array(data), (np.array(rows), np.array(cols))), shape=(size, size))


EYE = sp.eye_array(3)
BAD_MATRICES: dict[str, tuple[list[Any], bool, str]] = {
    "not square": ([sp.coo_array((2, 3))], True, r"snapshot 0: .*square.*\(2, 3\)"),
    "of two sizes": ([EYE, sp.eye_array(4)], True, r"snapshot 1: .*\(4, 4\), those before it \(3, 3\)"),
    "a vector": ([sp.coo_array([1.0, 2.0])], True, r"snapshot 0: .*square.*\(2,\)"),
    "no matrix": ([EYE, "text"], True, "snapshot 1: str cannot be read as a matrix|snapshot 1: .*square"),
    "NaN": ([_matrix([(0, 1, math.nan)])], True, "snapshot 0: entries must be finite, number 0 is nan"),
    "complex": ([sp.coo_array(np.eye(3) * 1j)], True, "snapshot 0: entries must be numbers, not complex128"),
    "one direction": ([EYE, _matrix([(0, 2, 1.0)])], False, "snapshot 1: .*between 0 and 2 is listed in one"),
    "two weights": ([_matrix([(0, 1, 1.5), (1, 0, 2.5)])], False, "between 0 and 1 is listed in one only with weight"),
    "one more parallel": ([_matrix([(0, 1, 1), (0, 1, 1), (1, 0, 1)])], False, "between 0 and 1"),
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_bad_matrices_are_refused_with_snapshot_and_value(name: str) -> None:
    matrices, directed, message = BAD_MATRICES[name]
    with pytest.raises(InputError, match=message):
        from_scipy(matrices, directed=directed)


def _data(**attributes: Any) -> Data:
    return Data(**{"edge_index": torch.tensor([[0, 1], [1, 0]]), "num_nodes": 2, **attributes})


BAD_DATA: dict[str, tuple[list[Data], bool, str]] = {
    "row beyond the nodes": ([_data(edge_index=torch.tensor([[0], [2]]))], True, "snapshot 0: edge_index contains 2"),
    "three rows": ([_data(edge_index=torch.zeros(3, 1, dtype=torch.long))], True, r"snapshot 0: .*not \(3, 1\)"),
    "float ids": ([_data(n_id=torch.tensor([0.5, 1.0]))], True, "snapshot 0: n_id must be integers"),
    "too few weights": ([_data(edge_weight=torch.ones(1))], True, r"snapshot 0: one weight per edge.*\(1,\)"),
    "wide weights": ([_data(edge_attr=torch.ones(2, 3))], True, r"snapshot 0: one weight per edge.*\(2, 3\)"),
    "weights for some": ([_data(edge_weight=torch.ones(2)), _data()], True, "snapshot 1 has no edge_weight"),
    "features for some": ([_data(), _data(x=torch.ones(2, 1))], True, "snapshot 0 has no x"),
    "bfloat16": ([_data(x=torch.ones(2, 1, dtype=torch.bfloat16))], True, "snapshot 0: features cannot be read"),
    "one direction": ([_data(edge_index=torch.tensor([[0], [1]]))], False, "snapshot 0: .*between 0 and 1"),
    "two weights": ([_data(edge_weight=torch.tensor([1.0, 2.0]))], False, "snapshot 0: .*between 0 and 1"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_pyg_data_are_refused_with_snapshot_and_value(name: str) -> None:
    items, directed, message = BAD_DATA[name]
    with pytest.raises(StrobeError, match=message):
        from_pyg(items, directed=directed)
