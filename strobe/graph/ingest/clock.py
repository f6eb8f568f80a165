"""Clocks: how a stream of events is cut into snapshots.

A clock reads the staged table ``events`` (columns src, dst and optionally time, weight, mark, file) and returns where
snapshots begin and their labels. Regular clocks keep snapshots without events.
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.format import file_size
from strobe.graph.arrays import Array
from strobe.graph.ingest.columns import YEAR_1, YEAR_10000, check_column_refs, is_number
from strobe.io.lazy_import import lazy_import
from strobe.io.limits import process_memory_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from strobe.graph.ingest.table import Connection
    from strobe.graph.storage import Time
else:
    pa = lazy_import("pyarrow")

TimeKind = Literal["unix", "number"]
Unit = Literal["hour", "day", "week", "month", "quarter", "year"]
UNITS: tuple[Unit, ...] = get_args(Unit)
MAX_SNAPSHOTS = 1_000_000
"""Default limit of snapshots per clock: each costs time and memory, even without events."""
SNAPSHOT_BYTES = 300
"""Least memory of a snapshot while a graph is written, even without events: start, label, offsets."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_CALENDAR = {
    "hour": ("M8[h]", 1, 0),
    "day": ("M8[D]", 1, 0),
    "week": ("M8[D]", 7, -3),
    "month": ("M8[M]", 1, 0),
    "quarter": ("M8[M]", 3, 0),
    "year": ("M8[Y]", 1, 0),
}
"""NumPy's unit of each unit, how many of them it has, and where one begins: 1969-12-29, day -3, was a Monday."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS, _CYCLE_S = 400, 146_097 * 86_400  # period of the calendar, leap years included


@dataclass(frozen=True)
class SnapshotBoundaries:
    """Events cut into snapshots: label of each snapshot, and the SQL that assigns events.

    ``starts`` are the start times of snapshots, ``end`` the end of the last one. An event belongs to the last snapshot
    that has begun, unless ``sql`` over ``source`` assigns it; a clock that goes by values has no starts.
    """

    names: list[Time]
    starts: list[float] | None = None
    end: float = math.inf
    sql: str | None = None
    source: str = "events"


class Clock(ABC):
    """Assignment of events to snapshots."""

    needs_time = True

    @abstractmethod
    def find_boundaries(self, con: Connection, kind: TimeKind, max_snapshots: int) -> SnapshotBoundaries:
        """Return the boundaries for the staged events; refuse more than ``max_snapshots``."""


class RegularClock(Clock):
    """Clock that needs only the first and the last time."""

    def find_boundaries(self, con: Connection, kind: TimeKind, max_snapshots: int) -> SnapshotBoundaries:
        return self.between(*_time_range(con), kind, max_snapshots)

    @abstractmethod
    def between(
        self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS
    ) -> SnapshotBoundaries:
        """Return the snapshots from the one that contains ``low`` to the one that contains ``high``."""


@dataclass(frozen=True)
class Every(RegularClock):
    """Snapshots of equal duration, aligned to its multiples: a day begins at midnight UTC.

    The duration is in seconds for dates and unix times, in the table's own unit for plain numbers, which refuse a
    duration ``in_seconds``.
    """

    length: float
    in_seconds: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.length, int | float) and 0 < self.length <= sys.float_info.max):
            raise OptionError(f"the length of a snapshot must be a positive number, not {self.length!r}")

    @classmethod
    def parse(cls, text: str) -> Every:
        """Parse ``30m``, ``12h``, ``7d``, ``2w``, or a plain number of time units."""
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)", text.strip())
        if match is None:
            raise OptionError(f"{text!r} is no duration: write a number and s, m, h, d or w, such as 12h or 7d")
        return cls(float(match[1]) * _SECONDS.get(match[2], 1), in_seconds=bool(match[2]))

    def between(
        self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS
    ) -> SnapshotBoundaries:
        if kind == "number" and self.in_seconds:
            raise OptionError(
                "these times are plain numbers, so a snapshot's length is one too, without a unit; "
                "if they are unix times, say so (time unit s or ms)"
            )
        try:
            first, last = self._index_at(low), self._index_at(high)
        except OverflowError:  # of converting a snapshot's number to a float
            raise OptionError(
                f"snapshots of length {self.length!r} are too short to be numbered at times from {low!r} to {high!r}: "
                "choose a longer duration"
            ) from None
        count = _check_count(last - first + 1, max_snapshots, "a longer duration")
        begins = [self._candidates(first + k) for k in range(count + 1)]
        named = [min(begin, key=lambda number: len(repr(number))) for begin in begins[:-1]]
        starts = [min(begin) for begin in begins]
        return SnapshotBoundaries(format_starts(named, kind, daily=self.length % 86400 == 0), starts[:-1], starts[-1])

    def _candidates(self, k: int) -> tuple[float, float]:
        """Return the start of snapshot k: the lesser of the product rounded once and rounded twice.

        0.3 in a table is three tenths rounded once, but 3 * 0.1 is 0.30000000000000004. Both must begin snapshot 3 of
        duration 0.1.
        """
        parts, whole = self._ratio
        return k * parts / whole, k * self.length

    def _index_at(self, time: float) -> int:
        """Return the last snapshot that has begun at a time."""
        k = math.floor(Fraction(time) / Fraction(*self._ratio))
        return k + 1 if min(self._candidates(k + 1)) <= time else k

    @cached_property
    def _ratio(self) -> tuple[int, int]:
        """Return the duration as written: 0.1 is a tenth, not the nearest float."""
        return Fraction(repr(float(self.length))).as_integer_ratio()


@dataclass(frozen=True)
class Calendar(RegularClock):
    """Snapshots per hour, day, week (from Monday), month, quarter or year of the calendar, in UTC."""

    unit: Unit

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise OptionError(f"the calendar unit must be one of {', '.join(UNITS)}, not {self.unit!r}")

    def between(
        self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS
    ) -> SnapshotBoundaries:
        if kind != "unix":
            raise OptionError(
                f"a snapshot per {self.unit} needs dates or unix times, these times are plain numbers: "
                "say which unit they have (time_unit, --time-unit of strobe ingest), or cut them by it (--every 7)"
            )
        dtype, step, monday = _CALENDAR[self.unit]

        def period(moment: np.datetime64) -> int:
            return (int(moment.astype(dtype).astype(np.int64)) - monday) // step

        # Times are rounded to microseconds: the first snapshot may begin after ``low``, or even ``high``.
        first = period(np.datetime64((_EPOCH + timedelta(seconds=low)).replace(tzinfo=None)))
        last = max(first, period(np.datetime64(math.floor(high), "s")))
        count = _check_count(last - first + 1, max_snapshots, "a longer unit")
        begins = (np.arange(first, last + 2) * step + monday).astype(dtype)
        starts = begins.astype("M8[s]").astype(np.int64).astype(float).tolist()
        end = starts[count] if starts[count] < YEAR_10000 else math.inf
        return SnapshotBoundaries(self._names(begins[:count]), [min(low, starts[0]), *starts[1:count]], end)

    def _names(self, begins: Array) -> list[Time]:
        names: list[Time] = np.datetime_as_string(begins, "m" if self.unit == "hour" else None).tolist()
        if self.unit == "quarter":
            return [f"{str(name)[:4]}-Q{(int(str(name)[5:]) + 2) // 3}" for name in names]
        return names


@dataclass(frozen=True)
class EventsEach(Clock):
    """Snapshots of ``count`` events in order of time; ties go by source, destination and weight."""

    count: int

    def __post_init__(self) -> None:
        _check_whole("the number of events in a snapshot", self.count)

    def snapshot_sql(self, con: Connection, before: int = 0) -> str:
        """Return the SQL of each event's snapshot, after ``before`` earlier events."""
        columns = [name for name, *_ in con.execute("DESCRIBE events").fetchall() if name != "file"]
        order = ", ".join(["time", *(name for name in columns if name != "time")])
        count = min(self.count, 2**62)  # a larger count is one snapshot anyway
        return f"CAST(({before} + row_number() OVER (ORDER BY {order}) - 1) // {count} AS BIGINT)"

    def find_boundaries(self, con: Connection, kind: TimeKind, max_snapshots: int) -> SnapshotBoundaries:
        row = self.snapshot_sql(con)
        rows = con.execute(
            f"SELECT min(time) FROM (SELECT time, {row} AS snap FROM events) GROUP BY snap ORDER BY snap"
        ).fetchall()
        _check_count(len(rows), max_snapshots, "more events per snapshot")
        starts = [float(start) for (start,) in rows]
        return SnapshotBoundaries(
            format_starts(starts, kind), starts, math.nextafter(_time_range(con)[1], math.inf), row
        )


