"""Cutting events that arrive into snapshots: which one each belongs to, and which ones are complete.

What has arrived together is cut as ``ingest`` would cut it, whatever its order; what arrives later goes on from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from strobe.errors import InputError, OptionError
from strobe.graph.ingest.clock import (
    MARKED,
    ByColumn,
    ByFile,
    Calendar,
    Clock,
    EventsEach,
    Every,
    Regular,
    TimeKind,
    ascending,
    marks_of,
    names_of,
    number_marks,
    time_of,
)
from strobe.graph.storage import Time

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

MAX_EMPTY = 10_000
"""Snapshots without events that events may make at once: more than that is taken for a wrong time."""


@dataclass(frozen=True, kw_only=True)
class Cutting(ABC):
    """How far events have been cut: ``begun`` snapshots have events or lie before one that has, of which ``closed``
    are complete. ``names`` are what those are called that are not built yet, from ``first_name`` on."""

    begun: int = 0
    closed: int = 0
    first_name: int = 0
    names: tuple[Time, ...] = ()

    @abstractmethod
    def cut(self, con: Connection, kind: TimeKind) -> tuple[Cuts, Self]:
        """Cuts the staged table ``events``, which has arrived; where to read snapshots from, and what is known then."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What ``resumed`` needs to go on from here."""

    def ended(self) -> Self:
        """Nothing more will come: all that was begun is complete."""
        return replace(self, closed=self.begun)

    def built(self, snapshots: int) -> Self:
        """So many snapshots are built: their names are needed no more."""
        gone = max(0, snapshots - self.first_name)
        return replace(self, first_name=self.first_name + gone, names=self.names[gone:])

    def name(self, t: int) -> Time:
        return self.names[t - self.first_name]

    def _counted(self) -> dict[str, Any]:
        return {
            "begun": self.begun,
            "closed": self.closed,
            "first_name": self.first_name,
            "names": list(self.names),
        }


class Cuts(NamedTuple):
    """How the events that arrived find their snapshots: SQL of its number, over a source; NULL comes too late."""

    sql: str
    source: str = "events"


@dataclass(frozen=True, kw_only=True)
class ByTime(Cutting):
    """Stretches of time. One is complete when an event of a later one is there; ``begin`` is when the last one that
    was begun begins."""

    clock: Regular
    begin: float | None = None

    def cut(self, con: Connection, kind: TimeKind) -> tuple[Cuts, Self]:
        [(low, high, count)] = con.execute("SELECT min(time), max(time), count(*) FROM events").fetchall()
        begin = float(low) if self.begin is None else self.begin
        try:
            cut = self.clock.between(begin, max(begin, float(high)), kind)
        except OverflowError as error:
            raise InputError(f"the events' times cannot be cut like this: {error}") from error
        assert cut.starts is not None
        # A rounded start may fall into the stretch before its own.
        later = [k for k, start in enumerate(cut.starts) if self.begin is None or start >= self.begin]
        starts, names = [cut.starts[k] for k in later], [cut.names[k] for k in later]
        if len(starts) > MAX_EMPTY + count:
            raise InputError(
                f"events from {names[0]} to {names[-1]} would make {len(starts):,} snapshots of {count:,} events: "
                "is one of the times wrong? If not, choose a longer duration."
            )
        first = max(0, self.begun - 1)
        numbered = {"snap": range(first, first + len(starts)), "begins": pa.array(starts, pa.float64())}
        con.register("numbered", pa.table(numbered))
        con.execute("CREATE TABLE stretches AS SELECT * FROM numbered")
        begun = first + len(starts)
        after = replace(
            self, begun=begun, closed=max(self.closed, begun - 1), begin=starts[-1], **self._named(first, names)
        )
        return Cuts("stretches.snap", "events ASOF LEFT JOIN stretches ON events.time >= stretches.begins"), after

    def to_json(self) -> dict[str, Any]:
        return {**self._counted(), "begin": self.begin}

    def _named(self, first: int, names: Sequence[Time]) -> dict[str, Any]:
        """Names from ``first`` on, the last one of which may be known already."""
        known = self.names[: max(0, first - self.first_name)]
        return {"first_name": self.first_name if known else first, "names": (*known, *names)}


