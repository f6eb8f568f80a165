"""What ids, times and weights written as text stand for, in plain Python: the oracle of the fuzz targets."""

from __future__ import annotations

import re
import statistics
from datetime import UTC, datetime, timedelta, timezone

import numpy as np

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_1, YEAR_10000 = -62135596800, 253402300800
_DIGITS = "0123456789"


def bare(text: str) -> str:
    """The text without spaces and tabs around it."""
    return text.strip(" \t")


def integer(text: str) -> int | None:
    """A whole number in ASCII digits, with or without a minus."""
    digits = bare(text).removeprefix("-")
    return int(bare(text)) if digits and all(c in _DIGITS for c in digits) else None


def number(text: str) -> float | None:
    """A decimal number, with or without a sign, a point and an exponent; not inf and nan."""
    match = re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", bare(text), flags=re.ASCII)
    return float(bare(text)) if match else None


def node_id(text: str, kind: str) -> int | str | None:
    """An id, None where the text is none."""
    if kind == "string":
        return text or None
    value = integer(text)
    return value if value is not None and 0 <= value < 2**63 else None


def weight(text: str) -> float | None:
    """A weight as float32."""
    value = number(text)
    if value is None:
        return None
    with np.errstate(over="ignore"):
        kept = float(np.float32(value))
    return kept if np.isfinite(kept) else None


def time(text: str, unit: str) -> float | None:
    """A time in seconds since 1970, or as a plain number."""
    if unit == "iso":
        seconds = date(text)
        return seconds if seconds is not None and YEAR_1 <= seconds < YEAR_10000 else None
    value = number(text)
    if value is None:
        return None
    value = value / 1000 if unit == "ms" else value
    low, high = (-(2**53), 2**53) if unit == "number" else (YEAR_1, YEAR_10000)
    return value if low <= value < high else None


def date(text: str) -> float | None:
    """An ISO date, month, or date and time, in seconds since 1970; without a zone it is UTC."""
    text = bare(text)
    match = re.fullmatch(r"(\d{4})-(\d{1,2})", text, flags=re.ASCII)
    if match:
        return _seconds(int(match[1]), int(match[2]), 1)
    match = re.fullmatch(
        r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
        r"(?:[T ](\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z| UTC|[+-]\d\d(?::?\d\d)?)?)?",
        text,
        flags=re.ASCII,
    )
    if match is None:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = match.groups()
    microsecond = int((fraction or "0").ljust(6, "0")[:6])
    offset = _offset(zone)
    if offset is None:
        return None
    parts = int(hour or 0), int(minute or 0), int(second or 0), microsecond
    return _seconds(int(year), int(month), int(day), *parts, offset=offset)


def _offset(zone: str | None) -> timedelta | None:
    if zone in (None, "Z", " UTC"):
        return timedelta(0)
    assert zone is not None
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 15 or minutes > 59:
        return None
    return (timedelta(hours=hours, minutes=minutes)) * (-1 if zone[0] == "-" else 1)


def _seconds(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0,
    *, offset: timedelta = timedelta(0),
) -> float | None:  # fmt: skip
    late = hour == 24 and minute == second == micro == 0  # the midnight at which a day ends
    try:
        moment = datetime(year, month, day, 0 if late else hour, minute, second, micro, tzinfo=timezone.utc)  # noqa: UP017
    except ValueError:
        return None
    since = moment - EPOCH - offset + (timedelta(days=1) if late else timedelta(0))
    return (since // timedelta(microseconds=1)) / 1_000_000


def guessed_ids(samples: list[str]) -> str:
    """Integers where at least half of the samples are, and none is padded with zeros."""
    given = [bare(sample) for sample in samples if bare(sample)]
    whole = [sample for sample in given if re.fullmatch(r"-?[0-9]+", sample)]
    padded = any(sample[0] == "0" and len(sample) > 1 for sample in whole)
    return "integer" if len(whole) * 2 >= len(given) and not padded else "string"


def guessed_unit(samples: list[str]) -> str:
    """Dates, unix milliseconds, unix seconds, or plain numbers, as most samples are."""
    given = [bare(sample) for sample in samples if bare(sample)]
    numbers = [abs(found) for sample in given if (found := number(sample)) is not None]
    numbers = [found for found in numbers if found < float("inf")]
    if sum(len(sample) >= 6 and "-" in sample[1:] for sample in given) > len(numbers):
        return "iso"
    typical = statistics.median(numbers) if numbers else 0.0
    return "number" if typical < 1e8 else "s" if typical < 1e11 else "ms"
