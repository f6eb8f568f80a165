from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route, tied
from strobe.exchange.delivery import FreshRows
from strobe.exchange.halo_product import HaloMatrix, halo_product, split_columns
from strobe.ops.sparse import Sparse, spmm_reference
from tests.placed import among_threads
from tests.ranks import as_threads

Dense = np.ndarray[Any, np.dtype[np.floating[Any]]]
Part = tuple[HaloMatrix, Route]
sparing = among_threads(25)


def sparse(dense: Dense, *, weighted: bool = True) -> Sparse:
    """The entries that are not 0, row by row; unweighted ones are all ones."""
    rows, cols = np.nonzero(dense)
    ptr = np.searchsorted(rows, np.arange(len(dense) + 1))
    weight = dense[rows, cols] if weighted else None
    return Sparse.stacked([(ptr, cols, weight)], dense.shape[1], dtype=torch.float64)


def dense_of(matrix: Sparse) -> Tensor:
    return spmm_reference(matrix, torch.eye(matrix.num_cols, dtype=torch.float64))


def drawn_matrix(seed: int, rows: int, cols: int, *, weighted: bool = True) -> Dense:
    rng = np.random.default_rng(seed)
    there = rng.random((rows, cols)) < 0.4
    return there * (rng.normal(size=(rows, cols)) if weighted else 1.0)


@sparing
@given(st.integers(0, 5), st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_a_matrix_is_cut_into_what_is_own_and_what_is_far(own: int, far: int, weighted: bool, seed: int) -> None:
    dense = drawn_matrix(seed, own, own + far, weighted=weighted)
    cut = split_columns(sparse(dense, weighted=weighted), own, symmetric=False)
    assert isinstance(cut.own, Sparse)
    assert isinstance(cut.far, Sparse)
    whole = torch.from_numpy(dense)
    assert torch.equal(dense_of(cut.own), whole[:, :own])
    assert cut.rows.tolist() == [row for row in range(own) if dense[row, own:].any()], "only rows that read others"
    assert torch.equal(dense_of(cut.far), whole[cut.rows, own:])
    assert (cut.own.num_cols, cut.far.num_cols) == (own, far)
    assert (cut.own.weight is None) == (cut.far.weight is None) == (not weighted)
    assert torch.equal(dense_of(cut.own.transposed), whole[:, :own].t())


def test_what_is_own_of_a_symmetric_matrix_is_its_own_transpose() -> None:
    dense = np.array([[0.0, 2.0, 1.0], [2.0, 1.0, 0.0]])
    cut = split_columns(sparse(dense), 2, symmetric=True)
    assert cut.own.transposed is cut.own
    assert cut.far.transposed is not cut.far


@st.composite
def shared_products(draw: st.DrawFn, /) -> tuple[list[int], list[Part], Dense]:
    """The owner of every row of a square matrix, its parts with what travels for them, and the matrix."""
    num_ranks = draw(st.integers(2, 3))
    owners = draw(st.lists(st.integers(0, num_ranks - 1), max_size=8))
    dense = drawn_matrix(draw(st.integers(0, 99)), len(owners), len(owners))
    parts = []
    own = [[row for row, owner in enumerate(owners) if owner == rank] for rank in range(num_ranks)]
    reads = [
        [[col for col in own[other] if dense[own[rank], col].any()] for other in range(num_ranks)]
        for rank in range(num_ranks)
    ]
    for rank in range(num_ranks):
        others = [other for other in range(num_ranks) if other != rank]
        send = {to: torch.tensor([own[rank].index(row) for row in reads[to][rank]]) for to in others if reads[to][rank]}
        receive = {source: len(reads[rank][source]) for source in others if reads[rank][source]}
        columns = own[rank] + [col for source in others for col in reads[rank][source]]
        matrix = sparse(dense[np.ix_(own[rank], columns)].reshape(len(own[rank]), len(columns)))
        parts.append((split_columns(matrix, len(own[rank]), symmetric=False), Route(send, receive)))
    return owners, parts, dense


@sparing
@given(shared_products())
def test_the_product_on_ranks_is_that_of_the_whole_and_so_is_its_gradient(
    drawn: tuple[list[int], list[Part], Dense],
) -> None:
    owners, parts, dense = drawn
    generator = torch.Generator().manual_seed(0)
    x, towards = (torch.randn(len(owners), 2, dtype=torch.float64, generator=generator) for _ in range(2))
    own = [[row for row, owner in enumerate(owners) if owner == rank] for rank in range(len(parts))]

    def work(comm: Comm) -> tuple[Tensor, Tensor]:
        mine = x[own[comm.rank]].requires_grad_()
        matrix, route = parts[comm.rank]
        out, token = halo_product(FreshRows(comm, route, "halo"), matrix, mine)
        assert comm.ledger.rows_sent["prepare", "halo"] == route.rows_sent
        tied((out * towards[own[comm.rank]]).sum(), [token]).backward()
        assert comm.ledger.rows_sent["prepare", "halo"] == route.rows_sent + route.rows_received
        assert mine.grad is not None
        return out.detach(), mine.grad

    whole = torch.from_numpy(dense)
    for rank, (out, gradient) in enumerate(as_threads(work, len(parts))):
        torch.testing.assert_close(out, (whole @ x)[own[rank]], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient, (whole.t() @ towards)[own[rank]], rtol=1e-12, atol=1e-12)
