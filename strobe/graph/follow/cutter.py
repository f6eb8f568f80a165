"""Cutters: assign arriving events to snapshots, and decide which snapshots are complete.

Events that arrive together are cut as by ``ingest``, in any order; later events continue from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from strobe.errors import InputError, OptionError
from strobe.graph.ingest.clock import (
    EVENTS_WITH_MARKS,
    ByColumn,
    ByFile,
    Calendar,
    Clock,
    EventsEach,
    Every,
    RegularClock,
    TimeKind,
    format_starts,
    mark_to_time,
    number_marks,
    read_marks,
    sort_marks,
)
from strobe.graph.storage import Time

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection

MAX_EMPTY_SNAPSHOTS = 10_000
"""Most snapshots without events that new events may make at once; more indicate a wrong time."""


@dataclass(frozen=True, kw_only=True)
class SnapshotCutter(ABC):
    """Progress of cutting: ``begun`` snapshots, of which ``closed`` are complete. ``names`` are the labels of snapshots
    that are not built yet, from ``first_name`` on."""

    begun: int = 0
    closed: int = 0
    first_name: int = 0
    names: tuple[Time, ...] = ()

    @abstractmethod
    def assign(self, con: Connection, kind: TimeKind) -> tuple[SnapshotQuery, Self]:
        """Cut the staged table ``events``; return where to read snapshots from, and the next state."""

    def to_json(self) -> dict[str, Any]:
        """Return the state for ``resume_cutter``."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("clock", "numbers")}

    def close_all(self) -> Self:
        """Close all begun snapshots: no more events will come."""
        return replace(self, closed=self.begun)

    def drop_built_names(self, snapshots: int) -> Self:
        """Drop the labels of the first ``snapshots`` snapshots, which are built."""
        gone = max(0, snapshots - self.first_name)
        return replace(self, first_name=self.first_name + gone, names=self.names[gone:])

    def name(self, t: int) -> Time:
        return self.names[t - self.first_name]


class SnapshotQuery(NamedTuple):
    """SQL of each arrived event's snapshot, over a source; NULL is too late."""

    sql: str
    source: str = "events"


@dataclass(frozen=True, kw_only=True)
class TimeCutter(SnapshotCutter):
    """Snapshots of regular time; complete when a later event arrives. ``begin`` is the start of the last one."""

    clock: RegularClock
    begin: float | None = None

    def assign(self, con: Connection, kind: TimeKind) -> tuple[SnapshotQuery, Self]:
        [(low, high, count)] = con.execute("SELECT min(time), max(time), count(*) FROM events").fetchall()
        begin = float(low) if self.begin is None else self.begin
        cut = self.clock.between(begin, max(begin, float(high)), kind)
        assert cut.starts is not None
        # A rounded start may fall into the span before its own.
        later = [k for k, start in enumerate(cut.starts) if self.begin is None or start >= self.begin]
        starts, names = [cut.starts[k] for k in later], [cut.names[k] for k in later]
        if len(starts) > MAX_EMPTY_SNAPSHOTS + count:
            raise InputError(
                f"events from {names[0]} to {names[-1]} would make {len(starts):,} snapshots of {count:,} events: "
                "is one of the times wrong? If not, choose a longer duration."
            )
        first = max(0, self.begun - 1)
        numbered = {"snap": range(first, first + len(starts)), "begins": pa.array(starts, pa.float64())}
        con.register("numbered", pa.table(numbered))
        con.execute("CREATE TABLE spans AS SELECT * FROM numbered")
        begun = first + len(starts)
        known = self.names[: max(0, first - self.first_name)]  # the last label may be among the new ones
        after = replace(
            self,
            begun=begun,
            closed=max(self.closed, begun - 1),
            begin=starts[-1],
            first_name=self.first_name if known else first,
            names=(*known, *names),
        )
        return SnapshotQuery("spans.snap", "events ASOF LEFT JOIN spans ON events.time >= spans.begins"), after


