from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.labels import propagate
from strobe.placement.cell_links import cell_links
from strobe.placement.chunk_costs import counted_cells
from strobe.placement.growth import Grown, grow, with_owners
from tests.ops.linked import PlainLinks, cycle, held_by, plain_links, random_links
from tests.placement.cases import communities


def grown(plain: PlainLinks, size: list[int], limit: int, seed: int = 0) -> Grown:
    return grow(plain.build(), np.array(size, np.int64), limit, rounds=6, seed=seed)


@settings(deadline=None)
@given(plain_links(), st.data())
def test_chunks_hold_every_cell_and_keep_to_the_limit(plain: PlainLinks, data: st.DataObject) -> None:
    size = data.draw(st.lists(st.integers(1, 5), min_size=plain.num, max_size=plain.num))
    limit = data.draw(st.integers(0, 15))
    found = grown(plain, size, limit, data.draw(st.integers(0, 99)))
    of_cell = found.of_cell.tolist()
    assert sorted(set(of_cell)) == list(range(len(found.size)))
    assert {chunk: int(weighs) for chunk, weighs in enumerate(found.size)} == held_by(of_cell, size)
    members = Counter(of_cell)
    assert all(weighs <= limit for chunk, weighs in enumerate(found.size) if members[chunk] > 1)


@settings(deadline=None)
@given(plain_links(), st.integers(0, 15))
def test_links_between_chunks_are_those_of_their_cells(plain: PlainLinks, limit: int) -> None:
    """Also where no cell found another: chunks have no rows, what held those together is a link like any other."""
    found = grown(plain, [1] * plain.num, limit)
    links = found.links
    rows = np.repeat(np.arange(links.num_vertices), np.diff(links.row_ptr)).tolist()
    weights = {(a, b): w for a, b, w in zip(rows, links.col.tolist(), links.weight.tolist(), strict=True) if w}
    expected = {pair: w for pair, w in plain.between(found.of_cell.tolist()).items() if w}
    assert weights == expected
    assert not len(links.before)


def test_chunks_take_labels_from_each_other() -> None:
    plain, size = cycle(120), [1] * 120
    label, _ = propagate(plain.build(), np.array(size, np.int64), 30, rounds=100)
    one_level = len(set(label.tolist()))
    assert len(grown(plain, size, 30).size) < one_level / 2


def test_communities_become_chunks_through_time() -> None:
    graph = communities([6] * 8, 4)
    size = counted_cells(graph)
    found = grow(cell_links(graph, 128, 128), size, int(size.sum()) // 8 + 20, rounds=10)
    of_cell = found.of_cell.reshape(4, 8, 6)
    assert len(found.size) <= 12
    assert (of_cell == of_cell[:, :, :1]).mean() > 0.9


def test_a_seed_gives_the_same_chunks_and_another_others() -> None:
    plain = random_links(200, 500)
    first, again, other = (grown(plain, [1] * 200, 20, seed).of_cell.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("num", [0, 1, 4])
def test_cells_without_links_are_chunks_of_their_own(num: int) -> None:
    found = grown(PlainLinks(num, {}), [2] * num, 100)
    assert found.of_cell.tolist() == list(range(num))
    assert found.size.tolist() == [2] * num


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3))))
def test_a_chunk_with_several_owners_becomes_one_for_each(cells: list[tuple[int, int]]) -> None:
    chunk, owner = np.array(cells, np.int32).reshape(-1, 2).T
    known = sorted(set(cells))
    assert with_owners(chunk, owner, 4).tolist() == [known.index(cell) for cell in cells]