@dataclass(frozen=True, kw_only=True)
class ByMark(Cutting):
    """Values of a column. One is complete when another one appears; new ones that appear together ascend, or go by
    the list that was given. ``numbers`` are the snapshots of all values so far."""

    clock: ByColumn
    numbers: Mapping[str, int] = field(default_factory=dict)

    def cut(self, con: Connection, kind: TimeKind) -> tuple[Cuts, Self]:
        found = marks_of(con)
        if self.clock.values is None:
            new = ascending(set(found) - set(self.numbers))
            numbers = {**self.numbers, **{mark: self.begun + k for k, mark in enumerate(new)}}
        else:
            numbers = {mark: k for k, mark in enumerate(self.clock.listed(found))}
        number_marks(con, {mark: numbers[mark] for mark in found})
        begun = max(self.begun, *(numbers[mark] + 1 for mark in found))
        return Cuts("marks.snap", MARKED), self._with(numbers, begun, max(self.closed, begun - 1))

    def ended(self) -> Self:
        """Values that were listed are snapshots even if they never appeared."""
        if self.clock.values is None:
            return super().ended()
        numbers = {mark: k for k, mark in enumerate(self.clock.listed(()))}
        return self._with(numbers, len(numbers), len(numbers))

    def to_json(self) -> dict[str, Any]:
        return self._counted()

    def _with(self, numbers: Mapping[str, int], begun: int, closed: int) -> Self:
        listed = sorted(numbers, key=numbers.__getitem__)[self.first_name : begun]
        return replace(self, numbers=numbers, begun=begun, closed=closed, names=tuple(time_of(mark) for mark in listed))


@dataclass(frozen=True, kw_only=True)
class Files(Cutting):
    """Files, each of which is whole when it arrives."""

    def cut(self, con: Connection, kind: TimeKind) -> tuple[Cuts, Self]:
        names = [name for (name,) in con.execute("SELECT name FROM files ORDER BY file").fetchall()]
        begun = self.begun + len(names)
        return Cuts(f"file + {self.begun}"), replace(self, begun=begun, closed=begun, names=(*self.names, *names))

    def to_json(self) -> dict[str, Any]:
        return self._counted()


@dataclass(frozen=True, kw_only=True)
class Counted(Cutting):
    """So many events each, in the order of time among those that arrive together; none of them comes too late.
    ``begin`` is the first time among the events of the snapshot that is not complete."""

    clock: EventsEach
    events: int = 0
    begin: float | None = None

    def cut(self, con: Connection, kind: TimeKind) -> tuple[Cuts, Self]:
        size = self.clock.count
        con.execute(f"CREATE TABLE counted AS SELECT *, {self.clock.number(con, self.events)} AS snap FROM events")
        found = con.execute("SELECT snap, min(time), count(*) FROM counted GROUP BY snap ORDER BY snap").fetchall()
        starts = {snap: low for snap, low, _ in found}
        if self.begin is not None and self.begun - 1 in starts:
            starts[self.begun - 1] = min(self.begin, starts[self.begun - 1])
        events = self.events + sum(count for *_, count in found)
        begun = -(-events // size)
        known = self.names[: min(starts) - self.first_name]
        named = names_of([float(start) for start in starts.values()], kind, daily=False)
        after = replace(
            self,
            begun=begun,
            closed=events // size,
            events=events,
            begin=None if events % size == 0 else float(starts[begun - 1]),
            names=(*known, *named),
        )
        return Cuts("snap", "counted"), after

    def ended(self) -> Self:
        return replace(super().ended(), events=self.begun * self.clock.count, begin=None)

    def to_json(self) -> dict[str, Any]:
        return {**self._counted(), "events": self.events, "begin": self.begin}


def resumed(clock: Clock, kept: Mapping[str, Any] | None, built: Sequence[Time]) -> Cutting:
    """How a clock cuts events that arrive, from the beginning or from what was kept; ``built`` are the snapshots
    there are already."""
    known: dict[str, Any] = {} if kept is None else {**kept, "names": tuple(kept["names"])}
    match clock:
        case Every() | Calendar():
            return ByTime(clock=clock, **known)
        case ByFile():
            return Files(**known)
        case EventsEach():
            return Counted(clock=clock, **known)
        case ByColumn():
            names = [*built[: known.get("first_name", 0)], *known.get("names", ())]
            return ByMark(clock=clock, numbers={str(name): t for t, name in enumerate(names)}, **known)
    raise OptionError(
        f"{type(clock).__name__} cuts what has ended, and more will come: choose a length of time (every 7d, per "
        "month), a number of events, a column, or a snapshot per file"
    )
