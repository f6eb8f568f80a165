from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.comm import NO_RANK
from strobe.exchange.relay.legs import (
    MIN_CELLS,
    Legs,
    StateMoves,
    _order_groups,
    find_legs,
    group_cuts,
    min_group_cells,
    num_groups,
    rank_levels,
)
from tests.support.exchange_cases import Table, tables, windows

quick = settings(deadline=None, max_examples=60)


def no_homes(table: Table) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.full(table.num_nodes, NO_RANK, np.int16)


def legs_of(table: Table, groups: int = 1) -> list[Legs]:
    """Legs of every rank in the first window; groups may have one cell."""
    return [
        find_legs(rank, table.nodes, table.owners, no_homes(table), groups, table.num_ranks, 1)
        for rank in range(table.num_ranks)
    ]


@quick
@given(tables(unowned=True))
def test_legs_are_maximal_runs_of_cells_on_one_rank(table: Table) -> None:
    for rank, legs in enumerate(legs_of(table)):
        plain = table.legs(rank)
        assert legs.node.tolist() == [leg.node for leg in plain]
        assert legs.source.tolist() == [leg.source for leg in plain]
        assert legs.target.tolist() == [leg.target for leg in plain]
        of_cell = {(t, leg.node): number for number, leg in enumerate(plain) for t in leg.times}
        cells = table.cells(rank)
        for t, legs_by_rank in enumerate(legs.cell_leg):
            assert legs_by_rank.tolist() == [of_cell[cell] for cell in cells if cell[0] == t]


@quick
@given(tables(unowned=True), st.integers(1, 4))
def test_leg_has_a_later_wave_than_its_predecessor(table: Table, groups: int) -> None:
    all_legs = legs_of(table, groups)
    assert len({(legs.num_waves, len(legs.group_position)) for legs in all_legs}) == 1
    waves = {
        (rank, leg.node, leg.number): int(legs.wave[k])
        for rank, legs in enumerate(all_legs)
        for k, leg in enumerate(table.legs(rank))
    }
    for rank, legs in enumerate(all_legs):
        for k, leg in enumerate(table.legs(rank)):
            assert 0 <= legs.wave[k] < legs.num_waves
            if leg.source != NO_RANK:
                assert legs.source_wave[k] == waves[leg.source, leg.node, leg.number - 1] < legs.wave[k]


@quick
@given(tables(unowned=True), st.integers(1, 8))
def test_groups_are_ranges_of_nodes_equal_on_all_ranks(table: Table, groups: int) -> None:
    legs_by_rank: dict[int, set[int]] = defaultdict(set)
    for legs in legs_of(table, groups):
        assert len(legs.group_position) <= groups
        for node, group in zip(legs.node.tolist(), legs.group.tolist(), strict=True):
            assert 0 <= group < len(legs.group_position)
            legs_by_rank[node].add(group)
    assert all(len(group) == 1 for group in legs_by_rank.values())
    in_order = [min(legs_by_rank[node]) for node in sorted(legs_by_rank)]
    assert in_order == sorted(in_order)


@quick
@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_group_cuts_are_at_equal_numbers_of_cells(
    count: list[int], groups: int, num_ranks: int, min_cells: int
) -> None:
    cells = sum(count)
    number = max(1, min(groups, cells // (min_cells * num_ranks)))
    cuts = group_cuts(np.array(count, np.int64), groups, num_ranks, min_cells).tolist()
    assert cuts == sorted(set(cuts))
    reached = []  # for every share, the first node with which it is full, then the one after it
    for share in range(1, number):
        target = cells * share / number
        reached.append(next(v for v in range(len(count)) if sum(count[: v + 1]) >= target) + 1)
    assert cuts == sorted(set(reached))


def test_groups_have_at_least_min_cells_per_rank() -> None:
    table = Table(2, 10, [[0] * 10, [1] * 10])
    for min_cells, expected in ((11, 1), (10, 1), (5, 2), (4, 2), (3, 3)):
        legs = find_legs(0, table.nodes, table.owners, no_homes(table), 16, 2, min_cells)
        assert len(legs.group_position) == expected, min_cells


def test_groups_of_a_gpu_have_more_cells_than_those_of_a_cpu() -> None:
    sizes = {device: num_groups(1 << 20, 16, 2, min_group_cells(device)) for device in ("cpu", "cuda")}
    assert sizes == {"cpu": 16, "cuda": 2}


def reachable(crossed: list[list[bool]], a: int, seen: frozenset[int] = frozenset()) -> frozenset[int]:
    for b, edge in enumerate(crossed[a]):
        if edge and b not in seen:
            seen |= reachable(crossed, b, seen | {b})
    return seen


def longest_path(crossed: list[list[bool]], to: int) -> int:
    return max([1 + longest_path(crossed, a) for a in range(len(crossed)) if crossed[a][to]], default=0)


@quick
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    ),
    st.booleans(),
)
def test_rank_level_is_the_longest_path_and_none_with_cycles(crossed: list[list[bool]], ascending: bool) -> None:
    if ascending:
        crossed = [[edge and b > a for b, edge in enumerate(row)] for a, row in enumerate(crossed)]
    levels = rank_levels(np.array(crossed))
    circular = any(a in reachable(crossed, a) for a in range(len(crossed)))
    assert (levels is None) == circular
    if levels is not None:
        assert levels.tolist() == [longest_path(crossed, to) for to in range(len(crossed))]


