from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given

from strobe.errors import InputError
from strobe.placement.cell_links import cell_links
from tests.graphs import AWKWARD, PlainGraph, dynamic_graphs


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
    found = cell_links(plain.build(), 3.0, 7.0)
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


def test_a_node_that_was_away_is_linked_with_its_last_cell() -> None:
    plain = AWKWARD["a node that leaves and returns"]
    number = {cell: at for at, cell in enumerate(plain.cells())}
    assert cell_links(plain.build(), 1.0, 1.0).before[number[2, 1]] == number[0, 1]


def test_a_part_of_the_time_is_linked_as_a_graph_of_its_own() -> None:
    plain = AWKWARD["a node that leaves and returns"]
    part, whole = cell_links(plain.build()[1:], 1.0, 1.0), cell_links(plain.slice(slice(1, None)).build(), 1.0, 1.0)
    for name in ("row_ptr", "col", "before", "after"):
        assert getattr(part, name).tolist() == getattr(whole, name).tolist()


def test_more_cells_than_have_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"fewer than 2,147,483,648 cells at a time, .* train in windows"):
        cell_links(SimpleNamespace(num_cells=1 << 31), 1.0, 1.0)  # type: ignore[arg-type]