@dataclass(frozen=True)
class Into(RegularClock):
    """A fixed number of snapshots of equal duration."""

    count: int

    def __post_init__(self) -> None:
        _check_whole("the number of snapshots", self.count)

    def between(
        self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS
    ) -> SnapshotBoundaries:
        _check_count(self.count, max_snapshots, "fewer")
        length = (high - low) / self.count
        if length <= 0 and self.count > 1:
            raise InputError(f"all events have one and the same time: they cannot make {self.count} snapshots")
        starts = [low + k * length for k in range(self.count)]
        return SnapshotBoundaries(format_starts(starts, kind), starts, math.nextafter(high, math.inf))


@dataclass(frozen=True)
class ByColumn(Clock):
    """One snapshot per distinct value of a column, in ascending order (numbers as numbers).

    ``values`` lists the values in order of time instead; rows with another value are refused.
    """

    column: str | int
    values: Sequence[Time] | None = None
    needs_time = False

    def __post_init__(self) -> None:
        check_column_refs(column=self.column)
        values = [] if self.values is None else self.values
        if self.column is None or isinstance(values, str) or not all(isinstance(value, str | int) for value in values):
            raise OptionError(f"a clock needs a column and a list of names or whole numbers, not {self}")

    def find_boundaries(self, con: Connection, kind: TimeKind, max_snapshots: int) -> SnapshotBoundaries:
        marks = read_marks(con)
        values = sort_marks(marks) if self.values is None else self.check_values(marks)
        _check_count(len(values), max_snapshots, "another column")
        number_marks(con, {value: k for k, value in enumerate(values)})
        return SnapshotBoundaries([mark_to_time(value) for value in values], sql="marks.snap", source=EVENTS_WITH_MARKS)

    def check_values(self, found: Iterable[str]) -> list[str]:
        """Return the listed values as text; refuse other values among those in the table."""
        assert self.values is not None
        values = [str(value) for value in self.values]
        if twice := sorted(value for value in set(values) if values.count(value) > 1):
            raise OptionError(f"the snapshots' values name {twice[0]!r} twice")
        if stray := sorted(set(found) - set(values)):
            raise InputError(f"column {self.column!r} holds {stray[0]!r}, which is not among the given values")
        return values


