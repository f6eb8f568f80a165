from __future__ import annotations

import pytest

from strobe.batching import Windows
from strobe.errors import OptionError
from tests.support.placement_cases import chain

GRAPH = chain([3] * 8)


def test_windows_are_consecutive_and_carry_states() -> None:
    batches = Windows(size=3).batches(GRAPH, range(1, 8), hops=1)
    assert [batch.times for batch in batches] == [range(1, 4), range(4, 7), range(7, 8)]
    assert all(batch.target_times == batch.times and batch.continues_state for batch in batches)


def test_size_0_is_refused() -> None:
    with pytest.raises(OptionError, match="a window has at least 1 snapshot, not 0"):
        Windows(size=0)
