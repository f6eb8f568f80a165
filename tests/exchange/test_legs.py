from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, permutations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.exchange import legs as legs_module
from strobe.exchange.legs import NOBODY, Legs, Moves, _levels, _turns, find_legs, group_cuts
from tests.exchange.cases import Table, tables, windows

quick = settings(deadline=None, max_examples=60)


def nobody(table: Table) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.full(table.num_nodes, NOBODY, np.int16)


def legs_of(table: Table, groups: int = 1) -> list[Legs]:
    """The legs of every rank in a window at the beginning of time; groups may be of one cell."""
    with patch.object(legs_module, "MIN_CELLS", 1):
        return [
            find_legs(rank, table.nodes, table.owners, nobody(table), groups, table.num_ranks)
            for rank in range(table.num_ranks)
        ]


@quick
@given(tables(nobody=True))
def test_legs_are_the_stretches_that_a_rank_has_without_a_break(table: Table) -> None:
    for rank, legs in enumerate(legs_of(table)):
        plain = table.legs(rank)
        assert legs.node.tolist() == [leg.node for leg in plain]
        assert legs.source.tolist() == [leg.source for leg in plain]
        assert legs.target.tolist() == [leg.target for leg in plain]
        of_cell = {(t, leg.node): number for number, leg in enumerate(plain) for t in leg.times}
        cells = table.cells(rank)
        for t, found in enumerate(legs.leg_of):
            assert found.tolist() == [of_cell[cell] for cell in cells if cell[0] == t]


@quick
@given(tables(nobody=True))
def test_as_many_states_are_sent_as_temporal_edges_are_cut(table: Table) -> None:
    assert sum(legs.rows_cut for legs in legs_of(table)) == table.cuts_crossed()


@quick
@given(tables(nobody=True), st.integers(1, 4))
def test_a_leg_comes_in_a_later_wave_than_the_leg_it_waits_for(table: Table, groups: int) -> None:
    everyone = legs_of(table, groups)
    assert len({(legs.num_waves, len(legs.turn)) for legs in everyone}) == 1, "all ranks know of the same"
    waves = {
        (rank, leg.node, leg.number): int(legs.wave[k])
        for rank, legs in enumerate(everyone)
        for k, leg in enumerate(table.legs(rank))
    }
    for rank, legs in enumerate(everyone):
        for k, leg in enumerate(table.legs(rank)):
            assert 0 <= legs.wave[k] < legs.num_waves
            if leg.source != NOBODY:
                assert legs.source_wave[k] == waves[leg.source, leg.node, leg.number - 1] < legs.wave[k]


@quick
@given(tables(nobody=True), st.integers(1, 8))
def test_groups_are_stretches_of_nodes_the_same_on_all_ranks(table: Table, groups: int) -> None:
    found: dict[int, set[int]] = defaultdict(set)
    for legs in legs_of(table, groups):
        assert len(legs.turn) <= groups
        for node, group in zip(legs.node.tolist(), legs.group.tolist(), strict=True):
            assert 0 <= group < len(legs.turn)
            found[node].add(group)
    assert all(len(group) == 1 for group in found.values())
    in_order = [min(found[node]) for node in sorted(found)]
    assert in_order == sorted(in_order)


def test_nodes_with_as_many_cells_are_shared_out_evenly_over_groups() -> None:
    table = Table(2, 12, [[0] * 12, [1] * 12])
    for legs in legs_of(table, 4):
        assert len(legs.turn) == 4
        assert legs.group.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@quick
@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_groups_begin_where_the_cells_reach_equal_shares(
    count: list[int], groups: int, num_ranks: int, least: int
) -> None:
    cells = sum(count)
    number = max(1, min(groups, cells // (least * num_ranks)))
    with patch.object(legs_module, "MIN_CELLS", least):
        cuts = group_cuts(np.array(count, np.int64), groups, num_ranks).tolist()
    assert cuts == sorted(set(cuts))
    reached = []  # for every share, the first node with which it is full, then the one after it
    for share in range(1, number):
        aim = cells * share / number
        reached.append(next(v for v in range(len(count)) if sum(count[: v + 1]) >= aim) + 1)
    assert cuts == sorted(set(reached))


def test_a_group_is_never_too_small_to_be_worth_its_messages() -> None:
    table = Table(2, 10, [[0] * 10, [1] * 10])
    for least, expected in ((11, 1), (10, 1), (5, 2), (4, 2), (3, 3)):
        with patch.object(legs_module, "MIN_CELLS", least):
            legs = find_legs(0, table.nodes, table.owners, nobody(table), 16, 2)
        assert len(legs.turn) == expected, least


# In which order ranks come.


def reachable(crossed: list[list[bool]], a: int, seen: frozenset[int] = frozenset()) -> frozenset[int]:
    for b, there in enumerate(crossed[a]):
        if there and b not in seen:
            seen |= reachable(crossed, b, seen | {b})
    return seen


def longest_way(crossed: list[list[bool]], to: int) -> int:
    return max([1 + longest_way(crossed, a) for a in range(len(crossed)) if crossed[a][to]], default=0)


@quick
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    ),
    st.booleans(),
)
def test_a_rank_is_as_late_as_the_longest_way_to_it_unless_ways_are_circular(
    crossed: list[list[bool]], ascending: bool
) -> None:
    if ascending:
        crossed = [[there and b > a for b, there in enumerate(row)] for a, row in enumerate(crossed)]
    levels = _levels(np.array(crossed))
    circular = any(a in reachable(crossed, a) for a in range(len(crossed)))
    assert (levels is None) == circular
    if levels is not None:
        assert levels.tolist() == [longest_way(crossed, to) for to in range(len(crossed))]


