"""Batchings of whole snapshots: full, windows and groups."""

from __future__ import annotations

from strobe.batching import Full, Groups, Windows
from tests.support.placement_cases import chain

GRAPH = chain([3] * 8)


def test_groups_start_from_the_initial_state() -> None:
    batches = Groups(size=4).batches(GRAPH, range(8), hops=1)
    assert [(batch.times, batch.target_times) for batch in batches] == [
        (range(4), range(4)),
        (range(4, 8), range(4, 8)),
    ]
    assert not any(batch.continues_state for batch in batches)


def test_overlapping_groups_have_examples_in_new_snapshots() -> None:
    batches = Groups(size=4, stride=2).batches(GRAPH, range(8), hops=1)
    assert [(batch.times, batch.target_times) for batch in batches[1:]] == [
        (range(0, 4), range(2, 4)),
        (range(2, 6), range(4, 6)),
        (range(4, 8), range(6, 8)),
    ]


def test_windows_are_consecutive_and_carry_states() -> None:
    batches = Windows(size=3).batches(GRAPH, range(1, 8), hops=1)
    assert [batch.times for batch in batches] == [range(1, 4), range(4, 7), range(7, 8)]
    assert all(batch.target_times == batch.times and batch.continues_state for batch in batches)


def test_full_is_one_batch() -> None:
    (batch,) = Full().batches(GRAPH, range(1, 7), hops=1)
    assert batch.times == batch.target_times == range(1, 7)
    assert (batch.seed_nodes, batch.continues_state) == (None, True)
