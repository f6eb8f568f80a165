from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import InputError, OptionError
from strobe.tasks.split import PARTS, Split, split_points


@given(st.integers(3, 2000), st.integers(1, 98), st.integers(1, 98))
def test_parts_are_consecutive_and_cover_all_snapshots(samples: int, train: int, validation: int) -> None:
    if train + validation > 99:
        return
    split = Split.by_time(samples, train / 100, validation / 100)
    assert [*split.train, *split.validation, *split.test] == list(range(samples))
    assert min(len(split.part(name)) for name in PARTS) >= 1
    assert all(split.part_of(t) == name for name in PARTS for t in split.part(name))


@pytest.mark.parametrize(
    ("number", "train", "validation", "expected"),
    [
        (29, 0.7, 0.1, (20, 23)),
        (10, 0.7, 0.1, (7, 8)),  # 10 · (0.7 + 0.1) is 7.999…, and 8 is meant
        (3, 0.98, 0.01, (1, 2)),
        (3, 0.01, 0.01, (1, 2)),
        (1000, 0.1, 0.2, (100, 300)),
    ],
)
def test_boundaries_are_rounded_down(number: int, train: float, validation: float, expected: tuple[int, int]) -> None:
    assert split_points(number, train, validation) == expected


@pytest.mark.parametrize(("train", "validation"), [(0, 0.1), (0.7, 0), (0.9, 0.1), (1.2, -0.3), (float("nan"), 0.1)])
def test_shares_that_leave_a_part_empty_are_refused(train: float, validation: float) -> None:
    with pytest.raises(OptionError, match="leave something for testing"):
        Split.by_time(10, train, validation)


@pytest.mark.parametrize("samples", [-3, 0, 2])
def test_too_few_snapshots_are_refused(samples: int) -> None:
    with pytest.raises(InputError, match=f"{max(samples, 0)} snapshots have targets, at least 3"):
        Split.by_time(samples)
