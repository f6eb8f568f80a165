from __future__ import annotations

import pytest

from strobe.batching import Groups
from strobe.errors import OptionError
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


def test_size_0_is_refused() -> None:
    with pytest.raises(OptionError, match="a group has at least 1 snapshot, not 0"):
        Groups(size=0)


def test_stride_above_size_is_refused() -> None:
    with pytest.raises(OptionError, match="groups of 3 begin 1 to 3 snapshots apart, not 4"):
        Groups(size=3, stride=4)
