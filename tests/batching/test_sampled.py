from __future__ import annotations

from strobe.batching import Sampled


def test_last_fanout_holds_for_further_hops() -> None:
    assert Sampled(fanouts=(5, 10)).fanouts_by_hop(3) == [5, 10, 10]
    assert Sampled(fanouts=7).fanouts_by_hop(2) == [7, 7]


def test_window_ends_with_its_snapshot() -> None:
    sampling = Sampled(history=3)
    assert (sampling.times(5), sampling.times(1), sampling.times(5, 4)) == (range(3, 6), range(2), range(4, 6))
    assert Sampled().with_window(6) == Sampled(history=6)
