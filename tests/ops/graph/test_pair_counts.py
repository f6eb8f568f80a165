from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph.pair_counts import PairCounts, add_pairs, empty_pairs, extract_pairs, to_symmetric_csr
from strobe.ops.sparse.csr import row_pointers

SIZE = 6
slow_at_first = settings(deadline=None)  # the first call compiles
ARCS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=25)  # (row, column)


def by_rows(arcs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    arcs = sorted(arcs)
    degree = np.bincount([row for row, _ in arcs], minlength=SIZE)
    return row_pointers(degree), np.array([col for _, col in arcs], np.int32)


def read(pairs: PairCounts) -> dict[tuple[int, int], int]:
    """(larger, smaller end) and count, in order."""
    return {(int(pair) >> 32, int(pair) & 0xFFFFFFFF): int(count) for pair, count in zip(*pairs, strict=True)}


@slow_at_first
@given(ARCS)
def test_a_pair_counts_once_however_many_arcs_join_it_either_way(arcs: list[tuple[int, int]]) -> None:
    found = read(extract_pairs(*by_rows(arcs), directed=True))
    assert list(found) == sorted({(max(arc), min(arc)) for arc in arcs if arc[0] != arc[1]})
    assert set(found.values()) <= {1}


@slow_at_first
@given(ARCS)
def test_of_undirected_arcs_half_are_looked_at(arcs: list[tuple[int, int]]) -> None:
    both = arcs + [(col, row) for row, col in arcs if row != col]
    assert read(extract_pairs(*by_rows(both), directed=False)) == read(extract_pairs(*by_rows(both), directed=True))


@slow_at_first
@given(ARCS, st.sets(st.integers(0, 40), min_size=SIZE, max_size=SIZE))
def test_ends_get_their_numbers_in_the_whole(arcs: list[tuple[int, int]], numbers: set[int]) -> None:
    place = sorted(numbers)
    own = read(extract_pairs(*by_rows(arcs), directed=True))
    found = read(extract_pairs(*by_rows(arcs), directed=True, place=np.array(place)))
    assert list(found) == [(place[row], place[col]) for row, col in own]


@slow_at_first
@given(st.lists(ARCS, max_size=5))
def test_counts_add_up_and_go_both_ways(snapshots: list[list[tuple[int, int]]]) -> None:
    total, expected = empty_pairs(), Counter[tuple[int, int]]()
    for arcs in snapshots:
        total = add_pairs(total, extract_pairs(*by_rows(arcs), directed=True))
        expected.update({(max(arc), min(arc)) for arc in arcs if arc[0] != arc[1]})
    assert read(total) == dict(sorted(expected.items()))
    dense = to_symmetric_csr(total, SIZE)
    assert dense.has_sorted_indices
    assert (dense.toarray() == dense.toarray().T).all()
    assert {(i, j): dense[i, j] for i in range(SIZE) for j in range(i) if dense[i, j]} == dict(expected)
