from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement.ways import Way, best, limit, rows_sent, unevenness, way
from tests.graphs import PlainGraph, dynamic_graphs
from tests.placement.cases import chain


@given(dynamic_graphs(carried=False), st.data())
def test_rows_are_cells_read_elsewhere_and_states_that_change_ranks(plain: PlainGraph, data: st.DataObject) -> None:
    graph = plain.build()
    rank = st.integers(0, 2)
    last = np.array([data.draw(st.integers(-1, 2)) for _ in range(graph.num_nodes)], np.int64)
    owners = [np.array([data.draw(rank) for _ in range(shot.num_nodes)], np.int16) for shot in graph]
    at = {v: owner for v, owner in enumerate(last.tolist()) if owner >= 0}
    expected = 0
    for t, owner in enumerate(owners):
        of = dict(zip(graph[t].nodes.tolist(), owner.tolist(), strict=True))
        expected += len({(read, of[reader]) for reader, read, _ in plain.arcs(t) if of[read] != of[reader]})
        expected += sum(at.get(v, here) != here for v, here in of.items())
        at |= of
    assert rows_sent(graph, owners, last) == expected


def test_a_way_knows_how_uneven_it_is_and_what_it_sends() -> None:
    graph = chain([3, 3])
    found = way(graph, [np.zeros(3, np.int16), np.array([0, 1, 1], np.int16)], np.array([1, -1, -1]), 2)
    assert (found.uneven, found.rows) == (4 / 3, 3)


def test_of_even_ways_the_one_that_sends_fewest_rows_is_best() -> None:
    ways = [Way([], 1.2, 0), Way([], 1.0, 9), Way([], 1.04, 5)]
    assert best(ways).rows == 5


def test_where_none_is_even_fewer_rows_beat_a_little_more_even() -> None:
    ways = [Way([], 2.0, 0), Way([], 1.30, 9), Way([], 1.33, 5)]
    assert limit(ways) < 1.4
    assert best(ways).rows == 5


def test_unevenness_counts_the_slowest_rank_of_every_stretch() -> None:
    assert unevenness(np.array([[3, 1], [1, 3]])) == 1.5
    assert unevenness(np.zeros((0, 3), np.int64)) == unevenness(np.zeros((2, 3), np.int64)) == 1.0
