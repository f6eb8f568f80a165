from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph import Degrees, from_edges
from strobe.placement import Online
from strobe.placement.arriving import NOWHERE
from strobe.placement.kept import Kept, RowBytes, enough
from tests.placement.plain_online import Owners, PlainOnline

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
    kept, rows = Kept(window, 3), RowBytes(16, 4)
    for before, after in zip([{}, *history], history, strict=False):
        kept.add(*(np.array([place.get(v, NOWHERE) for v in after], np.int16) for place in (after, before)))
    for number in range(window + 1):
        assert kept.of_last(number, rows).tolist() == slow.held(slow.latest(number))
    ahead = [slow.held(slow.latest(window - 1 - later)) for later in range(window)]
    assert kept.ahead(rows, placed=False).tolist() == ahead


@given(histories.filter(len), st.integers(1, 4), st.integers(0, 2))
def test_a_cell_takes_what_it_adds_while_all_stay(history: list[Owners], window: int, rank: int) -> None:
    slow = PlainOnline(Online(window=window, segments=4), 3, 4, placed=history)
    stays = history[-1].get(0) == rank
    others = {v: at for v, at in history[-1].items() if v != 0}
    rows = RowBytes(16, 4)
    added = rows.of_staying(window) if stays else rows.of_new(window)
    for later in range(window):
        with_it, without = slow.ahead(others | {0: rank}, later), slow.ahead(others, later)
        assert with_it[rank] - without[rank] == added[later]


@given(histories, st.lists(st.sampled_from(NODES), unique=True), st.integers(1, 4))
def test_with_enough_every_snapshot_finds_room(history: list[Owners], nodes: list[int], window: int) -> None:
    slow = PlainOnline(Online(window=window, segments=4), 3, 4, placed=history)
    ahead = np.array([slow.held(slow.latest(window - 1 - later)) for later in range(window)])
    last = np.array([history[-1].get(v, NOWHERE) if history else NOWHERE for v in nodes], np.int64)
    slow.capacity = enough(ahead, last, RowBytes(16, 4))
    owner = slow.base(nodes)
    assert all(history[-1][v] == owner[v] for v in nodes if history and v in history[-1])


def test_slack_is_of_an_even_share() -> None:
    last = np.full(30, NOWHERE)
    rows = RowBytes(16, 4)
    assert enough(np.zeros((4, 3), np.int64), last, rows, 1.5) == 1.5 * 10 * (16 + 3 * 4) + 16
    assert enough(np.zeros((4, 3), np.int64), last, rows) == pytest.approx(10 * 28 + 16)
