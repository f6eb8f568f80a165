from __future__ import annotations

import pytest

from strobe.errors import InputError
from strobe.placement.stretches import stretches


def test_windows_are_stretches_and_so_is_what_lies_between_them() -> None:
    assert stretches([range(6, 8), range(2, 4)], 9) == [range(2), range(2, 4), range(4, 6), range(6, 8), range(8, 9)]


def test_without_windows_all_snapshots_are_one_stretch() -> None:
    assert stretches([], 5) == stretches([range(3, 3)], 5) == [range(5)]


def test_a_graph_without_snapshots_has_no_stretches() -> None:
    assert stretches([], 0) == []


def test_windows_that_overlap_are_cut_where_the_other_begins() -> None:
    assert stretches([range(0, 3), range(2, 5)], 5) == [range(2), range(2, 3), range(3, 5)]


@pytest.mark.parametrize("window", [range(2, 6), range(-1, 2), range(0, 4, 2)])
def test_a_window_that_is_no_stretch_of_the_graph_is_refused(window: range) -> None:
    with pytest.raises(InputError, match="5 snapshots, not range"):
        stretches([window], 5)