@quick
@given(tables(unowned=True))
def test_legs_are_acyclic_if_one_order_of_ranks_fits_all_sequences(table: Table) -> None:
    visits = [[leg.rank for leg in table.legs() if leg.node == node] for node in range(table.num_nodes)]
    fits = any(
        all(len(set(visit)) == len(visit) and visit == sorted(visit, key=order.index) for visit in visits)
        for order in permutations(range(table.num_ranks))
    )
    for rank, legs in enumerate(legs_of(table)):
        assert legs.is_acyclic == fits
        if fits:
            assert len(set(legs.wave.tolist())) <= 1
            assert len(set(legs.node.tolist())) == len(legs.node)
        else:
            assert legs.wave.tolist() == [leg.number for leg in table.legs(rank)]


def test_window_without_cells_has_one_wave_and_no_legs() -> None:
    for legs in legs_of(Table(3, 2, [[None, None], [NO_RANK, None]])):
        assert (len(legs.node), legs.num_waves, len(legs.group_position)) == (0, 1, 1)
        assert [len(part) for part in legs.cell_leg] == [0, 0]


State = tuple[int, int]  # node, end of the window it is from


def states_received(rank: int, moves: list[StateMoves], stored: list[list[State]]) -> dict[int, State]:
    """The state that each leg of a rank continues from."""
    got: list[tuple[int, State]] = []
    for sender, legs in moves[rank].receive.items():
        assert sender != rank
        message = [stored[sender][row] for row in moves[sender].send[rank].tolist()]
        got += zip(legs.tolist(), message, strict=True)
    rows, legs = moves[rank].local
    got += [(leg, stored[rank][row]) for row, leg in zip(rows.tolist(), legs.tolist(), strict=True)]
    assert len(dict(got)) == len(got)
    return dict(got)


@quick
@given(windows(unowned=True))
def test_each_state_moves_from_its_home_to_the_leg_that_continues_it(example: tuple[Table, list[int]]) -> None:
    table, cuts = example
    home, ranks = no_homes(table), range(table.num_ranks)
    stored: list[list[State]] = [[] for _ in ranks]
    seen: dict[int, int] = {}  # the end of the window in which a node was last seen
    for start, stop in pairwise(cuts):
        window = table.window(start, stop)
        legs_by_rank = [
            find_legs(rank, window.nodes, window.owners, home, 2, table.num_ranks, MIN_CELLS) for rank in ranks
        ]
        moves = [legs.moves for legs in legs_by_rank]
        for rank in ranks:
            begins = [(k, leg.node) for k, leg in enumerate(window.legs(rank)) if leg.source == NO_RANK]
            assert states_received(rank, moves, stored) == {k: (node, seen[node]) for k, node in begins if node in seen}
            assert moves[rank].num_states == len(stored[rank])
        sent = sum(len(rows) for each in moves for rows in each.send.values())
        assert sent == sum(len(legs) for each in moves for legs in each.receive.values())
        moved = zip(home.tolist(), window.firsts(), strict=True)
        assert sent == sum(before != first for before, first in moved if NO_RANK not in (before, first))

        seen |= {v: stop for v, first in enumerate(window.firsts()) if first != NO_RANK}
        home = np.array(table.window(0, stop).homes(), np.int16)
        for rank, legs in enumerate(legs_by_rank):
            rows = stored[rank] + [(node, stop) for node in legs.node.tolist()]
            stored[rank] = [rows[row] for row in moves[rank].final_rows.tolist()]
            assert stored[rank] == [(v, seen[v]) for v in range(table.num_nodes) if home[v] == rank]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5))
def test_order_of_groups_minimizes_the_makespan_of_two_ranks(loads: list[tuple[int, int]]) -> None:
    def makespan(order: Sequence[int]) -> int:
        first = second = 0
        for group in order:
            first += loads[group][0]
            second = max(first, second) + loads[group][1]
        return second

    position = _order_groups(np.array(loads), np.array([0, 1]))
    assert sorted(position.tolist()) == list(range(len(loads)))
    assert makespan(np.argsort(position).tolist()) == min(map(makespan, permutations(range(len(loads)))))
