from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.batching import Trapezoid
from strobe.batching.decay import Decay, survival
from strobe.errors import OptionError

decays = st.builds(Decay, st.integers(1, 5), st.integers(0, 9), st.floats(0.001, 1))


def test_what_is_kept_shrinks_by_one_factor_rounded_down() -> None:
    """N' = floor(beta N) with beta = keep^(1 / decayed), by hand: beta is 1/2."""
    assert Decay(2, 3, 0.125).kept(20) == (20, 20, 10, 5, 2)


def test_something_is_always_kept() -> None:
    assert Decay(1, 5, 0.01).kept(3) == (3, 1, 1, 1, 1, 1)
    assert Decay(1, 2, 0.5).kept(0) == (0, 0, 0)


@given(decays, st.integers(1, 500))
def test_blocks_are_nested_and_the_newest_ones_whole(decay: Decay, chunks: int) -> None:
    kept = decay.kept(chunks)
    assert len(kept) == decay.window
    assert kept[: decay.full] == (chunks,) * decay.full
    assert all(newer >= older >= 1 for newer, older in pairwise(kept))
    assert all(older == chunks for older in kept) or not decay.whole
    assert kept[-1] <= max(1, math.ceil(chunks * decay.keep)) or decay.whole


@given(decays, st.integers(0, 40), st.integers(0, 40))
def test_a_window_ends_with_its_snapshot_and_stays_in_its_stretch(decay: Decay, first: int, more: int) -> None:
    times = decay.times(first + more, first)
    assert times[-1] == first + more
    assert times.start >= first
    assert len(times) == min(decay.window, more + 1)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(0, 5))
def test_every_beginning_of_the_order_is_shared_evenly_among_ranks(ranks: list[int], seed: int) -> None:
    rank_of_chunk = np.array(ranks)
    place = survival(rank_of_chunk, (seed, 1))
    assert sorted(place.tolist()) == list(range(len(ranks)))
    np.testing.assert_array_equal(place, survival(rank_of_chunk, (seed, 1)))
    in_order = rank_of_chunk[np.argsort(place)]
    for rank in set(ranks):
        share = (rank_of_chunk == rank).mean()
        taken = np.cumsum(in_order == rank)
        assert (np.abs(taken - share * np.arange(1, len(ranks) + 1)) <= len(set(ranks)) / 2 + 1).all()


def test_epochs_have_other_orders() -> None:
    ranks = np.arange(64) % 2
    assert not np.array_equal(survival(ranks, (0, 1)), survival(ranks, (0, 2)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"full": 0}, "at least 1 snapshot is computed whole, not 0"),
        ({"decayed": -1}, "must be 0 or more, not -1"),
        ({"keep": 0.0}, "a share above 0 and up to 1, not 0.0"),
        ({"keep": 1.5}, "a share above 0 and up to 1, not 1.5"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Trapezoid(**options)  # type: ignore[arg-type]


def test_a_window_of_another_length_keeps_its_full_snapshots_if_it_can() -> None:
    cut = Trapezoid(full=2, decayed=6).cut(4)
    assert (cut.full, cut.decayed) == (2, 2)  # type: ignore[attr-defined]
    cut = Trapezoid(full=3, decayed=6).cut(2)
    assert (cut.full, cut.decayed) == (2, 0)  # type: ignore[attr-defined]
