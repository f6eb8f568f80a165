from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route, attach_tokens, exchange
from strobe.exchange.halo import Arcs, HaloCells, HaloMatrix, find_halo, halo_product, split_columns
from strobe.exchange.transfer import FreshTransfer
from strobe.ops.sparse.spmm import Sparse, spmm_reference
from tests.support.exchange_cases import Table, tables
from tests.support.partitions import among_threads
from tests.support.ranks import as_threads

CPU = torch.device("cpu")
quick = settings(deadline=None, max_examples=60)

Read = tuple[int, int]  # a cell: snapshot, position among its present nodes
Dense = np.ndarray[Any, np.dtype[np.floating[Any]]]
Part = tuple[HaloMatrix, Route]


@st.composite
def read_tables(draw: st.DrawFn, /, **options: Any) -> tuple[Table, list[list[tuple[int, int]]]]:
    """A table, and (reader, read) of every arc of each snapshot, as positions, with parallel arcs and self loops."""
    table = draw(tables(max_nodes=6, max_snapshots=4, **options))
    arcs = []
    for present in table.nodes:
        position = st.integers(0, len(present) - 1) if len(present) else st.nothing()
        arcs.append(draw(st.lists(st.tuples(position, position), max_size=10)) if len(present) else [])
    return table, arcs


def own_rows(table: Table, rank: int) -> list[Read]:
    """The rank's cells in the order of its rows."""
    return [(t, k) for t, owner in enumerate(table.owners) for k, who in enumerate(owner.tolist()) if who == rank]


def all_halos(table: Table, arcs: list[list[tuple[int, int]]]) -> list[HaloCells]:
    columns: list[Arcs] = [tuple(np.array(each, np.int64).reshape(-1, 2).T) for each in arcs]  # type: ignore[misc]
    return [
        find_halo(rank, table.owners, iter(columns), [np.flatnonzero(owner == rank) for owner in table.owners], CPU)
        for rank in range(table.num_ranks)
    ]


def remote_cells(table: Table, arcs: list[list[tuple[int, int]]], rank: int) -> list[tuple[int, Read]]:
    """(owner, cell) of all remote cells that a rank reads, each once, by owner, snapshot and position."""
    cells = set()
    for t, (owner, pairs) in enumerate(zip(table.owners, arcs, strict=True)):
        for reader, read in pairs:
            if owner[reader] == rank and owner[read] not in (rank, -1):
                cells.add((int(owner[read]), (t, read)))
    return sorted(cells)


@quick
@given(read_tables(unowned=True))
def test_halo_receives_each_remote_row_once_in_order_of_owner_time_and_position_as_it_is_sent(
    example: tuple[Table, list[list[tuple[int, int]]]],
) -> None:
    table, arcs = example
    halos = all_halos(table, arcs)
    for rank, halo in enumerate(halos):
        received = remote_cells(table, arcs, rank)
        owners = [owner for owner, _ in received]
        assert halo.route.receive == {owner: owners.count(owner) for owner in set(owners)}
        assert halo.num_rows == len(received)
        assert len(halo.positions) == len(halo.places) == len(table.rows)
        for t, (positions, places) in enumerate(zip(halo.positions, halo.places, strict=True)):
            assert positions.tolist() == sorted(k for _, (at, k) in received if at == t)
            assert [received[place][1] for place in places.tolist()] == [(t, k) for k in positions.tolist()]
        for sender in set(range(table.num_ranks)) - {rank}:
            sent, rows = halos[sender].route.send.get(rank), own_rows(table, sender)
            expected = [cell for owner, cell in received if owner == sender]
            assert [rows[row] for row in ([] if sent is None else sent.tolist())] == expected
            assert (sent is None) == (not expected)


@among_threads(20)
@given(read_tables(unowned=True, min_ranks=2))
def test_rows_arrive_in_their_places_and_gradients_are_summed_at_their_owners(
    example: tuple[Table, list[list[tuple[int, int]]]],
) -> None:
    table, arcs = example
    halos = all_halos(table, arcs)

    def work(comm: Comm) -> tuple[Tensor, Tensor]:
        rows = own_rows(table, comm.rank)
        x = torch.tensor([[100.0 * t + k] for t, k in rows], dtype=torch.float64).reshape(-1, 1).requires_grad_()
        received, token = exchange(comm, halos[comm.rank].route, x, kind="halo")
        (received.sum() * (comm.rank + 1) + token.sum()).backward()
        assert comm.ledger.rows_sent["prepare", "halo"] == halos[comm.rank].route.rows_sent + len(received)
        assert x.grad is not None
        return received.detach(), x.grad

    for rank, (received, gradient) in enumerate(as_threads(work, table.num_ranks)):
        assert received[:, 0].tolist() == [100.0 * t + k for _, (t, k) in remote_cells(table, arcs, rank)]
        readers = [[cell for _, cell in remote_cells(table, arcs, other)] for other in range(table.num_ranks)]
        expected = [
            sum(other + 1 for other, cells in enumerate(readers) if cell in cells) for cell in own_rows(table, rank)
        ]
        assert gradient[:, 0].tolist() == expected


