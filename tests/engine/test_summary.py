from __future__ import annotations

import pytest

from strobe.engine.summary import compared, duration, figure, score_table, verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "higher", "words"),
    [
        (0.62, 1.0, False, "38% better than"),
        (1.05, 1.0, False, "5.0% worse than"),
        (0.9, 0.6, True, "50% better than"),
        (0.3, 0.6, True, "50% worse than"),
        (0.99999, 1.0, False, "<0.1% better than"),
        (1.0, 1.0, True, "no better than"),
        (0.5, 0.0, True, "better than"),
        (50.0, 1.0, False, "50 times as bad as"),
        (0.8, 0.01, True, "80 times as good as"),
        (None, 1.0, True, ""),
        (float("nan"), 1.0, True, ""),
    ],
)
def test_comparisons_are_words(ours: float | None, theirs: float, higher: bool, words: str) -> None:
    assert compared(ours, theirs, higher) == words


def test_a_table_has_a_row_for_everybody() -> None:
    lines = score_table("test", "tgcn", {"mse": 0.5, "mae": 12.0}, {"last value": {"mse": 1.0}})
    assert [line.split() for line in lines] == [
        ["test", "mse", "mae"],
        ["tgcn", "0.5000", "12.00"],
        ["last", "value", "1.0000", "–"],
    ]
    assert len({len(line) for line in lines}) == 1
    assert score_table("test", "tgcn", {}, {}) == ["test: nothing could be asked"]


def test_a_verdict_names_every_baseline() -> None:
    said = verdict({"ap": 0.9}, {"popularity": {"ap": 0.6}, "odd": {}}, "ap", True)
    assert said == "ap: 50% better than popularity"


def test_numbers_and_durations_are_short() -> None:
    assert [figure(v) for v in (0.12345, 12.345, 1e-5, 123456.0, None)] == ["0.1235", "12.35", "1e-05", "1.23e+05", "–"]
    assert [duration(s) for s in (0.0012, 0.035, 4.21, 205, 7380)] == ["1.2 ms", "35 ms", "4.2 s", "3:25 min", "2:03 h"]
