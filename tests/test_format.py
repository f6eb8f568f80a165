from __future__ import annotations

from strobe.format import align_columns, duration, format_metric, wrap_line


def test_metrics_and_durations_are_short() -> None:
    metrics = " ".join(map(format_metric, (0.12345, 12.345, 1e-5, 123456.0, None)))
    assert metrics == "0.1235 12.35 1e-05 1.23e+05 –"
    assert [duration(s) for s in (0.0012, 0.035, 4.21, 205, 7380)] == ["1.2 ms", "35 ms", "4.2 s", "3:25 min", "2:03 h"]
    assert [duration(s) for s in (0.00994, 0.00996, 0.9994, 0.9996)] == ["9.9 ms", "10 ms", "999 ms", "1.0 s"]
    assert [duration(s) for s in (59.94, 59.96)] == ["59.9 s", "1:00 min"]


def test_wrap_line_breaks_after_commas_only() -> None:
    text = "sent: " + ", ".join(f"kind number {k} {k}.5 KiB" for k in range(9))
    lines = wrap_line(text)
    assert max(map(len, lines)) <= 80
    assert len(lines) > 1
    assert all(line.endswith((",", "KiB")) for line in lines)
    assert " ".join(line.strip() for line in lines) == text


def test_number_columns_align_right() -> None:
    assert align_columns([["a", "1"], ["long", "234"]], text_columns=1, gap=2) == ["a       1", "long  234"]
