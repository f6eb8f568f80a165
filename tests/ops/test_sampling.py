from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from strobe.ops.sampling import ALL, Sample, sample

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


def plainly(whole: tuple[Any, Any, Any], targets: list[int], fanouts: list[int], key: int) -> dict[int, list[int]]:
    """The arcs that are drawn for each cell that reads."""
    row_ptr, col, nodes = whole
    found: dict[int, list[int]] = {}
    seen, outermost = set(targets), list(targets)
    for fanout in fanouts:
        following: list[int] = []
        for cell in outermost:
            degree = int(row_ptr[cell + 1] - row_ptr[cell])
            number = degree if fanout == ALL else min(degree, fanout)
            found[cell] = [int(row_ptr[cell]) + k for k in chosen(degree, number, key, int(nodes[cell]))]
            for arc in found[cell]:
                if int(col[arc]) not in seen:
                    seen.add(int(col[arc]))
                    following.append(int(col[arc]))
        outermost = following
    return found


def rows_of(drawn: Sample) -> dict[int, list[int]]:
    return {
        int(cell): drawn.arc[drawn.row_ptr[k] : drawn.row_ptr[k + 1]].tolist() for k, cell in enumerate(drawn.position)
    }


@slow_at_first
@given(snapshots(), st.data(), st.lists(st.sampled_from([ALL, 1, 2, 3]), max_size=3), st.integers(0, _MASK))
def test_it_draws_what_a_plain_loop_draws(
    whole: tuple[Any, Any, Any], data: st.DataObject, fanouts: list[int], key: int
) -> None:
    size = len(whole[2])
    targets = data.draw(st.lists(st.integers(0, size - 1), unique=True))
    drawn = sample(*whole, np.array(targets, np.int64), np.array(fanouts, np.int64), key)
    plain = plainly(whole, targets, fanouts, key)
    assert drawn.position[: len(targets)].tolist() == targets
    assert len(set(drawn.position.tolist())) == len(drawn.position)
    assert {cell: arcs for cell, arcs in rows_of(drawn).items() if arcs} == {
        c: arcs for c, arcs in plain.items() if arcs
    }
    assert drawn.position[drawn.col].tolist() == whole[1][drawn.arc].tolist()
    assert drawn.degree.tolist() == (whole[0][drawn.position + 1] - whole[0][drawn.position]).tolist()
    near = dict.fromkeys(targets, 0)
    for _ in fanouts:
        for cell in list(plain):
            for arc in plain[cell] if cell in near else []:
                near[int(whole[1][arc])] = min(near.get(int(whole[1][arc]), 99), near[cell] + 1)
    assert dict(zip(drawn.position.tolist(), drawn.distance.tolist(), strict=True)) == near
    again = sample(*whole, np.array(targets[:1], np.int64), np.array(fanouts, np.int64), key)
    assert all(rows_of(drawn)[cell] == rows_of(again)[cell] for cell in targets[:1])  # whoever draws beside it


def test_all_arcs_are_as_likely() -> None:
    row_ptr, col = np.array([0, 7, *[7] * 7], np.int32), np.arange(1, 8, dtype=np.int32)
    nodes, target = np.arange(8, dtype=np.int32), np.array([0])
    for fanout in (1, 3, 6):
        count = np.zeros(7)
        for key in range(4000):
            count[sample(row_ptr, col, nodes, target, np.array([fanout]), key * 7919).arc] += 1
        assert chisquare(count).pvalue > 1e-4, count


def test_what_is_drawn_stands_for_the_rest() -> None:
    row_ptr, col = np.array([0, 4, 6, 6], np.int32), np.array([0, 1, 1, 2, 0, 2], np.int32)
    drawn = sample(row_ptr, col, np.arange(3, dtype=np.int32), np.array([0]), np.array([2, ALL]), 5)
    assert drawn.share is not None
    by_reader = {int(cell): share for cell, share in zip(drawn.position[drawn.reader], drawn.share, strict=True)}
    assert by_reader[0] == 2.0
    assert by_reader.get(1, 1.0) == 1.0
    whole = sample(row_ptr, col, np.arange(3, dtype=np.int32), np.array([0]), np.array([ALL, ALL]), 5)
    assert whole.share is None
