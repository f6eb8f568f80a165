"""Formatting of numbers, durations and text columns for people."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence


def format_count(number: float) -> str:
    """Format a count, rounded to an integer: 12,345."""
    return f"{number:,.0f}"


def pluralize(number: int, noun: str) -> str:
    """Format a count with its noun: 1 snapshot, 2,000 snapshots, 3 batches."""
    more = "es" if noun.endswith(("tch", "s", "x")) else "s"
    return f"{format_count(number)} {noun}" if number == 1 else f"{format_count(number)} {noun}{more}"


def format_short(number: float) -> str:
    """Format a count in at most seven characters below 1e12: 12,345 and 11.97M."""
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.4g}{unit}" if number < 1000 * limit else f"{number / limit:,.0f}{unit}"
    return format_count(number)


def percent(share: float) -> str:
    """Format a fraction: 97%, 0.4%. Rounds neither a positive one to 0% nor one below 1 to 100%."""
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.995 <= share < 1:
        return f"{min(100 * share, 99.9):.1f}%"
    return f"{100 * share:.1f}%" if share < 0.0995 and share else f"{100 * share:.0f}%"


def format_ratio(factor: float) -> str:
    """Format a factor: 1.60 times, 14 times."""
    return f"{factor:.2f} times" if factor < 2 else f"{factor:.1f} times" if factor < 10 else f"{factor:,.0f} times"


def file_size(num_bytes: float) -> str:
    """Format a number of bytes: 12.3 MiB."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        num_bytes /= 1024
        if num_bytes < 1024:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1024:.1f} TiB"


def format_metric(value: float | None) -> str:
    """Format a metric: 0.1234, 12.35, 1.2e+06; – if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return "–"
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """Format seconds: 35 ms, 4.2 s, 3:25 min, 2:03 h."""
    if seconds < 0.9995:
        return f"{max(seconds * 1000, 0):.0f} ms" if seconds >= 0.00995 else f"{seconds * 1000:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def wrap_line(text: str) -> list[str]:
    """Split a line into lines of at most 80 columns, only after a comma, colon or semicolon."""
    parts = re.sub(r"(?<![,:;]) ", "\u00a0", text)
    lines = textwrap.wrap(parts, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def align_columns(rows: Sequence[Sequence[str]], *, text_columns: int = 0, gap: int = 1) -> list[str]:
    """Align the cells of rows: the first ``text_columns`` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if k < text_columns else ">" for k in range(len(widths))]
    return [
        (" " * gap).join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]