@dataclass(frozen=True)
class ByFile(Clock):
    """One snapshot per file, in the order of the files."""

    needs_time = False

    def find_boundaries(self, con: Connection, kind: TimeKind, max_snapshots: int) -> SnapshotBoundaries:
        names: list[Time] = [name for (name,) in con.execute("SELECT name FROM files ORDER BY file").fetchall()]
        return SnapshotBoundaries(names, sql="file")


EVENTS_WITH_MARKS = "events JOIN marks USING (mark)"
"""Events joined with the numbers of their marks as ``marks.snap``."""


def read_marks(con: Connection) -> list[str]:
    """Return the distinct values of the column that names snapshots."""
    return [mark for (mark,) in con.execute("SELECT DISTINCT mark FROM events").fetchall()]


def number_marks(con: Connection, snaps: Mapping[str, int]) -> None:
    """Create the table ``marks`` from mark to snapshot."""
    numbered = {"mark": pa.array(list(snaps), pa.string()), "snap": pa.array(list(snaps.values()), pa.int64())}
    con.register("numbered", pa.table(numbered))
    con.execute("CREATE TABLE marks AS SELECT * FROM numbered")


def sort_marks(marks: Iterable[str]) -> list[str]:
    """Sort marks, as numbers if all are numbers."""
    listed = list(marks)
    numbers = all(is_number(mark) and math.isfinite(float(mark)) for mark in listed)
    return sorted(listed, key=lambda mark: (float(mark), mark)) if numbers else sorted(listed)


