from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm import NO_RANK
from strobe.graph import Degrees, from_edges
from strobe.placement import Online
from strobe.placement.online import (
    RowBytes,
    WindowMemory,
    _sweeps_until_cycle,
    compute_prices,
    compute_rewards,
    required_capacity,
    weigh_links,
)
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.plain_online import Owners, PlainOnline, utility, weights

NODES = range(4)
histories = st.lists(st.dictionaries(st.sampled_from(NODES), st.integers(0, 2)), max_size=6)


def test_a_row_has_as_many_bytes_as_its_columns_and_its_longest_segment_changes() -> None:
    graph = from_edges([np.array([[0], [1]])], num_nodes=2, x=np.ones((2, 10)))
    assert RowBytes.of(graph[0], 4) == RowBytes(40, 12)
    assert RowBytes.of(graph.with_features(Degrees())[0], 4) == RowBytes(8, 4)
    assert RowBytes.of(graph.with_features(None)[0], 4) == RowBytes(4, 4)


@given(histories, st.integers(1, 4))
def test_bytes_are_those_of_every_row_that_is_kept(history: list[Owners], window: int) -> None:
    slow = PlainOnline(Online(window=window, segments=4), 3, 4, placed=history)
    kept, rows = WindowMemory(window, 3), RowBytes(16, 4)
    for before, after in zip([{}, *history], history, strict=False):
        kept.add(*(np.array([place.get(v, NO_RANK) for v in after], np.int16) for place in (after, before)))
    for number in range(window + 1):
        assert kept.bytes_of_last(number, rows).tolist() == slow.held(slow.latest(number))
    ahead = [slow.held(slow.latest(window - 1 - later)) for later in range(window)]
    assert kept.forecast(rows, latest_is_current=False).tolist() == ahead


@given(histories.filter(len), st.integers(1, 4), st.integers(0, 2))
def test_a_cell_takes_what_it_adds_while_all_stay(history: list[Owners], window: int, rank: int) -> None:
    slow = PlainOnline(Online(window=window, segments=4), 3, 4, placed=history)
    stays = history[-1].get(0) == rank
    others = {v: at for v, at in history[-1].items() if v != 0}
    rows = RowBytes(16, 4)
    added = rows.bytes_if_staying(window) if stays else rows.bytes_if_new(window)
    for later in range(window):
        with_it, without = slow.ahead(others | {0: rank}, later), slow.ahead(others, later)
        assert with_it[rank] - without[rank] == added[later]


@given(histories, st.lists(st.sampled_from(NODES), unique=True), st.integers(1, 4))
def test_with_enough_every_snapshot_finds_room(history: list[Owners], nodes: list[int], window: int) -> None:
    slow = PlainOnline(Online(window=window, segments=4), 3, 4, placed=history)
    ahead = np.array([slow.held(slow.latest(window - 1 - later)) for later in range(window)])
    last = np.array([history[-1].get(v, NO_RANK) if history else NO_RANK for v in nodes], np.int64)
    slow.capacity = required_capacity(ahead, last, RowBytes(16, 4))
    owner = slow.base(nodes)
    assert all(history[-1][v] == owner[v] for v in nodes if history and v in history[-1])


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=2), min_size=1, max_size=7),
    st.integers(1, 4),
    st.sampled_from([1.0, 2.5, 6.0]),
)
def test_prices_are_those_that_every_snapshot_multiplies(stored: list[list[int]], window: int, eta: float) -> None:
    """Algorithm 3, line 5, as printed: lambda of the times at which a snapshot is kept, times exp(ln(P) a / D)."""
    capacity, least = 400, 3.0
    lambdas = np.full((len(stored) + window, 2), least / (2 * eta))
    for t, taken in enumerate(stored):
        lambdas[t : t + window] *= np.exp(math.log(2 * eta) * np.array(taken) / capacity)
    now = len(stored)
    held = [np.array(stored[max(0, now + j - window + 1) :]).reshape(-1, 2).sum(0) for j in range(window)]
    found = compute_prices(np.array(held), capacity, least, eta)
    np.testing.assert_allclose(found, lambdas[now : now + window].sum(0), rtol=1e-12)


def test_a_full_rank_asks_the_lowest_utility_per_byte_and_an_empty_one_a_part_of_it() -> None:
    price = compute_prices(np.array([[0, 100]]), 100, 4.8, 6.0)
    assert price.tolist() == pytest.approx([4.8 / 12, 4.8])


def test_a_reward_is_a_part_of_what_is_left_of_the_utility_and_never_negative() -> None:
    found = compute_rewards(80, np.array([0.5, 9.0]), np.array([20, 10]), 5, 6.0)
    assert found.tolist() == pytest.approx([(math.log(12) - 1) * (40 - 10) / 5, 0.0])
    assert compute_rewards(80, np.array([0.5, 9.0]), np.array([20, 10]), 5, 1.0).tolist() == [0, 0]
    assert compute_rewards(0, np.ones(2), np.zeros(2, np.int64), 0, 6.0).tolist() == [0, 0]


@given(dynamic_graphs(min_snapshots=1, carried=False), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_weights_are_those_of_pairs(plain: PlainGraph, ranks: list[int]) -> None:
    graph = plain.build()
    for t, snapshot in enumerate(graph):
        links, slow = weigh_links(snapshot), weights(plain, t)
        owner = {v: ranks[v] for v in plain.present(t)}
        assert links.total == sum(slow.values())
        assert links.utility(np.array(list(owner.values()), np.int16)) == utility(slow, owner)
        for row in range(snapshot.num_nodes):
            near: dict[int, int] = {}
            for at in range(int(links.row_ptr[row]), int(links.row_ptr[row + 1])):
                near[int(links.col[at])] = near.get(int(links.col[at]), 0) + int(links.weight[at])
            for other, weight in near.items():
                pair = frozenset((int(snapshot.nodes[row]), int(snapshot.nodes[other])))
                assert weight == slow.get(pair, 0)  # self-loops weigh nothing


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8), st.integers(0, 40))
def test_rounds_that_are_left_out_change_nothing(goes_to: list[int], sweeps: int) -> None:
    """Owners that go from one of eight states to the next, whatever it is, end where they would have ended."""
    owner, made = np.zeros(1, np.int16), 0
    for _ in _sweeps_until_cycle(sweeps, owner):
        owner[0] = goes_to[int(owner[0])]
        made += 1
    state = 0
    for _ in range(sweeps):
        state = goes_to[state]
    assert owner.tolist() == [state]
    assert made <= sweeps


def test_a_circle_is_noticed_soon() -> None:
    owner, made = np.zeros(1, np.int16), 0
    for _ in _sweeps_until_cycle(300, owner):
        owner[0] = (owner[0] + 1) % 3
        made += 1
    assert owner[0] == 0
    assert made <= 12
