"""Following events: rows that arrive become snapshots when these are complete.

Every reading goes its way in three steps, each of which is there whole or not at all: good rows go to disk with the
numbers of their snapshots; the journal says that they count and how far the source has been read; complete snapshots
are built of them by ``ingest`` and appended to the graph. Killed in between, the first step is done again, the others
are gone on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strobe.errors import FormatError
from strobe.graph.build import Edges
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.follow.base import Counts, Following
from strobe.graph.follow.cutting import Cutting, resumed
from strobe.graph.follow.feed import Arrival, Feed
from strobe.graph.follow.journal import Entry, Journal
from strobe.graph.follow.known import Known
from strobe.graph.follow.waiting import Segment, Waiting
from strobe.graph.growing import Growing
from strobe.graph.ingest import ByColumn, ByFile, ingest
from strobe.graph.ingest.columns import TimeUnit
from strobe.graph.ingest.options import Options
from strobe.graph.ingest.reading import database, stage_events
from strobe.graph.ingest.rejects import Rejects, rejects_path
from strobe.io.temporary import TemporaryFolder

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

ROWS_AT_ONCE = 1 << 21
"""Rows up to which complete snapshots are built together."""


class FollowingEvents(Following):
    """Events of a feed, cut into snapshots by the clock of their options.

    A snapshot is complete when an event of a later one is there. Events that arrive together may come in any order;
    one that arrives after its snapshot was complete is left out and counted. Bad rows raise ``BadRowsError``, and
    nothing of what arrived with them is read; with ``skip_bad_rows`` they are written beside the graph and counted.

    Memory: ``memory`` for the database, the rows of ``life`` snapshots, and the names of all nodes.
    """

    def __init__(
        self, feed: Feed, options: Options, graph: Growing, *, skip_bad_rows: bool = False, memory: str = "512MB"
    ) -> None:
        super().__init__(graph)
        self._feed = feed
        self._options = options
        self._skip_bad_rows = skip_bad_rows
        self._memory = memory
        folder = graph.path / ".follow"
        folder.mkdir(exist_ok=True)
        self._journal, self._waiting = Journal(folder), Waiting(folder)
        kept = self._journal.read()
        if kept is None and len(graph):
            raise FormatError(f"{folder} has lost its journal: nobody knows how far the source was read")
        self._entry = kept or Entry()
        times = graph.open().times
        self._cutting = resumed(options.clock, self._entry.cutting, times).built(len(times))
        self._known = Known(graph.open().names or ())
        self._waiting.tidy(self._entry.segments)

    @property
    def counts(self) -> Counts:
        return self._entry.counts

    def poll(self, *, ended: bool = False) -> int:
        self._build()  # what was complete before the process was killed
        arrival = self._feed.arrived(self._entry.position, ended=ended)
        if arrival is not None:
            self._read(arrival)
        if ended and self._cutting.ended() != self._cutting:
            self._keep(self._entry, self._cutting.ended())
        self.ended = ended
        self._build()
        return len(self.graph)

    def _read(self, arrival: Arrival) -> None:
        entry, given = self._entry, self._options
        options = replace(given, ids=entry.ids or given.ids, time_unit=entry.time_unit or given.time_unit)
        with (
            TemporaryFolder("follow") as scratch,
            database(scratch.path, self._memory) as con,
        ):
            bad = self._rejects(scratch.path)
            ids, unit = stage_events(con, arrival.tables(con), options, bad, lambda done, total: None)
            if not self._skip_bad_rows:
                bad.refuse()
            bad.publish()
            [(rows,)] = con.execute("SELECT count(*) FROM events").fetchall()
            cutting, segments, in_time = self._cutting, entry.segments, 0
            if rows or isinstance(options.clock, ByFile):
                cutting, segments, in_time = self._cut(con, unit)
        counts = Counts(
            rows=entry.counts.rows + rows,
            late_rows=entry.counts.late_rows + rows - in_time,
            bad_rows=entry.counts.bad_rows + bad.count,
            comment_lines=entry.counts.comment_lines + bad.comment_lines,
        )
        if rows:  # without any, columns may be taken for what they are not
            entry = replace(entry, ids=ids, time_unit=unit)
        self._keep(replace(entry, position=arrival.position, counts=counts, segments=segments), cutting)

    def _cut(self, con: Connection, unit: TimeUnit) -> tuple[Cutting, tuple[Segment, ...], int]:
        """Writes the staged events, those in time, with their snapshots; how cutting goes on, where rows are that
        wait, and how many came in time."""
        cuts, cutting = self._cutting.cut(con, "number" if unit == "number" else "unix")
        snap = f"CAST({cuts.sql} AS BIGINT) AS snap"
        con.execute(f"CREATE TABLE cut AS SELECT {self._columns()}, {snap} FROM {cuts.source}")
        in_time = f"SELECT * FROM cut WHERE snap >= {self._cutting.closed}"
        [(count,)] = con.execute(f"SELECT count(*) FROM ({in_time})").fetchall()
        if not count:
            return cutting, self._entry.segments, 0
        first = max(0, len(self.graph) - self._options.life + 1)
        return cutting, tuple(self._waiting.add(con, in_time, self._entry.segments, first)), count

    def _keep(self, entry: Entry, cutting: Cutting) -> None:
        """From here on it counts, whatever happens."""
        entry = replace(entry, cutting=cutting.to_json())
        self._journal.write(entry)
        self._entry, self._cutting = entry, cutting
        self._waiting.tidy(entry.segments)

    def _build(self) -> None:
        """Appends all complete snapshots, as many together as have some number of rows."""
        done, closed = len(self.graph), self._cutting.closed
        if done >= closed:
            return
        sizes = self._waiting.counts(self._entry.segments, max(0, done - self._options.life + 1))
        for start, stop in _together(done, closed, sizes):
            self._append(self._built(start, stop, sizes), start, stop)
        self._cutting = self._cutting.built(closed)

    def _built(self, start: int, stop: int, sizes: Mapping[int, int]) -> DynamicGraph | None:
        """Snapshots ``start`` up to ``stop``; None where no event is alive in any of them."""
        options = self._options
        first = max(0, start - options.life + 1)
        if not any(t in sizes for t in range(first, stop)):
            return None
        return ingest(
            self._waiting.rows(self._entry.segments, first, stop),
            src="src",
            dst="dst",
            time=None if options.time is None else "time",
            weight=None if options.weight is None else "weight",
            clock=ByColumn("snap", range(first, stop)),
            ids=self._entry.ids,
            time_unit="number",
            directed=options.directed,
            life=options.life,
            repeated=options.repeated,
            self_loops=options.self_loops,
            memory=self._memory,
        )[start - first :]

    def _append(self, built: DynamicGraph | None, start: int, stop: int) -> None:
        """Snapshots by the nodes of the graph: who is new gets the next numbers, in ascending order of name."""
        append = partial(self.graph.append, info=asdict(self.counts))
        everyone = self._options.presence == "seen"
        if built is None:
            for t in range(start, stop):
                append(Edges([], []), nodes=None if everyone else [], time=self._cutting.name(t))
            return
        assert built.names is not None
        node = self._known.find(built.names)
        for t, snapshot in zip(range(start, stop), built, strict=True):
            new = snapshot.nodes[node[snapshot.nodes] < 0]
            names = [built.names[int(local)] for local in new]
            node[new] = len(self._known) + np.arange(new.size)
            src, dst, weight = snapshot.edges()
            append(
                Edges(node[src], node[dst], weight),
                nodes=None if everyone else node[snapshot.nodes],
                time=self._cutting.name(t),
                names=names,
            )
            self._known.add(names)

    def _columns(self) -> str:
        given = {"time": self._options.time, "weight": self._options.weight}
        return ", ".join(["src", "dst", *(name for name, column in given.items() if column is not None)])

    def _rejects(self, scratch: Path) -> Rejects:
        if not self._skip_bad_rows:
            return Rejects()
        return Rejects(rejects_path(self.graph.path, None, [self._feed.path]), scratch, extend=True)


def _together(start: int, stop: int, sizes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Stretches of snapshots that have at most so many rows together, or are one snapshot."""
    begin, rows = start, 0
    for t in range(start, stop):
        size = sizes.get(t, 0)
        if t > begin and rows + size > ROWS_AT_ONCE:
            yield begin, t
            begin, rows = t, 0
        rows += size
    yield begin, stop
