"""Clocks: how a stream of events is cut into snapshots.

A clock looks at the staged table ``events`` (columns src, dst and, as given, time, weight, mark, file) and says
where snapshots begin and what they are called. Snapshots without events are kept wherever time is regular.
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
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from strobe.errors import InputError, OptionError
from strobe.graph.ingest.columns import is_number, refuse_no_column

if TYPE_CHECKING:
    import duckdb

    from strobe.graph.storage import Time

TimeKind = Literal["unix", "number"]
Unit = Literal["hour", "day", "week", "month", "quarter", "year"]
UNITS: tuple[Unit, ...] = ("hour", "day", "week", "month", "quarter", "year")
MAX_SNAPSHOTS = 1_000_000
"""Snapshots a clock may make unless the caller allows more: each costs time and memory, also without events."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST_DAYS = {"hour": 1 / 24, "day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cut:
    """Events cut into snapshots: what each snapshot is called, and how an event finds its own.

    ``starts`` are the times at which snapshots begin, and ``end`` is the time at which the last one is over. An event
    belongs to the last one that has begun, unless ``sql`` over ``source`` says otherwise; a clock that goes by values
    instead of times has no starts.
    """

    names: list[Time]
    starts: list[float] | None = None
    end: float = math.inf
    sql: str | None = None
    source: str = "events"