@quick
@given(tables(nobody=True))
def test_ranks_come_in_turn_where_one_order_fits_all_sequences(table: Table) -> None:
    visits = [[leg.rank for leg in table.legs() if leg.node == node] for node in range(table.num_nodes)]
    fits = any(
        all(len(set(visit)) == len(visit) and visit == sorted(visit, key=order.index) for visit in visits)
        for order in permutations(range(table.num_ranks))
    )
    for rank, legs in enumerate(legs_of(table)):
        assert legs.in_turn == fits
        if fits:
            assert len(set(legs.wave.tolist())) <= 1
            assert len(set(legs.node.tolist())) == len(legs.node)
        else:
            assert legs.wave.tolist() == [leg.number for leg in table.legs(rank)]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_in_time_blocks_a_rank_has_one_wave(order: list[int]) -> None:
    rows: list[list[int | None]] = [[rank] * 5 for rank in order for _ in range(2)]
    rows[2][3] = rows[3][3] = None  # node 3 is not there while the second rank is
    for rank, legs in enumerate(legs_of(Table(3, 5, rows))):
        assert legs.num_waves == 3
        assert set(legs.wave.tolist()) == {order.index(rank)}


def test_where_sequences_go_round_in_circles_waves_are_numbers_of_legs() -> None:
    table = Table(2, 2, [[0, 1], [1, 0], [0, 0], [0, 1]])
    first, second = legs_of(table)
    assert (first.wave.tolist(), first.source_wave[1:].tolist()) == ([0, 2, 1], [1, 0])
    assert second.wave.tolist() == [1, 0, 2]
    assert first.num_waves == second.num_waves == 3


def test_without_cells_there_is_one_wave_and_no_leg() -> None:
    for legs in legs_of(Table(3, 2, [[None, None], [NOBODY, None]])):
        assert (len(legs.node), legs.num_waves, len(legs.turn), legs.rows_cut) == (0, 1, 1, 0)
        assert [len(part) for part in legs.leg_of] == [0, 0]


# From window to window.


State = tuple[int, int]  # whose it is, and the end of the window that it comes from


def arrived(rank: int, moves: list[Moves], held: list[list[State]]) -> dict[int, State]:
    """The state that each leg of a rank gets, from whoever holds it."""
    got: list[tuple[int, State]] = []
    for sender, legs in moves[rank].arrive.items():
        assert sender != rank
        message = [held[sender][row] for row in moves[sender].send[rank].tolist()]
        got += zip(legs.tolist(), message, strict=True)
    rows, legs = moves[rank].local
    got += [(leg, held[rank][row]) for row, leg in zip(rows.tolist(), legs.tolist(), strict=True)]
    assert len(dict(got)) == len(got), "a leg gets one state"
    return dict(got)


@quick
@given(windows(nobody=True))
def test_every_state_comes_from_its_home_to_the_leg_that_goes_on_from_it(drawn: tuple[Table, list[int]]) -> None:
    table, cuts = drawn
    home, ranks = nobody(table), range(table.num_ranks)
    held: list[list[State]] = [[] for _ in ranks]
    seen: dict[int, int] = {}  # the end of the window in which a node was last seen
    for start, stop in pairwise(cuts):
        window = table.window(start, stop)
        found = [find_legs(rank, window.nodes, window.owners, home, 2, table.num_ranks) for rank in ranks]
        moves = [legs.moves for legs in found]
        for rank in ranks:
            begins = [(k, leg.node) for k, leg in enumerate(window.legs(rank)) if leg.source == NOBODY]
            assert arrived(rank, moves, held) == {k: (node, seen[node]) for k, node in begins if node in seen}
            assert moves[rank].num_held == len(held[rank])
        sent = sum(len(rows) for each in moves for rows in each.send.values())
        assert sent == sum(len(legs) for each in moves for legs in each.arrive.values()), "all that is sent is heard"
        moved = zip(home.tolist(), window.firsts(), strict=True)
        assert sent == sum(before != first for before, first in moved if NOBODY not in (before, first))

        seen |= {v: stop for v, first in enumerate(window.firsts()) if first != NOBODY}
        home = np.array(table.window(0, stop).homes(), np.int16)
        for rank, legs in enumerate(found):
            rows = held[rank] + [(node, stop) for node in legs.node.tolist()]
            held[rank] = [rows[row] for row in moves[rank].kept.tolist()]
            assert held[rank] == [(v, seen[v]) for v in range(table.num_nodes) if home[v] == rank]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5))
def test_no_other_order_of_groups_is_sooner_through_two_ranks(loads: list[tuple[int, int]]) -> None:
    def makespan(order: Sequence[int]) -> int:
        first = second = 0
        for group in order:
            first += loads[group][0]
            second = max(first, second) + loads[group][1]
        return second

    turn = _turns(np.array(loads), np.array([0, 1]))
    assert sorted(turn.tolist()) == list(range(len(loads)))
    assert makespan(np.argsort(turn).tolist()) == min(map(makespan, permutations(range(len(loads)))))