@dataclass(frozen=True, kw_only=True)
class ColumnCutter(SnapshotCutter):
    """Snapshots by values of a column; complete when another value appears. New values that arrive together ascend, or
    go by the list of the clock. ``numbers`` has the snapshots of all values so far."""

    clock: ByColumn
    numbers: Mapping[str, int] = field(default_factory=dict)

    def assign(self, con: Connection, kind: TimeKind) -> tuple[SnapshotQuery, Self]:
        marks = read_marks(con)
        if self.clock.values is None:
            new = sort_marks(set(marks) - set(self.numbers))
            numbers = {**self.numbers, **{mark: self.begun + k for k, mark in enumerate(new)}}
        else:
            numbers = {mark: k for k, mark in enumerate(self.clock.check_values(marks))}
        number_marks(con, {mark: numbers[mark] for mark in marks})
        begun = max(self.begun, *(numbers[mark] + 1 for mark in marks))
        return SnapshotQuery("marks.snap", EVENTS_WITH_MARKS), self._replace_numbers(
            numbers, begun, max(self.closed, begun - 1)
        )

    def close_all(self) -> Self:
        """Close all; listed values are snapshots even if they never appeared."""
        if self.clock.values is None:
            return super().close_all()
        numbers = {mark: k for k, mark in enumerate(self.clock.check_values(()))}
        return self._replace_numbers(numbers, len(numbers), len(numbers))

    def _replace_numbers(self, numbers: Mapping[str, int], begun: int, closed: int) -> Self:
        listed = sorted(numbers, key=numbers.__getitem__)[self.first_name : begun]
        return replace(
            self, numbers=numbers, begun=begun, closed=closed, names=tuple(mark_to_time(mark) for mark in listed)
        )


@dataclass(frozen=True, kw_only=True)
class FileCutter(SnapshotCutter):
    """Snapshots by files, each complete when it arrives."""

    def assign(self, con: Connection, kind: TimeKind) -> tuple[SnapshotQuery, Self]:
        names = [name for (name,) in con.execute("SELECT name FROM files ORDER BY file").fetchall()]
        begun = self.begun + len(names)
        return SnapshotQuery(f"file + {self.begun}"), replace(
            self, begun=begun, closed=begun, names=(*self.names, *names)
        )


@dataclass(frozen=True, kw_only=True)
class EventCountCutter(SnapshotCutter):
    """Snapshots of ``count`` events, in order of time among those that arrive together; none is too late. ``begin`` is
    the first time of the incomplete snapshot."""

    clock: EventsEach
    events: int = 0
    begin: float | None = None

    def assign(self, con: Connection, kind: TimeKind) -> tuple[SnapshotQuery, Self]:
        size = self.clock.count
        con.execute(
            f"CREATE TABLE counted AS SELECT *, {self.clock.snapshot_sql(con, self.events)} AS snap FROM events"
        )
        counted = con.execute("SELECT snap, min(time), count(*) FROM counted GROUP BY snap ORDER BY snap").fetchall()
        starts = {snap: low for snap, low, _ in counted}
        if self.begin is not None and self.begun - 1 in starts:
            starts[self.begun - 1] = min(self.begin, starts[self.begun - 1])
        events = self.events + sum(count for *_, count in counted)
        begun = -(-events // size)
        known = self.names[: min(starts) - self.first_name]
        named = format_starts([float(start) for start in starts.values()], kind, daily=False)
        after = replace(
            self,
            begun=begun,
            closed=events // size,
            events=events,
            begin=None if events % size == 0 else float(starts[begun - 1]),
            names=(*known, *named),
        )
        return SnapshotQuery("snap", "counted"), after

    def close_all(self) -> Self:
        return replace(super().close_all(), events=self.begun * self.clock.count, begin=None)


def resume_cutter(clock: Clock, state: Mapping[str, Any] | None, built_times: Sequence[Time]) -> SnapshotCutter:
    """Return the cutter of a clock, from the beginning or from a stored state.

    Raises:
        OptionError: the clock needs all events at once.
    """
    known: dict[str, Any] = {} if state is None else {**state, "names": tuple(state["names"])}
    match clock:
        case Every() | Calendar():
            return TimeCutter(clock=clock, **known)
        case ByFile():
            return FileCutter(**known)
        case EventsEach():
            return EventCountCutter(clock=clock, **known)
        case ByColumn():
            names = [*built_times[: known.get("first_name", 0)], *known.get("names", ())]
            return ColumnCutter(clock=clock, numbers={str(name): t for t, name in enumerate(names)}, **known)
    raise OptionError(
        f"{type(clock).__name__} cuts what has ended, and more will come: choose a length of time (every 7d, per "
        "month), a number of events, a column, or a snapshot per file"
    )
