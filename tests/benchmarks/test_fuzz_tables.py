"""A slice of the fuzz campaign: typed tables, dates, clocks and options against plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzzing import slow_clocks, slow_values
from benchmarks.fuzzing.campaign import run_input
from benchmarks.fuzzing.tables import Tables


@pytest.mark.parametrize("part", range(3))
def test_no_input_of_the_slice_differs_from_plain_python(part: int, tmp_path: Path) -> None:
    target = Tables()
    outcomes = []
    for k in range(30 * part, 30 * (part + 1)):
        verdict, detail = run_input(target, f"slice.{k}", tmp_path / "input")
        assert verdict not in ("silent", "foreign"), f"tables:slice.{k}\n{detail}"
        outcomes.append(verdict)
    assert outcomes.count("accepted") > 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01", 0.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-01T24:00:00", 86400.0),
        ("1970-02-30", None),
        ("soon", None),
    ],
)
def test_the_oracle_knows_dates(text: str, seconds: float | None) -> None:
    assert slow_values.date(text) == seconds


def test_the_oracle_names_snapshots_that_begin_before_the_year_1() -> None:
    events: list[slow_clocks.Event] = [("a", "b", float(slow_values.YEAR_1), None, None)]
    assert slow_clocks.every(12345, events, dated=True).names == ["0000-12-31T21:09:15"]
    assert slow_clocks.every(7 * 86400, events, dated=True).names == ["0000-12-28"]
    assert slow_clocks.every(0.5, events, dated=False).names is None
