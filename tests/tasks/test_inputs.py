from __future__ import annotations

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph import Degrees, PerCell, Standardized, from_edges
from strobe.graph.features import Concatenated, RandomSignature
from strobe.tasks.inputs import inputs_state, with_inputs
from strobe.tasks.split import Split

EDGES = [np.array([[0, 1], [1, 0]]), np.array([[0], [1]]), np.array([[1], [0]])]
SPLIT = Split.by_time(3)


def test_graph_without_features_uses_log_degrees() -> None:
    graph = with_inputs(from_edges(EDGES, num_nodes=2), SPLIT)
    assert isinstance(graph.features, Standardized)
    assert graph.features.inner == Degrees(log=True)


def test_features_are_standardized_over_training_cells() -> None:
    x = [np.array([[1.0], [3.0]]), np.array([[100.0], [200.0]]), np.array([[7.0], [7.0]])]
    graph = with_inputs(from_edges(EDGES, num_nodes=2, x=x), SPLIT)
    assert inputs_state(graph) == {"mean": [2.0], "std": [1.0]}
    np.testing.assert_allclose(graph[1].x, [[98.0], [198.0]])  # type: ignore[arg-type]


def test_other_number_of_features_is_refused() -> None:
    fitted = inputs_state(with_inputs(from_edges(EDGES, num_nodes=2), SPLIT))
    other = from_edges(EDGES, num_nodes=2, x=np.zeros((2, 1)))
    with pytest.raises(InputError, match=r"1 feature, .* 2 features"):
        with_inputs(other, SPLIT, fitted)


def test_concatenated_features_are_standardized_except_signatures() -> None:
    values = PerCell(np.array([[1.0], [3.0], [100.0], [200.0], [7.0], [7.0]]))
    graph = from_edges(EDGES, num_nodes=2).with_features(Concatenated((RandomSignature(3), values, Degrees(log=True))))
    read = with_inputs(graph, SPLIT)
    state = inputs_state(read)
    assert state["mean"][:4] == [0.0, 0.0, 0.0, 2.0]
    assert state["std"][:4] == [1.0, 1.0, 1.0, 1.0]
    for before, after in zip(graph, read, strict=True):
        assert before.x is not None
        assert after.x is not None
        assert after.x[:, :3].tolist() == before.x[:, :3].tolist()
        np.testing.assert_allclose(after.x[:, 3], before.x[:, 3] - 2)
    assert with_inputs(read, SPLIT).features == read.features
    assert with_inputs(graph, SPLIT, state) == read


def test_training_snapshots_without_nodes_are_refused() -> None:
    empty = np.empty((2, 0), np.int64)
    graph = from_edges([empty, *EDGES[1:]], num_nodes=2, nodes=[[], [0, 1], [0, 1]])
    with pytest.raises(InputError, match="no nodes"):
        with_inputs(graph, SPLIT)
