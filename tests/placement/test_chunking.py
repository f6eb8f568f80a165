from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph.label_propagation import propagate
from strobe.placement.algorithms.chunk_graph import count_cell_loads, link_cells
from strobe.placement.chunks import (
    ChunkGraph,
    assign_by_metis,
    assign_by_score,
    grow_chunks,
    split_by_owner,
    to_integer_loads,
)
from tests.support.linked import PlainLinks, cycle, held_by, plain_links, random_links
from tests.support.placement_cases import communities

pytest.importorskip("pymetis")


def scored(plain: PlainLinks, load: list[int], num_ranks: int) -> list[int]:
    owner: list[int] = assign_by_score(plain.build(), np.array(load, np.int64), num_ranks).tolist()
    return owner


def slowly(plain: PlainLinks, load: list[int], num_ranks: int) -> list[int]:
    """Algorithm 1, but no rank that has its share gets more for its bytes, and the least loaded of equals wins."""
    mean = sum(load) / num_ranks
    owner: dict[int, int] = {}
    has = [0.0] * num_ranks
    for chunk in sorted(range(plain.num), key=lambda at: -load[at]):
        shared: Counter[int] = Counter()
        for other, weight in PlainLinks(plain.num, plain.pairs).near(chunk).items():
            if other in owner:
                shared[owner[other]] += weight  # type: ignore[assignment]
        scores = [max(mean - has[rank], 0) * shared[rank] for rank in range(num_ranks)]
        best = max(range(num_ranks), key=lambda rank: (scores[rank], -has[rank], -rank))
        owner[chunk] = best
        has[best] += load[chunk]
    return [owner[chunk] for chunk in range(plain.num)]


@settings(deadline=None)
@given(plain_links(), st.integers(1, 4), st.data())
def test_scores_are_those_of_the_algorithm(plain: PlainLinks, num_ranks: int, data: st.DataObject) -> None:
    load = data.draw(st.lists(st.integers(1, 9), min_size=plain.num, max_size=plain.num))
    assert scored(plain, load, num_ranks) == slowly(plain, load, num_ranks)


def test_one_weight_for_all_links_scores_alike() -> None:
    graph = communities([4, 4], 1)
    links = link_cells(graph, 128, 0)
    each = PlainLinks(
        8, {(a, b): 128.0 for a in range(8) for b in links.col[links.row_ptr[a] : links.row_ptr[a + 1]] if a < b}
    )
    load = count_cell_loads(graph)
    assert assign_by_score(links, load, 2).tolist() == assign_by_score(each.build(), load, 2).tolist()


def test_metis_keeps_what_shares_bytes_together() -> None:
    plain = PlainLinks(8, {(at, at + 1): 1.0 if at == 3 else 50.0 for at in range(7)})
    owner = assign_by_metis(plain.build(), np.ones(8, np.int64), 2)
    assert len(set(owner[:4].tolist())) == len(set(owner[4:].tolist())) == 1
    assert owner[0] != owner[7]


def test_metis_sees_rows_as_well_as_pairs() -> None:
    for arc, chain, rows in ((1.0, 50.0, True), (50.0, 1.0, False)):
        ladder = PlainLinks(8, {(at, at + 4): arc for at in range(4)}, [[0, 1, 2, 3], [4, 5, 6, 7]], chain)
        owner = assign_by_metis(ladder.build(), np.ones(8, np.int64), 2)
        assert Counter(owner.tolist()) == {0: 4, 1: 4}
        assert (len(set(owner[:4].tolist())) == 1) == rows


def test_to_metis_links_that_weigh_nothing_are_none() -> None:
    """Many of them would outweigh a row: here each cell has 15, and is in a row of 4."""

    plain = communities([16], 4)
    owner = assign_by_metis(link_cells(plain, 0, 1), count_cell_loads(plain), 2).reshape(4, 16)
    assert (owner == owner[0]).all()
    owner = assign_by_metis(link_cells(plain, 1, 0), count_cell_loads(plain), 2).reshape(4, 16)
    assert (owner == owner[:, :1]).all()


def test_loads_become_whole_numbers_in_proportion() -> None:
    found = to_integer_loads(np.array([0.25, 0.5, 0.0, 1.25]))
    assert found.dtype == np.int64
    assert found.min() == 1
    np.testing.assert_allclose(found[[1, 3]] / found[0], [2, 5])
    assert to_integer_loads(np.zeros(3)).tolist() == [1, 1, 1], "loads of nothing are equal"
    assert to_integer_loads(np.zeros(0)).tolist() == []


def grown(plain: PlainLinks, size: list[int], limit: int, seed: int = 0) -> ChunkGraph:
    return grow_chunks(plain.build(), np.array(size, np.int64), limit, rounds=6, seed=seed)


@settings(deadline=None)
@given(plain_links(), st.data())
def test_chunks_hold_every_cell_and_keep_to_the_limit(plain: PlainLinks, data: st.DataObject) -> None:
    size = data.draw(st.lists(st.integers(1, 5), min_size=plain.num, max_size=plain.num))
    limit = data.draw(st.integers(0, 15))
    found = grown(plain, size, limit, data.draw(st.integers(0, 99)))
    of_cell = found.cell_chunk.tolist()
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
    expected = {pair: w for pair, w in plain.between(found.cell_chunk.tolist()).items() if w}
    assert weights == expected
    assert not len(links.before)


def test_chunks_take_labels_from_each_other() -> None:
    plain, size = cycle(120), [1] * 120
    label, _ = propagate(plain.build(), np.array(size, np.int64), 30, rounds=100)
    one_level = len(set(label.tolist()))
    assert len(grown(plain, size, 30).size) < one_level / 2


def test_communities_become_chunks_through_time() -> None:
    graph = communities([6] * 8, 4)
    size = count_cell_loads(graph)
    found = grow_chunks(link_cells(graph, 128, 128), size, int(size.sum()) // 8 + 20, rounds=10)
    of_cell = found.cell_chunk.reshape(4, 8, 6)
    assert len(found.size) <= 12
    assert (of_cell == of_cell[:, :, :1]).mean() > 0.9


def test_a_seed_gives_the_same_chunks_and_another_others() -> None:
    plain = random_links(200, 500)
    first, again, other = (grown(plain, [1] * 200, 20, seed).cell_chunk.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3))))
def test_a_chunk_with_several_owners_becomes_one_for_each(cells: list[tuple[int, int]]) -> None:
    chunk, owner = np.array(cells, np.int32).reshape(-1, 2).T
    known = sorted(set(cells))
    assert split_by_owner(chunk, owner, 4).tolist() == [known.index(cell) for cell in cells]
