from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from strobe.ops.sparse.sampling import ALL_NEIGHBORS, Sample, sample_neighbors

slow_at_first = settings(deadline=None)  # the first call compiles
_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Rows, columns and ids of a small snapshot; some cells are read by none, some read many, twice or themselves."""
    size = draw(st.integers(1, 12))
    rows = draw(st.lists(st.lists(st.integers(0, size - 1), max_size=9), min_size=size, max_size=size))
    row_ptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int32)
    col = np.array([source for row in rows for source in sorted(row)], np.int32)
    nodes = np.sort(draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size, unique=True)))
    return row_ptr, col, nodes.astype(np.int32)


def mixed(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def chosen(degree: int, number: int, key: int, node: int) -> list[int]:
    """Which of a cell's arcs are drawn, the plain way: one after the other, one that is taken gives way to the last."""
    state, found = mixed(key ^ ((node * _STEP) & _MASK)), set[int]()
    for last in range(degree - number, degree):
        state = (state + _STEP) & _MASK
        drawn = ((mixed(state) >> 32) * (last + 1)) >> 32
        found.add(last if drawn in found else drawn)
    return sorted(found)


def plainly(
    whole: tuple[Any, Any, Any], targets: list[int], fanouts: list[int], key: int
) -> list[dict[int, list[int]]]:
    """The arcs that are drawn for each cell, hop by hop."""
    row_ptr, col, nodes = whole
    cells, hops = list(targets), []
    for hop, fanout in enumerate(fanouts):
        found = {}
        for cell in cells:
            degree = int(row_ptr[cell + 1] - row_ptr[cell])
            number = degree if fanout == ALL_NEIGHBORS else min(degree, fanout)
            of_hop = (key + hop * 0xD1B54A32D192ED03) & _MASK
            found[cell] = [int(row_ptr[cell]) + k for k in chosen(degree, number, of_hop, int(nodes[cell]))]
        hops.append(found)
        cells = list(dict.fromkeys([*cells, *(int(col[arc]) for arcs in found.values() for arc in arcs)]))
    return hops


def rows_of(found: Sample) -> list[dict[int, list[int]]]:
    return [
        {
            int(cell): drawn.arc[drawn.row_ptr[k] : drawn.row_ptr[k + 1]].tolist()
            for k, cell in enumerate(found.position[:size])
        }
        for drawn, size in zip(found.hops, found.sizes, strict=False)
    ]


@slow_at_first
@given(snapshots(), st.data(), st.lists(st.sampled_from([ALL_NEIGHBORS, 1, 2, 3]), max_size=3), st.integers(0, _MASK))
def test_it_draws_what_a_plain_loop_draws(
    whole: tuple[Any, Any, Any], data: st.DataObject, fanouts: list[int], key: int
) -> None:
    size = len(whole[2])
    targets = data.draw(st.lists(st.integers(0, size - 1), unique=True))
    found = sample_neighbors(*whole, np.array(targets, np.int64), fanouts, key)
    assert found.position[: found.sizes[0]].tolist() == targets
    assert len(set(found.position.tolist())) == len(found.position) == found.sizes[-1]
    assert rows_of(found) == plainly(whole, targets, fanouts, key)
    for drawn, number in zip(found.hops, found.sizes, strict=False):
        assert found.position[drawn.col].tolist() == whole[1][drawn.arc].tolist()
        readers = found.position[:number]
        assert drawn.degree.tolist() == (whole[0][readers + 1] - whole[0][readers]).tolist()
    alone = sample_neighbors(*whole, np.array(targets[:1], np.int64), fanouts, key)
    for mine, theirs in zip(rows_of(alone), rows_of(found), strict=True):  # the other targets have no effect
        assert mine.items() <= theirs.items()


def test_all_arcs_are_as_likely() -> None:
    row_ptr, col = np.array([0, 7, *[7] * 7], np.int32), np.arange(1, 8, dtype=np.int32)
    nodes, target = np.arange(8, dtype=np.int32), np.array([0])
    for fanout in (1, 3, 6):
        count = np.zeros(7)
        for key in range(4000):
            count[sample_neighbors(row_ptr, col, nodes, target, [fanout], key * 7919).hops[0].arc] += 1
        assert chisquare(count).pvalue > 1e-4, count


def test_what_is_drawn_stands_for_the_rest() -> None:
    row_ptr, col = np.array([0, 4, 6, 6], np.int32), np.array([0, 1, 1, 2, 0, 2], np.int32)
    nodes = np.arange(3, dtype=np.int32)
    drawn, rest = sample_neighbors(row_ptr, col, nodes, np.array([0]), [2, ALL_NEIGHBORS], 5).hops
    assert np.asarray(drawn.scale).tolist() == [2.0, 2.0]
    assert rest.scale is None