def mark_to_time(mark: str) -> Time:
    """Return the label of a mark's snapshot."""
    return int(mark) if re.fullmatch(r"0|-?[1-9][0-9]{0,14}", mark) else mark


def _time_range(con: Connection) -> tuple[float, float]:
    [(low, high)] = con.execute("SELECT min(time), max(time) FROM events").fetchall()
    assert low is not None, "an empty table is refused before it is cut"
    return float(low), float(high)


def _check_whole(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise OptionError(f"{what} must be a whole number of at least 1, not {count!r}")


def _check_count(count: int, max_snapshots: int, remedy: str) -> int:
    """Return the number of snapshots if neither the caller's limit nor memory forbids it."""
    if count <= min(max_snapshots, MAX_SNAPSHOTS):
        return count
    number = f"{count:,}" if count < 10**30 else f"about 1e{len(str(count)) - 1}"
    would_make = f"this would make {number} snapshots"
    if count > max_snapshots:
        raise OptionError(
            f"{would_make}, more than {max_snapshots:,}: "
            f"choose {remedy}, or raise the limit (max_snapshots, --max-snapshots)"
        )
    if count * SNAPSHOT_BYTES > (room := process_memory_bytes()):
        raise OptionError(
            f"{would_make}, which do not fit into memory: each takes at least {SNAPSHOT_BYTES} bytes, and this process "
            f"may have {file_size(room)}. Choose {remedy}"
        )
    return count


def format_starts(starts: list[float], kind: TimeKind, *, daily: bool | None = None) -> list[Time]:
    """Format starts as labels: dates for dates, without the time of day if it is always midnight (or ``daily``),
    integers for whole numbers."""
    if kind == "number":
        return [int(start) if start == int(start) else repr(start) for start in starts]
    moments = [_moment(start) for start in starts]
    if daily is None:
        daily = all((m.hour, m.minute, m.second) == (0, 0, 0) for _, m in moments)
    # ISO 8601: the year 0000 precedes 0001, and -0001 precedes 0000.
    return [f"{year:0{4 + (year < 0)}}{m.isoformat()[4 : 10 if daily else 19]}" for year, m in moments]


def _moment(start: float) -> tuple[int, datetime]:
    """Return the year in which a snapshot begins, and a moment with its month, day and time of day.

    Events lie in the years 1 to 9999 that ``datetime`` knows, but the first snapshot may begin earlier: its moment is
    shifted by whole cycles of the calendar.
    """
    start = min(start, math.nextafter(YEAR_10000, 0))  # rounding may move a start past the last moment of 9999
    if start >= YEAR_1:
        moment = _EPOCH + timedelta(seconds=start)
        return moment.year, moment
    cycles = math.ceil((YEAR_1 - Fraction(start)) / _CYCLE_S)
    moment = _EPOCH + timedelta(seconds=float(Fraction(start) + cycles * _CYCLE_S))
    return moment.year - cycles * _CYCLE_YEARS, moment
