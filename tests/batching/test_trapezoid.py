from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.batching import Trapezoid
from strobe.batching.trapezoid import Decay, sample_retention_order

decays = st.builds(Decay, st.integers(1, 5), st.integers(0, 9), st.floats(0.001, 1))


def test_number_of_chunks_decays_geometrically() -> None:
    """N' = floor(beta N) with beta = min_keep^(1 / decayed), by hand: beta is 1/2."""
    assert Decay(2, 3, 0.125).num_chunks_by_age(20) == (20, 20, 10, 5, 2)


def test_at_least_one_chunk_is_retained() -> None:
    assert Decay(1, 5, 0.01).num_chunks_by_age(3) == (3, 1, 1, 1, 1, 1)
    assert Decay(1, 2, 0.5).num_chunks_by_age(0) == (0, 0, 0)


@given(decays, st.integers(1, 500))
def test_chunks_decrease_with_age_from_full_snapshots(decay: Decay, chunks: int) -> None:
    counts = decay.num_chunks_by_age(chunks)
    assert len(counts) == decay.window
    assert counts[: decay.full] == (chunks,) * decay.full
    assert all(newer >= older >= 1 for newer, older in pairwise(counts))
    assert all(older == chunks for older in counts) or not decay.is_full
    assert counts[-1] <= max(1, math.ceil(chunks * decay.min_keep)) or decay.is_full


@given(decays, st.integers(0, 40), st.integers(0, 40))
def test_window_ends_with_its_snapshot_and_begins_after_start(decay: Decay, first: int, more: int) -> None:
    times = decay.times(first + more, first)
    assert times[-1] == first + more
    assert times.start >= first
    assert len(times) == min(decay.window, more + 1)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(0, 5))
def test_retained_chunks_are_balanced_over_ranks(ranks: list[int], seed: int) -> None:
    rank_of_chunk = np.array(ranks)
    position = sample_retention_order(rank_of_chunk, (seed, 1))
    assert sorted(position.tolist()) == list(range(len(ranks)))
    np.testing.assert_array_equal(position, sample_retention_order(rank_of_chunk, (seed, 1)))
    in_order = rank_of_chunk[np.argsort(position)]
    for rank in set(ranks):
        share = (rank_of_chunk == rank).mean()
        taken = np.cumsum(in_order == rank)
        assert (np.abs(taken - share * np.arange(1, len(ranks) + 1)) <= len(set(ranks)) / 2 + 1).all()


def test_with_window_keeps_full_snapshots_if_they_fit() -> None:
    cut = Trapezoid(full=2, decayed=6).with_window(4)
    assert (cut.full, cut.decayed) == (2, 2)  # type: ignore[attr-defined]
    cut = Trapezoid(full=3, decayed=6).with_window(2)
    assert (cut.full, cut.decayed) == (2, 0)  # type: ignore[attr-defined]