@pytest.mark.parametrize("unowned", [[], [2]])
def test_whole_snapshots_have_no_halo(unowned: list[int]) -> None:
    rows: list[list[int | None]] = [[-1 if v in unowned else rank for v in range(4)] for rank in (0, 1, 1)]
    table = Table(2, 4, rows)
    everybody = [[(a, b) for a in range(4) for b in range(4)]] * 3
    for halo in all_halos(table, everybody):
        assert halo.route.is_empty
        assert halo.num_rows == 0
        assert [len(part) for part in (*halo.positions, *halo.places)] == [0] * 6


def sparse(dense: Dense, *, weighted: bool = True) -> Sparse:
    """The nonzero entries."""
    rows, cols = np.nonzero(dense)
    ptr = np.searchsorted(rows, np.arange(len(dense) + 1))
    weight = dense[rows, cols] if weighted else None
    return Sparse.vstack([(ptr, cols, weight)], dense.shape[1], dtype=torch.float64)


def dense_of(matrix: Sparse) -> Tensor:
    return spmm_reference(matrix, torch.eye(matrix.num_cols, dtype=torch.float64))


def random_matrix(seed: int, rows: int, cols: int, *, weighted: bool = True) -> Dense:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, cols)) < 0.4
    return mask * (rng.normal(size=(rows, cols)) if weighted else 1.0)


@among_threads(25)
@given(st.integers(0, 5), st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_split_columns_gives_own_and_remote_blocks(own: int, remote: int, weighted: bool, seed: int) -> None:
    dense = random_matrix(seed, own, own + remote, weighted=weighted)
    halo = split_columns(sparse(dense, weighted=weighted), own, symmetric=False)
    assert isinstance(halo.own, Sparse)
    assert isinstance(halo.remote, Sparse)
    whole = torch.from_numpy(dense)
    assert torch.equal(dense_of(halo.own), whole[:, :own])
    assert halo.rows.tolist() == [row for row in range(own) if dense[row, own:].any()]
    assert torch.equal(dense_of(halo.remote), whole[halo.rows, own:])
    assert (halo.own.num_cols, halo.remote.num_cols) == (own, remote)
    assert (halo.own.weight is None) == (halo.remote.weight is None) == (not weighted)
    assert torch.equal(dense_of(halo.own.transposed), whole[:, :own].t())


def test_own_block_of_a_symmetric_matrix_is_its_own_transpose() -> None:
    dense = np.array([[0.0, 2.0, 1.0], [2.0, 1.0, 0.0]])
    halo = split_columns(sparse(dense), 2, symmetric=True)
    assert halo.own.transposed is halo.own
    assert halo.remote.transposed is not halo.remote


@st.composite
def shared_products(draw: st.DrawFn, /) -> tuple[list[int], list[Part], Dense]:
    """Owner of every row of a square matrix, the part and route of each rank, and the matrix."""
    num_ranks = draw(st.integers(2, 3))
    owners = draw(st.lists(st.integers(0, num_ranks - 1), max_size=8))
    dense = random_matrix(draw(st.integers(0, 99)), len(owners), len(owners))
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


@among_threads(25)
@given(shared_products())
def test_halo_product_and_gradient_equal_those_of_the_whole_matrix(
    example: tuple[list[int], list[Part], Dense],
) -> None:
    owners, parts, dense = example
    generator = torch.Generator().manual_seed(0)
    x, d_out = (torch.randn(len(owners), 2, dtype=torch.float64, generator=generator) for _ in range(2))
    own = [[row for row, owner in enumerate(owners) if owner == rank] for rank in range(len(parts))]

    def work(comm: Comm) -> tuple[Tensor, Tensor]:
        rows = x[own[comm.rank]].requires_grad_()
        matrix, route = parts[comm.rank]
        out, token = halo_product(FreshTransfer(comm, route, "halo"), matrix, rows)
        assert comm.ledger.rows_sent["prepare", "halo"] == route.rows_sent
        attach_tokens((out * d_out[own[comm.rank]]).sum(), [token]).backward()
        assert comm.ledger.rows_sent["prepare", "halo"] == route.rows_sent + route.rows_received
        assert rows.grad is not None
        return out.detach(), rows.grad

    whole = torch.from_numpy(dense)
    for rank, (out, gradient) in enumerate(as_threads(work, len(parts))):
        torch.testing.assert_close(out, (whole @ x)[own[rank]], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient, (whole.t() @ d_out)[own[rank]], rtol=1e-12, atol=1e-12)
