from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import get_laplacian

from strobe.errors import UnknownNameError
from strobe.ops.sparse.csr import Csr, expand_rows, row_pointers
from strobe.ops.sparse.normalize import Norm, normalize, normalize_on_device
from tests.support.dense import Arc, Dense, normalised

NORMS: tuple[Norm, ...] = get_args(Norm)


@st.composite
def arcs_between(draw: st.DrawFn) -> tuple[int, list[Arc]]:
    """A number of cells and arcs in order of row and column: parallel ones, self-loops, signed and zero weights."""
    rows = draw(st.integers(0, 5))
    cell = st.integers(0, rows - 1) if rows else st.nothing()
    weight = st.integers(-4, 4).map(lambda n: n / 2)
    arcs = draw(st.lists(st.tuples(cell, cell, weight), max_size=12)) if rows else []
    return rows, sorted(arcs, key=lambda arc: arc[:2])


def csr(rows: int, arcs: list[Arc], *, weighted: bool = True) -> Csr:
    row = np.array([arc[0] for arc in arcs], np.int64)
    weight = np.array([arc[2] for arc in arcs], np.float32) if weighted else None
    return row_pointers(np.bincount(row, minlength=rows)), np.array([arc[1] for arc in arcs], np.int32), weight


def dense(matrix: Csr) -> Dense:
    row_ptr, col, weight = matrix
    out = np.zeros((row_ptr.size - 1, row_ptr.size - 1))
    np.add.at(out, (expand_rows(row_ptr), col), 1.0 if weight is None else weight)
    return out


@pytest.mark.parametrize("norm", NORMS)
@settings(deadline=None, max_examples=40)
@given(arcs_between(), st.booleans())
def test_every_norm_is_its_dense_formula(norm: Norm, drawn: tuple[int, list[Arc]], weighted: bool) -> None:
    rows, arcs = drawn
    if not weighted:
        arcs = [(i, j, 1.0) for i, j, _ in arcs]
    matrix = normalize(norm, *csr(rows, arcs, weighted=weighted))
    np.testing.assert_allclose(dense(matrix), normalised(norm, rows, arcs), rtol=1e-12, atol=1e-15)
    row_ptr, col, weight = matrix
    assert (row_ptr.size, row_ptr[-1]) == (rows + 1, col.size)
    keys = expand_rows(row_ptr).astype(np.int64) * max(rows, 1) + col
    assert (np.diff(keys) >= 0).all()
    assert weight is None or (weight.dtype == np.float64 and weight.size == col.size)


@pytest.mark.parametrize("norm", NORMS)
@settings(deadline=None, max_examples=40)
@given(arcs_between(), st.booleans())
def test_a_device_makes_the_same_matrix(norm: Norm, drawn: tuple[int, list[Arc]], weighted: bool) -> None:
    block = csr(*drawn, weighted=weighted)
    row_ptr, col, weight = normalize(norm, *block)
    found = normalize_on_device(norm, block, dtype=torch.float64, device=torch.device("cpu"), symmetric=True)
    assert found.row_ptr.tolist() == row_ptr.tolist()
    assert found.col.tolist() == col.tolist()
    assert found.col.dtype == torch.int32
    assert found.symmetric
    assert (found.weight is None) == (weight is None)
    if found.weight is not None and weight is not None:
        np.testing.assert_allclose(found.weight.numpy(), weight, rtol=1e-14)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_graphs_without_arcs_have_nothing_but_the_loops_they_are_given(norm: Norm, rows: int) -> None:
    alone = np.eye(rows) if norm in ("gcn", "loops") else np.zeros((rows, rows))
    for weighted in (True, False):
        assert dense(normalize(norm, *csr(rows, [], weighted=weighted))).tolist() == alone.tolist()


def test_a_loop_that_is_there_keeps_its_weight_and_gets_no_second_one() -> None:
    looped = normalize("gcn", *csr(2, [(0, 0, 3.0), (1, 0, 1.0)]))
    assert looped[1].tolist() == [0, 0, 1]
    assert dense(looped)[0, 0] == pytest.approx(1.0)
    assert dense(looped)[1, 0] == pytest.approx(1 / np.sqrt(3 * 2))


def test_attention_sees_every_cell_itself_once_however_often_it_has_a_loop() -> None:
    row_ptr, col, weight = normalize("loops", *csr(2, [(0, 0, 3.0), (0, 0, 2.0), (0, 1, 1.0)]))
    assert (row_ptr.tolist(), col.tolist(), weight) == ([0, 2, 3], [0, 1, 1], None)


def test_weights_that_cancel_give_no_infinite_mean() -> None:
    assert dense(normalize("mean", *csr(2, [(0, 1, 1.0), (0, 1, -1.0)])))[0].tolist() == [0.0, 0.0]
    assert dense(normalize("gcn", *csr(1, [(0, 0, -4.0)]))).tolist() == [[-1.0]]


def test_what_is_given_is_not_changed() -> None:
    given_to_all = csr(3, [(0, 1, 1.0), (1, 1, 2.0), (2, 0, -1.0)])
    before = [array.copy() for array in given_to_all if array is not None]
    for norm in NORMS:
        normalize(norm, *given_to_all)
    assert all((a == b).all() for a, b in zip(before, given_to_all, strict=True) if b is not None)


@settings(deadline=None, max_examples=40)
@given(arcs_between(), st.booleans())
def test_gcn_is_that_of_pytorch_geometric(drawn: tuple[int, list[Arc]], weighted: bool) -> None:
    """For positive weights and at most one self-loop per cell: of several, PyTorch Geometric keeps only the last."""
    rows, arcs = drawn
    seen: set[int] = set()
    kept: list[Arc] = []
    for i, j, w in arcs:
        if i == j and i in seen:
            continue
        seen.update({i} if i == j else ())
        kept.append((i, j, abs(w) + 0.5 if weighted else 1.0))
    index = torch.tensor([[j, i] for i, j, _ in kept], dtype=torch.int64).reshape(-1, 2).t()
    weight = torch.tensor([w for _, _, w in kept], dtype=torch.float64) if weighted else None
    theirs = np.zeros((rows, rows))
    ends, values = gcn_norm(index, weight, rows, dtype=torch.float64)
    np.add.at(theirs, (ends[1].numpy(), ends[0].numpy()), values.numpy())
    ours = dense(normalize("gcn", *csr(rows, kept, weighted=weighted)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(arcs_between(), st.booleans())
def test_sym_is_the_laplacian_of_pytorch_geometric(drawn: tuple[int, list[Arc]], weighted: bool) -> None:
    """For positive weights: I - sym, also of directed graphs, whose degrees are outgoing ones."""
    rows, arcs = drawn
    arcs = [(i, j, abs(w) + 0.5 if weighted else 1.0) for i, j, w in arcs]
    index = torch.tensor([[j, i] for i, j, _ in arcs], dtype=torch.int64).reshape(-1, 2).t()
    weight = torch.tensor([w for _, _, w in arcs], dtype=torch.float64) if weighted else None
    theirs = np.zeros((rows, rows))
    ends, values = get_laplacian(index, weight, "sym", torch.float64, rows)
    assert values is not None
    np.add.at(theirs, (ends[1].numpy(), ends[0].numpy()), values.numpy())
    ours = dense(normalize("sym", *csr(rows, arcs, weighted=weighted)))
    np.testing.assert_allclose(np.eye(rows) - ours, theirs, rtol=1e-12, atol=1e-15)


def test_a_normalisation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"meen.*mean"):
        normalize("meen", np.array([0, 0]), np.empty(0, np.int32), None)  # type: ignore[arg-type]
