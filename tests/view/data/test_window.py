from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from strobe.errors import InputError
from strobe.ops.sparse.normalize import Norm
from strobe.ops.sparse.spmm import Sparse
from strobe.view import WindowData
from tests.support.dense import Dense, window_matrix
from tests.support.graphs import AWKWARD
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, with_inputs

NORMS: tuple[Norm, ...] = get_args(Norm)


def dense(matrix: Sparse) -> Dense:
    out = np.zeros((matrix.num_rows, matrix.num_cols))
    values = 1.0 if matrix.weight is None else matrix.weight.numpy()
    np.add.at(out, (matrix.rows.numpy(), matrix.col.numpy()), values)
    return out


def changing(dtype: torch.dtype = torch.float64, **changes: bool) -> WindowData:
    return WindowData(with_inputs(replace(CHANGING, **changes).build()), dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AWKWARD_GRAPHS)
def test_features_are_in_order_of_time_and_node(name: str) -> None:
    graph = AWKWARD_GRAPHS[name]
    cells = WindowData(graph)
    assert cells.x.shape == (graph.num_cells, INPUTS)
    assert cells.x.dtype == torch.float32
    for t, snapshot in enumerate(graph):
        assert snapshot.x is not None
        assert cells.x[cells.rows(t)].tolist() == snapshot.x.tolist()
    assert (cells.num_cells, cells.num_snapshots, cells.num_features) == (graph.num_cells, len(graph), INPUTS)


def test_graph_without_features_is_refused() -> None:
    cells = WindowData(CHANGING.build())
    assert cells.num_features == 0
    with pytest.raises(InputError, match="with_features"):
        _ = cells.x


@pytest.mark.parametrize("name", AWKWARD_GRAPHS)
@pytest.mark.parametrize("norm", NORMS)
def test_window_matrix_is_block_diagonal(name: str, norm: Norm) -> None:
    matrix = WindowData(AWKWARD_GRAPHS[name], dtype=torch.float64).matrix(norm)
    expected = window_matrix(norm, AWKWARD[name])
    np.testing.assert_allclose(dense(matrix), expected, rtol=1e-12)
    np.testing.assert_allclose(dense(matrix.transposed), expected.T, rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_undirected_matrices_are_symmetric_except_means(norm: Norm) -> None:
    matrix = changing(directed=False).matrix(norm)
    assert (matrix.transposed is matrix) == (norm in ("gcn", "sum", "loops", "sym"))
    np.testing.assert_allclose(dense(matrix.transposed), dense(matrix).T, rtol=1e-12)
    assert not changing(directed=True).matrix(norm).symmetric


@pytest.mark.parametrize("norm", NORMS)
def test_aggregate_of_inputs_is_cached_without_a_matrix(norm: Norm) -> None:
    cells = changing()
    first = cells.aggregate_input(cells.x, norm)
    np.testing.assert_allclose(first.numpy(), window_matrix(norm, CHANGING) @ cells.x.numpy(), rtol=1e-12)
    assert cells.aggregate_input(cells.x, norm) is first
    assert not cells._matrices


def test_single_snapshots_have_their_features_matrices_and_nodes() -> None:
    cells = changing()
    assert len(cells.single) == cells.num_snapshots
    for t, alone in enumerate(cells.single):
        rows = cells.rows(t)
        assert torch.equal(alone.x, cells.x[rows])
        assert dense(alone.matrix("gcn")).tolist() == dense(cells.matrix("gcn"))[rows, rows].tolist()
        assert alone.sequences.slots.tolist() == CHANGING.present(t)
        assert alone.sequences.num_slots == CHANGING.num_nodes
        assert alone.dtype == cells.dtype
        assert alone.single == (alone,)
    assert cells.single is cells.single


def test_slots_are_node_ids_in_slices_and_subsets_too() -> None:
    graph = with_inputs(CHANGING.build())
    late = WindowData(graph[3:].subset([1, 3, 5]))
    assert late.sequences.num_slots == CHANGING.num_nodes
    assert late.sequences.slots.tolist() == [1, 3, 5] * 3
    assert torch.equal(late.x, WindowData(graph).x[[8, 10, 12, 13, 15, 16, 18, 20, 22]])
