"""Followers: grow a graph by arriving events, or by the snapshots of another graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.errors import FormatError, OptionError
from strobe.graph.build import Edges
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import FeatureProvider, PerCell, find_stored, replace_stored
from strobe.graph.follow.base import Follower, RowCounts
from strobe.graph.follow.cutter import SnapshotCutter, resume_cutter
from strobe.graph.follow.journal import EventSegment, JournalEntry, PendingEvents, read_journal, write_journal
from strobe.graph.follow.sources import EventSource, NewRows
from strobe.graph.ingest.clock import ByColumn, ByFile
from strobe.graph.ingest.columns import TimeUnit
from strobe.graph.ingest.options import IngestOptions
from strobe.graph.ingest.pipeline import ingest
from strobe.graph.ingest.rejects import Rejects, rejects_path
from strobe.graph.ingest.staging import scratch_database, stage_events
from strobe.graph.snapshot import Snapshot
from strobe.io.temporary import TemporaryFolder

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection


MAX_ROWS_PER_BUILD = 1 << 21
"""Most rows of complete snapshots that are built together."""


class EventFollower(Follower):
    """Follower of events, cut into snapshots by the clock of their options.

    A snapshot is complete when an event of a later one arrives. Events that arrive together may come in any order; one
    that arrives after its snapshot was complete is left out and counted. Bad rows raise ``BadRowsError``, and nothing
    that arrived with them is read; with ``skip_bad_rows`` they are written to a file next to the graph and counted.

    Memory: ``memory`` for the database, the rows of ``life`` snapshots, and the names of all nodes, at some hundred
    bytes each.
    """

    def __init__(
        self,
        feed: EventSource,
        options: IngestOptions,
        graph: GrowingGraph,
        *,
        skip_bad_rows: bool = False,
        memory: str = "512MB",
    ) -> None:
        super().__init__(graph)
        self._feed = feed
        self._options = options
        self._skip_bad_rows = skip_bad_rows
        self._memory = memory
        folder = graph.path / ".follow"
        folder.mkdir(exist_ok=True)
        self._waiting = PendingEvents(folder)
        last_entry = read_journal(folder)
        if last_entry is None and len(graph):
            raise FormatError(f"{folder} has lost its journal: the position in the source is unknown")
        self._entry = last_entry or JournalEntry()
        times = graph.open().times
        self._cutter = resume_cutter(options.clock, self._entry.cutter, times).drop_built_names(len(times))
        self._nodes = {name: node for node, name in enumerate(graph.open().names or ())}
        self._waiting.remove_unused(self._entry.segments)

    @property
    def counts(self) -> RowCounts:
        return self._entry.counts

    def poll(self, *, ended: bool = False) -> int:
        self._append_complete()  # complete before the process was killed
        arrival = self._feed.poll(self._entry.position, ended=ended)
        if arrival is not None:
            self._read(arrival)
        if ended and self._cutter.close_all() != self._cutter:
            self._commit(self._entry, self._cutter.close_all())
        self.ended = ended
        self._append_complete()
        return len(self.graph)

    def _read(self, arrival: NewRows) -> None:
        entry, requested = self._entry, self._options
        options = replace(requested, ids=entry.ids or requested.ids, time_unit=entry.time_unit or requested.time_unit)
        with TemporaryFolder("follow") as scratch, scratch_database(scratch.path, self._memory) as con:
            bad = self._rejects(scratch.path)
            ids, unit = stage_events(con, arrival.tables(con), options, bad, lambda done, total: None)
            if not self._skip_bad_rows:
                bad.raise_if_any()
            bad.publish()
            [(rows,)] = con.execute("SELECT count(*) FROM events").fetchall()
            cutter, segments, in_time = self._cutter, entry.segments, 0
            if rows or isinstance(options.clock, ByFile):
                cutter, segments, in_time = self._cut(con, unit)
        counts = RowCounts(
            rows=entry.counts.rows + rows,
            late_rows=entry.counts.late_rows + rows - in_time,
            bad_rows=entry.counts.bad_rows + bad.count,
            comment_lines=entry.counts.comment_lines + bad.comment_lines,
        )
        if rows:  # without rows, types of columns may be guessed wrongly
            entry = replace(entry, ids=ids, time_unit=unit)
        self._commit(replace(entry, position=arrival.position, counts=counts, segments=segments), cutter)

    def _cut(self, con: Connection, unit: TimeUnit) -> tuple[SnapshotCutter, tuple[EventSegment, ...], int]:
        """Write the staged events with their snapshots, without late ones; return the cutter, the segments of pending
        rows, and the number of events in time."""
        cuts, cutter = self._cutter.assign(con, "number" if unit == "number" else "unix")
        chosen = {"src": True, "dst": True, "time": self._options.time, "weight": self._options.weight}
        columns = [name for name, column in chosen.items() if column is not None]
        snap = f"CAST({cuts.sql} AS BIGINT) AS snap"
        con.execute(f"CREATE TABLE cut AS SELECT {', '.join(columns)}, {snap} FROM {cuts.source}")
        in_time = f"SELECT * FROM cut WHERE snap >= {self._cutter.closed}"
        [(count,)] = con.execute(f"SELECT count(*) FROM ({in_time})").fetchall()
        if not count:
            return cutter, self._entry.segments, 0
        first = max(0, len(self.graph) - self._options.life + 1)
        return cutter, tuple(self._waiting.add(con, in_time, self._entry.segments, first)), count

    def _commit(self, entry: JournalEntry, cutter: SnapshotCutter) -> None:
        """Commit an entry: it holds even if the process is killed."""
        entry = replace(entry, cutter=cutter.to_json())
        write_journal(self._waiting.folder, entry)
        self._entry, self._cutter = entry, cutter
        self._waiting.remove_unused(entry.segments)

    def _append_complete(self) -> None:
        """Append all complete snapshots, several together up to ``MAX_ROWS_PER_BUILD`` rows."""
        done, closed = len(self.graph), self._cutter.closed
        if done >= closed:
            return
        sizes = self._waiting.counts(self._entry.segments, max(0, done - self._options.life + 1))
        for start, stop in _group_snapshots(done, closed, sizes):
            self._append_range(self._ingest_range(start, stop, sizes), start, stop)
        self._cutter = self._cutter.drop_built_names(closed)

    def _ingest_range(self, start: int, stop: int, sizes: Mapping[int, int]) -> DynamicGraph | None:
        """Build snapshots ``start`` up to ``stop``; None if no event is alive in any of them."""
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

    def _append_range(self, graph: DynamicGraph | None, start: int, stop: int) -> None:
        """Append snapshots by the nodes of the graph; new nodes are numbered in ascending order of name."""
        append = partial(self.graph.append, info=asdict(self.counts))
        everyone = self._options.presence == "seen"
        if graph is None:
            for t in range(start, stop):
                append(Edges([], []), nodes=None if everyone else [], time=self._cutter.name(t))
            return
        assert graph.names is not None
        node = np.array([self._nodes.get(name, -1) for name in graph.names], np.int64)
        for t, snapshot in zip(range(start, stop), graph, strict=True):
            new = snapshot.nodes[node[snapshot.nodes] < 0]
            names = [graph.names[int(local)] for local in new]
            node[new] = len(self._nodes) + np.arange(new.size)
            src, dst, weight = snapshot.edges()
            append(
                Edges(node[src], node[dst], weight),
                nodes=None if everyone else node[snapshot.nodes],
                time=self._cutter.name(t),
                names=names,
            )
            self._nodes |= dict(zip(names, node[new].tolist(), strict=True))

    def _rejects(self, scratch: Path) -> Rejects:
        if not self._skip_bad_rows:
            return Rejects()
        return Rejects(rejects_path(self.graph.path, None, [self._feed.path]), scratch, extend=True)


def _group_snapshots(start: int, stop: int, sizes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of snapshots with at most ``MAX_ROWS_PER_BUILD`` rows, or of one snapshot."""
    begin, rows = start, 0
    for t in range(start, stop):
        size = sizes.get(t, 0)
        if t > begin and rows + size > MAX_ROWS_PER_BUILD:
            yield begin, t
            begin, rows = t, 0
        rows += size
    yield begin, stop


