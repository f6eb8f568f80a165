"""Which snapshot an event belongs to and what that is called, in plain Python: the oracle of the fuzz target tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from benchmarks.fuzzing.slow_reader import RefusedError
from benchmarks.fuzzing.slow_values import EPOCH

Event = tuple[Any, Any, float, float | None, Any]
"""Source, destination, time, weight, mark."""


@dataclass
class Cut:
    """The snapshot of each event, and the names of all snapshots (None where the oracle does not know them)."""

    snaps: list[int]
    names: list[Any] | None
    count: int


def every(length: float, events: Sequence[Event], *, dated: bool) -> Cut:
    """Stretches aligned to multiples of the length, as decimal numbers. Dates are cut into whole seconds."""
    numbers = [math.floor(Decimal(repr(time)) / Decimal(str(length))) for _, _, time, _, _ in events]
    first, last = min(numbers), max(numbers)
    if last - first > 20_000:
        raise RefusedError("too many snapshots")
    names = None
    if dated:
        names = [_start(number * int(length), daily=length % 86400 == 0) for number in range(first, last + 1)]
    return Cut([number - first for number in numbers], names, last - first + 1)


def _start(seconds: int, *, daily: bool) -> str:
    """A moment by numpy's calendar, which also has years before the year 1: the first of them is 0000."""
    text = str(np.datetime64(seconds, "s"))
    assert text[0] != "-", "the oracle has no name for this"
    return text[:10] if daily else text


def calendar(unit: str, events: Sequence[Event]) -> Cut:
    """Units of the calendar in UTC; no unit between the first and the last event is left out."""
    key, following = _UNITS[unit]
    moments = [EPOCH + timedelta(microseconds=round(time * 1_000_000)) for _, _, time, _, _ in events]
    at, names = min(moments), list[str]()
    last = key(max(moments))
    while not names or names[-1] != last:
        if not names or key(at) != names[-1]:
            names.append(key(at))
        if len(names) > 20_000:
            raise RefusedError("too many snapshots")
        if names[-1] != last:
            at = following(at)
    return Cut([names.index(key(moment)) for moment in moments], list(names), len(names))


def _week(moment: datetime) -> str:
    return (moment - timedelta(days=moment.weekday())).strftime("%Y-%m-%d").zfill(10)


def _quarter(moment: datetime) -> str:
    return f"{moment.year:04}-Q{(moment.month - 1) // 3 + 1}"


# A unit's name, and a step that leaves none out.
_UNITS: dict[str, tuple[Callable[[datetime], str], Callable[[datetime], datetime]]] = {
    "hour": (lambda m: f"{m.date().isoformat()}T{m.hour:02}:00", lambda m: m + timedelta(hours=1)),
    "day": (lambda m: m.date().isoformat(), lambda m: m + timedelta(days=1)),
    "week": (_week, lambda m: m + timedelta(days=7)),
    "month": (lambda m: f"{m.year:04}-{m.month:02}", lambda m: m + timedelta(days=27)),
    "quarter": (_quarter, lambda m: m + timedelta(days=80)),
    "year": (lambda m: f"{m.year:04}", lambda m: m + timedelta(days=360)),
}


def events_each(size: int, events: Sequence[Event]) -> Cut:
    """Equally many events each, in order of time, source, destination and weight."""
    order = sorted(range(len(events)), key=lambda k: (events[k][2], *events[k][:2], events[k][3] or 0.0))
    snaps = [0] * len(events)
    for place, k in enumerate(order):
        snaps[k] = place // size
    return Cut(snaps, None, (len(events) - 1) // size + 1)


def into(count: int, events: Sequence[Event]) -> Cut:
    """Equal lengths between the first and the last event."""
    times = [event[2] for event in events]
    low, length = min(times), (max(times) - min(times)) / count
    if length <= 0:
        if count > 1:
            raise RefusedError("one time")
        return Cut([0] * len(events), None, 1)
    return Cut([sum(low + k * length <= time for k in range(count)) - 1 for time in times], None, count)


def by_column(events: Sequence[Event]) -> Cut:
    """Distinct marks, numbers as numbers."""
    marks = sorted({str(event[4]) for event in events})
    if all(mark.isdecimal() for mark in marks):
        marks.sort(key=int)
    names = [int(mark) if mark.isdecimal() and str(int(mark)) == mark else mark for mark in marks]
    return Cut([marks.index(str(event[4])) for event in events], names, len(marks))