class Clock(ABC):
    """Decides to which snapshot an event belongs."""

    needs_time = True

    @abstractmethod
    def cut(self, con: duckdb.DuckDBPyConnection, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        """Looks at the staged events and says where the cuts are; more than ``max_snapshots`` are refused."""


class Regular(Clock):
    """A clock that only the first and the last time must be known for."""

    def cut(self, con: duckdb.DuckDBPyConnection, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        return self.between(*_time_range(con), kind, max_snapshots)

    @abstractmethod
    def between(self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        """The snapshots from the one that holds ``low`` to the one that holds ``high``."""


@dataclass(frozen=True)
class Every(Regular):
    """A snapshot per stretch of time, aligned to its multiples: a day begins at midnight UTC.

    The length is in seconds for dates and unix times, in the table's own unit for plain numbers, for which a length
    ``in_seconds`` is refused.
    """

    length: float
    in_seconds: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.length, int | float) and 0 < self.length <= sys.float_info.max):
            raise OptionError(f"the length of a snapshot must be a positive number, not {self.length!r}")

    @classmethod
    def parse(cls, text: str) -> Every:
        """From ``30m``, ``12h``, ``7d``, ``2w``, or a plain number of time units."""
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)", text.strip())
        if match is None:
            raise OptionError(f"{text!r} is no duration: write a number and s, m, h, d or w, such as 12h or 7d")
        return cls(float(match[1]) * _SECONDS.get(match[2], 1), in_seconds=bool(match[2]))

    def between(self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        if kind == "number" and self.in_seconds:
            raise OptionError(
                "these times are plain numbers, so a snapshot's length is one too, without a unit; "
                "if they are unix times, say so (time unit s or ms)"
            )
        first = self._number(low)
        count = _checked_count(self._number(high) - first + 1, max_snapshots, "a longer duration")
        begins = [self._candidates(first + k) for k in range(count + 1)]
        named = [_shorter(*begin) for begin in begins[:-1]]
        starts = [min(begin) for begin in begins]
        return Cut(names_of(named, kind, daily=self.length % 86400 == 0), starts[:-1], starts[-1])

    def _candidates(self, k: int) -> tuple[float, float]:
        """Where snapshot k begins: the length times k, rounded once and rounded twice.

        0.3 written in a table is three tenths, rounded once; 3 * 0.1 is 0.30000000000000004. Both shall begin snapshot
        3 of length 0.1: it begins at the lesser of the two.
        """
        parts, whole = self._ratio
        return k * parts / whole, k * self.length

    def _number(self, time: float) -> int:
        """The last snapshot that has begun at a time."""
        k = math.floor(Fraction(time) / Fraction(*self._ratio))
        return k + 1 if min(self._candidates(k + 1)) <= time else k

    @cached_property
    def _ratio(self) -> tuple[int, int]:
        """The length as it is written: 0.1 is a tenth, not the float next to it."""
        return Fraction(repr(float(self.length))).as_integer_ratio()


def _shorter(one: float, other: float) -> float:
    """The number that is written with fewer digits."""
    return min(one, other, key=lambda number: len(repr(number)))


@dataclass(frozen=True)
class Calendar(Regular):
    """A snapshot per hour, day, week (from Monday), month, quarter or year of the calendar, in UTC."""

    unit: Unit

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise OptionError(f"the calendar unit must be one of {', '.join(UNITS)}, not {self.unit!r}")

    def between(self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        if kind != "unix":
            raise OptionError(
                f"a snapshot per {self.unit} needs dates or unix times, these times are plain numbers: "
                "say which unit they have (time_unit, --time-unit of strobe ingest), or cut them by it (--every 7)"
            )
        _checked_count(
            int((high - low) / (_LONGEST_DAYS[self.unit] * 86400)), max_snapshots, "a longer unit", at_least=True
        )
        begins, at = list[datetime](), self._truncate(_EPOCH + timedelta(seconds=low))
        end = math.inf
        while (begin := (at - _EPOCH).total_seconds()) <= high:
            begins.append(at)
            _checked_count(len(begins), max_snapshots, "a longer unit", at_least=True)
            try:
                at = self._next(at)
            except OverflowError:  # after the year 9999
                break
        else:
            end = begin
        starts = [(begin - _EPOCH).total_seconds() for begin in begins]
        return Cut([self._name(begin) for begin in begins], _from(low, starts), end)

    def _truncate(self, moment: datetime) -> datetime:
        hour = moment.replace(minute=0, second=0, microsecond=0)
        day = hour.replace(hour=0)
        match self.unit:
            case "hour":
                return hour
            case "day":
                return day
            case "week":
                return day - timedelta(days=day.weekday())
            case "month":
                return day.replace(day=1)
            case "quarter":
                return day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
            case "year":
                return day.replace(day=1, month=1)

    def _next(self, start: datetime) -> datetime:
        """The beginning of the following period; 32 days, 93 days and 366 days always reach into it."""
        step = _LONGEST_DAYS[self.unit]
        return self._truncate(start + timedelta(days=step + (self.unit in ("month", "quarter"))))

    def _name(self, start: datetime) -> str:
        match self.unit:
            case "hour":
                return start.isoformat()[:16]
            case "month":
                return start.isoformat()[:7]
            case "quarter":
                return f"{start.year:04}-Q{(start.month + 2) // 3}"
            case "year":
                return f"{start.year:04}"
            case _:
                return start.isoformat()[:10]


@dataclass(frozen=True)
class EventsEach(Clock):
    """A snapshot per so many events in order of time; equal times go by source, destination and weight."""

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise OptionError(f"a snapshot needs a whole number of events, at least one, not {self.count!r}")

    def number(self, con: duckdb.DuckDBPyConnection, before: int = 0) -> str:
        """SQL of the snapshot each event belongs to, if so many events came before them."""
        columns = [name for name, *_ in con.execute("DESCRIBE events").fetchall() if name != "file"]
        order = ", ".join(["time", *(name for name in columns if name != "time")])
        count = min(self.count, 2**62)  # more events than that there are none
        return f"CAST(({before} + row_number() OVER (ORDER BY {order}) - 1) // {count} AS BIGINT)"

    def cut(self, con: duckdb.DuckDBPyConnection, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        row = self.number(con)
        found = con.execute(
            f"SELECT min(time) FROM (SELECT time, {row} AS snap FROM events) GROUP BY snap ORDER BY snap"
        ).fetchall()
        _checked_count(len(found), max_snapshots, "more events per snapshot")
        starts = [float(start) for (start,) in found]
        return Cut(names_of(starts, kind), starts, math.nextafter(_time_range(con)[1], math.inf), row)


@dataclass(frozen=True)
class Into(Regular):
    """A given number of snapshots of equal length in time."""

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise OptionError(f"the number of snapshots must be a whole one, at least 1, not {self.count!r}")

    def between(self, low: float, high: float, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        _checked_count(self.count, max_snapshots, "fewer")
        length = (high - low) / self.count
        if length <= 0:
            if self.count > 1:
                raise InputError(f"all events have one and the same time: they cannot make {self.count} snapshots")
            return Cut(names_of([low], kind), [low], math.nextafter(high, math.inf))
        starts = [low + k * length for k in range(self.count)]
        return Cut(names_of(starts, kind), starts, math.nextafter(high, math.inf))


@dataclass(frozen=True)
class ByColumn(Clock):
    """A snapshot per distinct value of a column, in ascending order (numbers as numbers).

    ``values`` lists the values instead, in the order of time; rows with another value are refused.
    """

    column: str | int
    values: Sequence[Time] | None = None
    needs_time = False

    def __post_init__(self) -> None:
        refuse_no_column(column=self.column)
        given = [] if self.values is None else self.values
        if self.column is None or isinstance(given, str) or not all(isinstance(value, str | int) for value in given):
            raise OptionError(f"a clock needs a column and a list of names or whole numbers, not {self}")

    def cut(self, con: duckdb.DuckDBPyConnection, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        found = marks_of(con)
        values = ascending(found) if self.values is None else self.listed(found)
        _checked_count(len(values), max_snapshots, "another column")
        number_marks(con, {value: k for k, value in enumerate(values)})
        return Cut([time_of(value) for value in values], sql="marks.snap", source=MARKED)

    def listed(self, found: Iterable[str]) -> list[str]:
        """The values that were listed, as text; others among those found are refused."""
        assert self.values is not None
        values = [str(value) for value in self.values]
        if twice := sorted(value for value in set(values) if values.count(value) > 1):
            raise OptionError(f"the snapshots' values name {twice[0]!r} twice")
        if stray := sorted(set(found) - set(values)):
            raise InputError(f"column {self.column!r} holds {stray[0]!r}, which is not among the given values")
        return values


@dataclass(frozen=True)
class ByFile(Clock):
    """A snapshot per file, in the order the files were given."""

    needs_time = False

    def cut(self, con: duckdb.DuckDBPyConnection, kind: TimeKind, max_snapshots: int = MAX_SNAPSHOTS) -> Cut:
        names: list[Time] = [name for (name,) in con.execute("SELECT name FROM files ORDER BY file").fetchall()]
        return Cut(names, sql="file")


MARKED = "events JOIN marks USING (mark)"
"""Events with the numbers of their marks as ``marks.snap``."""


def marks_of(con: duckdb.DuckDBPyConnection) -> list[str]:
    """The values of the column that names snapshots."""
    return [mark for (mark,) in con.execute("SELECT DISTINCT mark FROM events").fetchall()]


def number_marks(con: duckdb.DuckDBPyConnection, snaps: Mapping[str, int]) -> None:
    """Makes the table ``marks`` of the snapshot each mark stands for."""
    numbered = {"mark": pa.array(list(snaps), pa.string()), "snap": pa.array(list(snaps.values()), pa.int64())}
    con.register("numbered", pa.table(numbered))
    con.execute("CREATE TABLE marks AS SELECT * FROM numbered")


def ascending(marks: Iterable[str]) -> list[str]:
    """Marks in the order of time: numbers as numbers, if all are."""
    listed = list(marks)
    numbers = all(is_number(mark) and math.isfinite(float(mark)) for mark in listed)
    return sorted(listed, key=lambda mark: (float(mark), mark)) if numbers else sorted(listed)


def time_of(mark: str) -> Time:
    """What a snapshot is called that a mark stands for."""
    return int(mark) if re.fullmatch(r"0|-?[1-9][0-9]{0,14}", mark) else mark


def _from(low: float, starts: list[float]) -> list[float]:
    """Starts that leave no event out: a rounded first one may lie a hair after the first event."""
    return [min(low, starts[0]), *starts[1:]]


def _time_range(con: duckdb.DuckDBPyConnection) -> tuple[float, float]:
    [(low, high)] = con.execute("SELECT min(time), max(time) FROM events").fetchall()
    assert low is not None, "an empty table is refused before it is cut"
    return float(low), float(high)


def _checked_count(count: int, max_snapshots: int, remedy: str, *, at_least: bool = False) -> int:
    if count > max_snapshots:
        number = f"{count:,}" if count < 10**30 else f"about 1e{len(str(count)) - 1}"
        raise OptionError(
            f"this would make {'at least ' if at_least else ''}{number} snapshots, more than {max_snapshots:,}: "
            f"choose {remedy}, or allow so many (max_snapshots, --max-snapshots)"
        )
    return count


def names_of(starts: list[float], kind: TimeKind, *, daily: bool | None = None) -> list[Time]:
    """Starts for people: dates where they are dates, without the time of day if it is always midnight (or if
    ``daily`` says so), whole numbers where they are whole."""
    if kind == "number":
        return [int(start) if start == int(start) else repr(start) for start in starts]
    moments = [_EPOCH + timedelta(seconds=start) for start in starts]
    if daily is None:
        daily = all((m.hour, m.minute, m.second) == (0, 0, 0) for m in moments)
    return [moment.isoformat()[: 10 if daily else 19] for moment in moments]