class GraphFollower(Follower):
    """Follower of another graph: one snapshot per poll, or all new ones of a growing graph.

    Nodes keep their numbers; the number of known nodes grows with the largest present one. Values per node are written
    with every snapshot.
    """

    def __init__(self, source: DynamicGraph | GrowingGraph, graph: GrowingGraph) -> None:
        super().__init__(graph)
        self._source = source
        built, source_times = graph.open().times, self._snapshots().times
        if source_times[: len(built)] != built:
            raise OptionError(f"{graph.path} was begun with another graph: its first snapshots are others")
        self.ended = isinstance(source, DynamicGraph) and len(built) == len(source_times)

    def poll(self, *, ended: bool = False) -> int:
        snapshots, done = self._snapshots(), len(self.graph)
        grows = isinstance(self._source, GrowingGraph)
        for t in range(done, len(snapshots) if grows else min(done + 1, len(snapshots))):
            self._append(snapshots, t)
        self.ended = ended if grows else len(self.graph) == len(snapshots)
        return len(self.graph)

    def _snapshots(self) -> DynamicGraph:
        return self._source.open() if isinstance(self._source, GrowingGraph) else self._source

    def _append(self, source: DynamicGraph, t: int) -> None:
        snapshot, before = source[t], self.graph.num_nodes
        known = self._num_known_nodes(source, snapshot)
        self.graph.append(
            Edges(*snapshot.edges()),
            nodes=snapshot.nodes,
            time=snapshot.time,
            x=_stored_rows(source.features, snapshot),
            y=_stored_rows(source.labels, snapshot),
            names=None if source.names is None else source.names[before:known],
            num_nodes=known,
        )

    def _num_known_nodes(self, source: DynamicGraph, snapshot: Snapshot) -> int:
        """Return the number of known nodes after a snapshot; after the last one of a complete graph, all."""
        if isinstance(self._source, GrowingGraph):
            return self._source.parts[snapshot.t].num_nodes
        if snapshot.t == len(source) - 1:
            return source.num_nodes
        return max(self.graph.num_nodes, int(snapshot.nodes.max(initial=-1)) + 1)


def creation_options(source_graph: DynamicGraph | GrowingGraph) -> dict[str, Any]:
    """Return the options of a growing graph that takes the snapshots of another."""
    like = source_graph.open() if isinstance(source_graph, GrowingGraph) else source_graph
    return {
        "directed": like.directed,
        "weighted": like.weighted,
        "features": _as_empty_per_cell(like.features),
        "labels": _as_empty_per_cell(like.labels),
    }


def _as_empty_per_cell(provider: FeatureProvider | None) -> FeatureProvider | None:
    bottom = find_stored(provider)
    return provider if provider is None or bottom is None else replace_stored(provider, PerCell(bottom.values[:0]))


def _stored_rows(provider: FeatureProvider | None, snapshot: Snapshot) -> Any:
    bottom = find_stored(provider)
    return None if bottom is None else bottom.rows(snapshot)
