from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.placement import Placed, Work
from strobe.placement.cell_links import cell_links
from strobe.placement.chunk_costs import (
    bytes_cut,
    counted_cells,
    loads_of_chunks,
    nodes_of_cells,
    sizes_of_chunks,
    typical_length,
)
from strobe.placement.work import Sizes, counted
from tests.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.placement.cases import communities, loads
from tests.placement.test_cell_links import earlier, neighbours

NUM_RANKS = 3


@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_cells_have_their_node_and_cost_what_loads_say(plain: PlainGraph) -> None:
    graph = plain.build()
    assert nodes_of_cells(graph).tolist() == [v for _, v in plain.cells()]
    assert counted_cells(graph).tolist() == list(loads(plain).values())


@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_the_typical_length_is_that_of_a_cells_sequence(plain: PlainGraph) -> None:
    nodes = [v for _, v in plain.cells()]
    assert typical_length(plain.build()) == pytest.approx(sum(map(nodes.count, nodes)) / max(len(nodes), 1))


@settings(deadline=None)
@given(dynamic_graphs(carried=False), st.data())
def test_chunks_are_as_large_as_their_cells(plain: PlainGraph, data: st.DataObject) -> None:
    cells = plain.cells()
    chunk = data.draw(st.lists(st.integers(0, 3), min_size=len(cells), max_size=len(cells)))
    found = sizes_of_chunks(plain.build(), np.array(chunk, np.int32), 5)
    arcs = {cell: sum(v == cell[1] for v, _, _ in plain.arcs(cell[0])) for cell in cells}
    for each in range(5):
        members = [cell for cell, where in zip(cells, chunk, strict=True) if where == each]
        assert found.cells[each] == len(members)
        assert found.arcs[each] == sum(arcs[cell] for cell in members)
        assert found.sequences[each] == len({v for _, v in members})


def test_counted_loads_of_chunks_are_those_of_their_cells() -> None:
    graph = communities([5, 4, 3], 2)
    chunk = np.arange(graph.num_cells) % 4
    sizes = sizes_of_chunks(graph, chunk, 4)
    expected = np.bincount(chunk, counted_cells(graph), 4)
    np.testing.assert_allclose(loads_of_chunks(sizes, 3, Work()), expected)


def test_what_a_rank_costs_once_is_shared_out_over_its_chunks() -> None:
    """A call costs 100 whatever it computes: of ten chunks on two ranks each adds a fifth of that, not all of it."""
    sizes = Sizes(np.full(10, 20), np.zeros(10), np.full(10, 2))
    found = loads_of_chunks(sizes, 2, Work(loads=lambda asked: 100.0 + asked.cells))
    np.testing.assert_allclose(found, 20 + 100 / 5)


def test_loads_are_asked_for_ranks_of_chunks_of_a_kind() -> None:
    asked: list[Sizes] = []

    def remember(sizes: Sizes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        asked.append(sizes)
        return counted(sizes)  # type: ignore[return-value]

    loads_of_chunks(Sizes(np.array([10, 30]), np.array([20, 0]), np.array([5, 3])), 4, Work(loads=remember))
    assert asked[0].cells.tolist() == [10, 10]
    np.testing.assert_allclose(asked[0].arcs, [20, 0])
    np.testing.assert_allclose(asked[0].sequences, [5, 1])


def bytes_slowly(plain: PlainGraph, owner: list[int], work: Work) -> float:
    """Rows some other rank reads, once each; states where sequences change ranks; cells away from their sequence."""
    near, before, nodes = neighbours(plain), earlier(plain), [v for _, v in plain.cells()]
    rows = {(at, owner[other]) for at in range(len(owner)) for other in near[at] if owner[other] != owner[at]}
    cuts = sum(owner[at] != owner[was] for at, was in enumerate(before) if was >= 0)
    away = 0
    for v in set(nodes):
        of_node = [rank for rank, node in zip(owner, nodes, strict=True) if node == v]
        away += len(of_node) - max(map(of_node.count, of_node))
    return work.arc_bytes * len(rows) + work.state_bytes * cuts + work.cell_bytes * away


@settings(deadline=None)
@given(dynamic_graphs(carried=False), st.data())
def test_bytes_are_those_of_every_row_state_and_cell_that_travels(plain: PlainGraph, data: st.DataObject) -> None:
    count = len(plain.cells())
    owner = data.draw(st.lists(st.integers(0, NUM_RANKS - 1), min_size=count, max_size=count))
    graph, of_cell = plain.build(), np.array(owner, np.int32)
    for work in (Work(arc_bytes=3, state_bytes=5), Work(arc_bytes=0, state_bytes=2, cell_bytes=7)):
        links = cell_links(graph, work.arc_bytes, work.state_bytes)
        assert bytes_cut(graph, links, of_cell, NUM_RANKS, work) == bytes_slowly(plain, owner, work)


def test_cells_are_away_from_the_owner_that_a_shuffle_takes() -> None:
    graph = communities([5, 4, 3], 6)
    owner = np.random.default_rng(0).integers(0, NUM_RANKS, graph.num_cells, dtype=np.int32)
    of_sequence = Placed.by_cell(NUM_RANKS, owner, graph).with_sequences(graph).of_sequence
    assert of_sequence is not None
    away = int((owner != of_sequence[nodes_of_cells(graph)]).sum())
    work = Work(arc_bytes=0, state_bytes=0, cell_bytes=1)
    assert bytes_cut(graph, cell_links(graph, 1, 1), owner, NUM_RANKS, work) == away


def test_how_links_are_weighed_does_not_change_what_travels() -> None:
    graph = communities([5, 4, 3], 3)
    owner = np.arange(graph.num_cells, dtype=np.int32) % NUM_RANKS
    links = cell_links(graph, 128, 128)
    found = {bytes_cut(graph, each, owner, NUM_RANKS, Work()) for each in (links, replace(links, chain=9999.0))}
    assert len(found) == 1
