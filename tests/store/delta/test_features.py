from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import StrobeError
from strobe.store.delta.features import FeatureWindow, segment_bounds
from strobe.store.full import FullRows
from tests.support.stored_sequences import Array, Snapshot, feature_sequences, same_bits, slow_at_first

ROWS = np.arange(40, dtype=np.float32).reshape(5, 8)


def ids(*nodes: int) -> Array:
    return np.array(nodes, np.int32)


@slow_at_first
@given(feature_sequences(), st.integers(1, 5), st.integers(1, 8), st.data())
def test_rows_come_back_to_the_bit_also_by_position_while_the_window_slides(
    snapshots: list[Snapshot], segments: int, window: int, data: st.DataObject
) -> None:
    """Asked in between, it must not remember what is no longer so."""
    kept, whole = FeatureWindow(segments), FullRows()
    for t, (nodes, x) in enumerate(snapshots):
        for each in (kept, whole):
            each.add(t, nodes, x)
        if len(kept.times) > window:
            assert kept.drop() == whole.drop() == t - window
        assert kept.times == list(range(max(0, t - window + 1), t + 1))
        for at in kept.times:
            size = len(snapshots[at][0])
            chosen = np.array(data.draw(st.lists(st.integers(0, size - 1))) if size else [], np.int64)
            assert same_bits(kept.select(at, chosen), snapshots[at][1][chosen])
            assert same_bits(whole.select(at, chosen), snapshots[at][1][chosen])
            assert kept.nodes(at).tolist() == snapshots[at][0].tolist()
            assert same_bits(kept.rows(at), snapshots[at][1])


@slow_at_first
@given(feature_sequences(), st.data())
def test_from_a_snapshot_at_hand_rows_are_the_same(snapshots: list[Snapshot], data: st.DataObject) -> None:
    kept = FeatureWindow(3)
    for t, (nodes, x) in enumerate(snapshots):
        kept.add(t, nodes, x)
    near = data.draw(st.sampled_from(kept.times))
    for t, (_, x) in enumerate(snapshots):
        assert same_bits(kept.rows(t, start_from=(near, *snapshots[near])), x)


@slow_at_first
@given(feature_sequences(), st.integers(1, 4))
def test_a_window_that_slid_holds_what_one_that_began_there_does(snapshots: list[Snapshot], window: int) -> None:
    slid, fresh = FeatureWindow(3), FeatureWindow(3)
    for t, (nodes, x) in enumerate(snapshots):
        slid.add(t, nodes, x)
        if len(slid.times) > window:
            slid.drop()
    for t, (nodes, x) in list(enumerate(snapshots))[-window:]:
        fresh.add(t, nodes, x)
    assert [array.tobytes() for array in slid.arrays()] == [array.tobytes() for array in fresh.arrays()]


def in_a_window() -> FeatureWindow:
    """Rows of which some change and some are absent, after the window has slid."""
    rng = np.random.default_rng(0)
    nodes, x = np.arange(2_000, dtype=np.int32), rng.random((2_000, 40), np.float32)
    kept = FeatureWindow()
    for t in range(6):
        there = rng.random(len(nodes)) < 0.9
        kept.add(t, nodes[there], x[there])
        x[rng.random(len(x)) < 0.3, :10] += 1
    kept.drop()
    return kept


def test_what_is_counted_is_what_is_allocated() -> None:
    in_a_window()  # the first call compiles
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = in_a_window()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept.nbytes > 400_000
    assert abs(grown - kept.nbytes) < 20_000, (grown, kept.nbytes)  # objects around the arrays


def test_only_segments_that_changed_are_stored() -> None:
    kept = FeatureWindow(4)
    kept.add(0, ids(0, 1, 2, 3, 4), ROWS)
    first = kept.nbytes
    x = ROWS.copy()
    x[2, 5] += 1
    kept.add(1, ids(0, 1, 2, 3, 4), x)
    assert kept.nbytes - first == 2 * 4 + 1  # two numbers of a row of eight, and bits that say of which
    kept.add(2, ids(0, 1, 2, 3, 4), x)
    assert kept.nbytes - first == 2 * 4 + 1


def test_a_node_that_returns_is_stored_whole_again() -> None:
    kept = FeatureWindow(4)
    kept.add(0, ids(0, 1), ROWS[:2])
    kept.add(1, ids(0), ROWS[:1])
    before = kept.nbytes
    kept.add(2, ids(0, 1), ROWS[:2])
    assert kept.nbytes - before >= ROWS[0].nbytes
    assert same_bits(kept.rows(2), ROWS[:2])


def test_segments_that_are_all_zeros_are_not_stored() -> None:
    kept = FeatureWindow(4)
    x = np.zeros((16, 8), np.float32)
    x[:, 5] = 1  # the third of four segments, of two numbers each
    nodes = np.arange(16, dtype=np.int32)
    kept.add(0, nodes, x)
    assert kept.nbytes == nodes.nbytes + 16 * 8 + 2  # and a bit for each that is there
    kept.add(1, nodes[:8], x[:8])
    before = kept.nbytes
    kept.add(2, nodes, x)
    assert kept.nbytes == before + 8 * 8 + 8 * 4 + 2  # rows and ids of those who return
    kept.drop()
    kept.add(3, nodes, np.zeros_like(x))
    assert [same_bits(kept.rows(t), rows) for t, rows in ((2, x), (3, np.zeros_like(x)))] == [True, True]


@pytest.mark.parametrize(("width", "segments"), [(0, 4), (1, 4), (3, 4), (10, 4), (128, 4), (5, 1)])
def test_segments_cover_a_row_evenly(width: int, segments: int) -> None:
    cuts = segment_bounds(width, segments)
    assert [column for a, b in cuts for column in range(a, b)] == list(range(width))
    assert len(cuts) == min(width, segments)
    assert max((b - a for a, b in cuts), default=0) - min((b - a for a, b in cuts), default=0) <= 1


def test_invalid_snapshots_raise() -> None:
    with pytest.raises(StrobeError, match="at least 1, not 0"):
        FeatureWindow(0)
    kept = FeatureWindow()
    with pytest.raises(StrobeError, match="no snapshot to drop"):
        kept.drop()
    with pytest.raises(StrobeError, match="ascending"):
        kept.add(0, ids(1, 0), ROWS[:2])
    kept.add(3, ids(0, 1), ROWS[:2])
    with pytest.raises(StrobeError, match="3 after 3"):
        kept.add(3, ids(0, 1), ROWS[:2])
    with pytest.raises(StrobeError, match="8 float64, earlier ones 8 float32"):
        kept.add(4, ids(0, 1), ROWS[:2].astype(np.float64))
    with pytest.raises(StrobeError, match="2 feature rows"):
        kept.add(4, ids(0, 1), ROWS[:3])
    with pytest.raises(StrobeError, match="snapshot 4 is not in the window"):
        kept.rows(4)
