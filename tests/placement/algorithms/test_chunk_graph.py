from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import InputError
from strobe.placement import ModelCosts
from strobe.placement.algorithms.chunk_graph import (
    count_cell_loads,
    cut_bytes,
    expected_sequence_length,
    link_cells,
    loads_of_chunks,
    nodes_of_cells,
    sizes_of_chunks,
)
from strobe.placement.model_costs import CellSetSizes
from tests.support.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.support.placement_cases import loads


def neighbours(plain: PlainGraph) -> list[list[int]]:
    """The cells that each cell shares an edge with, whichever way it points."""
    number = {cell: at for at, cell in enumerate(plain.cells())}
    found: list[set[int]] = [set() for _ in number]
    for t in range(len(plain.snapshots)):
        for u, v, _ in plain.arcs(t):
            if u != v:
                found[number[t, u]].add(number[t, v])
                found[number[t, v]].add(number[t, u])
    return [sorted(each) for each in found]


def earlier(plain: PlainGraph) -> list[int]:
    """The cell before each in its sequence, -1 for the first, however long its node was away."""
    last: dict[int, int] = {}
    found = []
    for at, (_, v) in enumerate(plain.cells()):
        found.append(last.get(v, -1))
        last[v] = at
    return found


def assert_linked_as(plain: PlainGraph) -> None:
    found = link_cells(plain.build(), 3.0, 7.0)
    assert found.num_vertices == len(plain.cells())
    rows = [sorted(found.col[a:b].tolist()) for a, b in zip(found.row_ptr[:-1], found.row_ptr[1:], strict=True)]
    assert rows == neighbours(plain)
    before = earlier(plain)
    assert found.before.tolist() == before
    assert found.after.tolist() == [before.index(at) if at in before else -1 for at in range(len(before))]
    assert (found.weight.tolist(), found.chain) == ([3.0], 7.0)
    assert found.num_links == sum(map(len, rows)) + 2 * sum(at >= 0 for at in before)


@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_every_pair_is_linked_once_and_every_sequence_in_a_row(plain: PlainGraph) -> None:
    assert_linked_as(plain)


@given(dynamic_graphs(carried=False))
def test_any_graph_is_linked_alike(plain: PlainGraph) -> None:
    assert_linked_as(plain)


def test_more_cells_than_have_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"fewer than 2,147,483,648 cells at a time, .* train in windows"):
        link_cells(SimpleNamespace(num_cells=1 << 31), 1.0, 1.0)  # type: ignore[arg-type]


NUM_RANKS = 3


@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_cells_have_their_node_and_cost_what_loads_say(plain: PlainGraph) -> None:
    graph = plain.build()
    assert nodes_of_cells(graph).tolist() == [v for _, v in plain.cells()]
    assert count_cell_loads(graph).tolist() == list(loads(plain).values())


@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_the_typical_length_is_that_of_a_cells_sequence(plain: PlainGraph) -> None:
    nodes = [v for _, v in plain.cells()]
    assert expected_sequence_length(plain.build()) == pytest.approx(sum(map(nodes.count, nodes)) / max(len(nodes), 1))


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


def test_what_a_rank_costs_once_is_shared_out_over_its_chunks() -> None:
    """A call costs 100 whatever it computes: of ten chunks on two ranks each adds a fifth of that, not all of it."""
    sizes = CellSetSizes(np.full(10, 20), np.zeros(10), np.full(10, 2))
    found = loads_of_chunks(sizes, 2, ModelCosts(load_model=lambda asked: 100.0 + asked.cells))
    np.testing.assert_allclose(found, 20 + 100 / 5)


def bytes_slowly(plain: PlainGraph, owner: list[int], work: ModelCosts) -> float:
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
    for work in (ModelCosts(arc_bytes=3, state_bytes=5), ModelCosts(arc_bytes=0, state_bytes=2, cell_bytes=7)):
        links = link_cells(graph, work.arc_bytes, work.state_bytes)
        assert cut_bytes(graph, links, of_cell, NUM_RANKS, work) == bytes_slowly(plain, owner, work)
