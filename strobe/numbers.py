"""Numbers for people."""

from __future__ import annotations


def count(number: float) -> str:
    """12,345; rounded to a whole number."""
    return f"{number:,.0f}"


def number_of(number: int, noun: str) -> str:
    """1 snapshot, 2,000 snapshots, 3 batches."""
    more = "es" if noun.endswith(("tch", "s", "x")) else "s"
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}{more}"


def short(number: float) -> str:
    """At most seven characters up to a million millions: 12,345 and 11.97M."""
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.4g}{unit}" if number < 1000 * limit else f"{number / limit:,.0f}{unit}"
    return count(number)


def percent(share: float) -> str:
    """A share of 0.974 is 97%, 0.0041 is 0.4%; almost nothing and almost all are never rounded away."""
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.995 <= share < 1:
        return f"{min(100 * share, 99.9):.1f}%"
    return f"{100 * share:.1f}%" if share < 0.0995 and share else f"{100 * share:.0f}%"


def times(factor: float) -> str:
    """1.6 times, 14 times."""
    return f"{factor:.2f} times" if factor < 2 else f"{factor:.1f} times" if factor < 10 else f"{factor:,.0f} times"


def file_size(num_bytes: float) -> str:
    """12.3 MiB."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        num_bytes /= 1024
        if num_bytes < 1024:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1024:.1f} TiB"
