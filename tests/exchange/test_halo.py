from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import exchange
from strobe.exchange.halo import Arcs, Neighbours, neighbours
from tests.exchange.cases import Table, tables
from tests.placed import among_threads
from tests.ranks import as_threads

CPU = torch.device("cpu")
quick = settings(deadline=None, max_examples=60)

Read = tuple[int, int]  # a cell: snapshot, position among its present nodes


@st.composite
def read_tables(draw: st.DrawFn, /, **options: Any) -> tuple[Table, list[list[tuple[int, int]]]]:
    """A table, and (reader, read) of every arc of each snapshot, as positions; parallel ones and loops too."""
    table = draw(tables(max_nodes=6, max_snapshots=4, **options))
    arcs = []
    for present in table.nodes:
        position = st.integers(0, len(present) - 1) if len(present) else st.nothing()
        arcs.append(draw(st.lists(st.tuples(position, position), max_size=10)) if len(present) else [])
    return table, arcs


def own_rows(table: Table, rank: int) -> list[Read]:
    """The rank's cells in the order of its rows."""
    return [(t, k) for t, owner in enumerate(table.owners) for k, who in enumerate(owner.tolist()) if who == rank]


def found(table: Table, arcs: list[list[tuple[int, int]]]) -> list[Neighbours]:
    columns: list[Arcs] = [tuple(np.array(each, np.int64).reshape(-1, 2).T) for each in arcs]  # type: ignore[misc]
    return [
        neighbours(rank, table.owners, iter(columns), [np.flatnonzero(owner == rank) for owner in table.owners], CPU)
        for rank in range(table.num_ranks)
    ]


def heard(table: Table, arcs: list[list[tuple[int, int]]], rank: int) -> list[tuple[int, Read]]:
    """(owner, cell) of all cells of others that a rank's cells read, each once, by owner, snapshot and position."""
    wanted = set()
    for t, (owner, pairs) in enumerate(zip(table.owners, arcs, strict=True)):
        for reader, read in pairs:
            if owner[reader] == rank and owner[read] not in (rank, -1):
                wanted.add((int(owner[read]), (t, read)))
    return sorted(wanted)


@quick
@given(read_tables(nobody=True))
def test_each_row_of_others_is_fetched_once_in_order_of_owner_time_and_position(
    drawn: tuple[Table, list[list[tuple[int, int]]]],
) -> None:
    table, arcs = drawn
    for rank, around in enumerate(found(table, arcs)):
        arriving = heard(table, arcs, rank)
        owners = [owner for owner, _ in arriving]
        assert around.route.receive == {owner: owners.count(owner) for owner in set(owners)}
        assert around.num_rows == len(arriving)
        assert len(around.positions) == len(around.places) == len(table.rows)
        for t, (positions, places) in enumerate(zip(around.positions, around.places, strict=True)):
            assert positions.tolist() == sorted(k for _, (at, k) in arriving if at == t)
            assert [arriving[place][1] for place in places.tolist()] == [(t, k) for k in positions.tolist()]


@quick
@given(read_tables(nobody=True))
def test_what_one_sends_another_waits_for_in_the_same_order(
    drawn: tuple[Table, list[list[tuple[int, int]]]],
) -> None:
    table, arcs = drawn
    everyone = found(table, arcs)
    for sender in range(table.num_ranks):
        rows = own_rows(table, sender)
        sent = {to: [rows[row] for row in list_.tolist()] for to, list_ in everyone[sender].route.send.items()}
        expected = {
            to: [cell for owner, cell in heard(table, arcs, to) if owner == sender]
            for to in range(table.num_ranks)
            if to != sender
        }
        assert sent == {to: cells for to, cells in expected.items() if cells}


@among_threads(20)
@given(read_tables(nobody=True, min_ranks=2))
def test_rows_arrive_where_places_say_and_gradients_are_added_up_at_home(
    drawn: tuple[Table, list[list[tuple[int, int]]]],
) -> None:
    table, arcs = drawn
    everyone = found(table, arcs)

    def work(comm: Comm) -> tuple[Tensor, Tensor]:
        rows = own_rows(table, comm.rank)
        x = torch.tensor([[100.0 * t + k] for t, k in rows], dtype=torch.float64).reshape(-1, 1).requires_grad_()
        arrived, token = exchange(comm, everyone[comm.rank].route, x, kind="halo")
        (arrived.sum() * (comm.rank + 1) + token.sum()).backward()
        assert comm.ledger.rows_sent["prepare", "halo"] == everyone[comm.rank].route.rows_sent + len(arrived)
        assert x.grad is not None
        return arrived.detach(), x.grad

    for rank, (arrived, gradient) in enumerate(as_threads(work, table.num_ranks)):
        assert arrived[:, 0].tolist() == [100.0 * t + k for _, (t, k) in heard(table, arcs, rank)]
        readers = [[cell for _, cell in heard(table, arcs, other)] for other in range(table.num_ranks)]
        expected = [
            sum(other + 1 for other, cells in enumerate(readers) if cell in cells) for cell in own_rows(table, rank)
        ]
        assert gradient[:, 0].tolist() == expected


@pytest.mark.parametrize("nobodys", [[], [2]])
def test_whole_snapshots_need_nothing(nobodys: list[int]) -> None:
    rows: list[list[int | None]] = [[-1 if v in nobodys else rank for v in range(4)] for rank in (0, 1, 1)]
    table = Table(2, 4, rows)
    everybody = [[(a, b) for a in range(4) for b in range(4)]] * 3
    for around in found(table, everybody):
        assert around.route.silent
        assert around.num_rows == 0
        assert [len(part) for part in (*around.positions, *around.places)] == [0] * 6


def test_cells_of_several_owners_are_found_by_position_wherever_they_arrive() -> None:
    around, _, _ = found(Table(3, 3, [[0, 2, 1]]), [[(0, 1), (0, 2)]])
    assert around.positions[0].tolist() == [1, 2]
    assert around.places[0].tolist() == [1, 0], "the first rank's rows come first"


def test_a_row_that_many_cells_of_a_rank_read_is_sent_once() -> None:
    table = Table(3, 5, [[0, 1, 1, 1, 2]])
    first, second, third = found(table, [[(1, 0), (2, 0), (3, 0), (3, 0), (4, 0), (0, 0)]])
    assert {to: rows.tolist() for to, rows in first.route.send.items()} == {1: [0], 2: [0]}
    assert (second.route.receive, third.route.receive) == ({0: 1}, {0: 1})
    assert second.route.rows_sent == third.route.rows_sent == first.num_rows == 0
