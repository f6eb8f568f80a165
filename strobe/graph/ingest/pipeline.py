"""Ingest a table into a graph: check, stage, cut, number, sort, write. DuckDB spills what exceeds memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from strobe.errors import InputError, OptionError
from strobe.graph.build import GraphBuilder, WeightOverflowError
from strobe.graph.disk.directory import DiskSink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.ingest.clock import ByColumn
from strobe.graph.ingest.columns import Ids, TimeUnit
from strobe.graph.ingest.nodes import NodeValues
from strobe.graph.ingest.numbering import renumber_ids, use_ids_as_nodes
from strobe.graph.ingest.options import IngestKeywords, IngestOptions
from strobe.graph.ingest.rejects import Rejects, check_path, rejects_path
from strobe.graph.ingest.snapshots import Spool, add_snapshots, needed_columns, sort_events
from strobe.graph.ingest.sources import open_tables
from strobe.graph.ingest.staging import scratch_database, stage, stage_events
from strobe.graph.ingest.text_table import TextOptions
from strobe.graph.progress import OnStage
from strobe.graph.sink import Sink
from strobe.io.temporary import TemporaryFolder

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection


@dataclass(frozen=True)
class _IngestJob:
    """State shared by the steps of one ingest; without a sink, the graph is built in memory."""

    con: Connection
    options: IngestOptions
    rejects: Rejects
    sink: Sink | None
    scratch: Path
    report: OnStage


def ingest(
    source: Any,
    *,
    out: str | PathLike[str] | None = None,
    text: TextOptions | None = None,
    skip_bad_rows: bool = False,
    rejects: str | PathLike[str] | None = None,
    overwrite: bool = False,
    memory: str = "512MB",
    on_stage: OnStage | None = None,
    **options: Unpack[IngestKeywords],
) -> DynamicGraph:
    """Make a dynamic graph from a table of events (or of edges per snapshot).

    Equal rows in any order give the same graph; parallel edges that are kept are ordered by weight. Memory: ``memory``
    for the database, which spills to disk, and that of ``GraphBuilder``.

    Args:
        source: a file (CSV, TSV, plain text, also .gz; Parquet; NPZ), a list of files, an Arrow table or stream, a data
            frame, a mapping of arrays, or a DB-API cursor that has executed a query.
        out: directory to write the graph to (default: memory).
        text: format of text files.
        src, dst, time, weight: columns by name or position.
        clock: how time is cut into snapshots.
        ids: "integer" or "string" (default: guessed from the first rows).
        time_unit: "number", "s", "ms" or "iso" (default: guessed).
        directed: whether edges have a direction.
        life: number of snapshots in which an edge stays.
        repeated: several events of an edge in a snapshot: "count", "sum", "last" or "keep" (default: sum weights, or
            count events without weights).
        self_loops: False drops self-loops.
        presence: a node is present in snapshots where it has an edge ("active"), from its first edge on ("seen"), or
            "always".
        nodes: a ``NodeTable`` with features or labels.
        features: default: log degrees.
        renumber: False if ids are 0..N-1 already, up to ``num_nodes`` or, by default, at most ``max_nodes``.
        max_snapshots: limit of snapshots that a clock may make.
        info: metadata about the origin of the graph.
        count_pairs: add the number of distinct pairs of ids to the metadata, which costs a sort.
        skip_bad_rows: leave bad rows out and write them to ``rejects``, which must be neither an input nor another
            existing file.
        memory: memory limit of the database.

    Raises:
        BadRowsError: there are bad rows; the message names each, and nothing is written.
    """
    columns = IngestOptions(**options)
    if rejects is not None and not skip_bad_rows:
        raise OptionError("rejects= is where bad rows go that are left out: leave them out with skip_bad_rows=True")
    out = None if out is None else check_path(out, "out")
    sources = [source, None if columns.nodes is None else columns.nodes.source]
    bad_path = rejects_path(out, rejects, sources) if skip_bad_rows else None
    with _open_scratch(out, overwrite, memory) as (con, sink, scratch):
        bad = Rejects(bad_path, scratch)
        job = _IngestJob(con, columns, bad, sink, scratch, on_stage or (lambda stage, done, total: None))
        graph = _build(job, *_stage_all(job, source, text or TextOptions()))
        bad.finish()
        return graph


@contextlib.contextmanager
def _open_scratch(out: Path | None, overwrite: bool, memory: str) -> Iterator[tuple[Connection, DiskSink | None, Path]]:
    """Open a scratch database, in the folder of the graph to write or in a temporary one."""
    with contextlib.ExitStack() as stack:
        sink = None if out is None else stack.enter_context(DiskSink(out, overwrite=overwrite))
        scratch = None if sink is None else sink.scratch_dir
        if scratch is None:
            scratch = stack.enter_context(TemporaryFolder("ingest")).path
        yield stack.enter_context(scratch_database(scratch, memory)), sink, scratch


def _stage_all(job: _IngestJob, source: Any, text: TextOptions) -> tuple[Ids, TimeUnit]:
    """Fill the tables ``events``, ``files`` and, for a node table, ``nodes``; publish or refuse bad rows."""
    con, options, report = job.con, job.options, job.report
    report("reading rows", 0, None)
    tables = open_tables(con, source, text, options.columns())
    ids, unit = stage_events(con, tables, options, job.rejects, partial(report, "reading rows"))
    if options.nodes is not None:
        table = options.nodes
        rows = open_tables(con, table.source, text, table.columns())
        parse_nodes = partial(table.parse, ids=ids, unit=unit, clock=options.clock)
        stage(con, "nodes", rows, parse_nodes, job.rejects, partial(report, "reading nodes"))
    if job.rejects.path is None:
        job.rejects.raise_if_any()
    job.rejects.publish()
    return ids, unit


def _build(job: _IngestJob, ids: Ids, unit: TimeUnit) -> DynamicGraph:
    con, options, bad, report = job.con, job.options, job.rejects, job.report
    [(num_events,)] = con.execute("SELECT count(*) FROM events").fetchall()
    if num_events == 0 and not (isinstance(options.clock, ByColumn) and options.clock.values is not None):
        left_out = f" once bad rows are left out, see {bad.path}" if bad.count else ""
        raise InputError(f"there is no event to make a graph of{left_out}")
    report("cutting snapshots", 0, None)
    cut = options.clock.find_boundaries(con, "number" if unit == "number" else "unix", options.max_snapshots)
    report("numbering nodes", 0, None)
    columns = [("events", "src"), ("events", "dst"), *([("nodes", "id")] if options.nodes is not None else [])]
    if options.renumber:
        numbering = renumber_ids(con, columns, ids)
    else:
        numbering = use_ids_as_nodes(con, columns, options.num_nodes, options.max_nodes)
    values = None if options.nodes is None else NodeValues(con, options.nodes, numbering, cut)
    builder = GraphBuilder(
        job.sink,
        num_nodes=numbering.num_nodes,
        directed=options.directed,
        weighted=options.weight is not None,
        parallel=options.parallel,
        self_loops=options.self_loops,
    )
    with Spool(job.scratch, needed_columns(options)) as spool:
        report("sorting events", 0, None)
        sort_events(con, spool, cut, numbering)
        try:
            add_snapshots(builder, spool, options, cut, values, partial(report, "writing snapshots"))
        except WeightOverflowError as error:
            if numbering.names is None:
                raise
            src, dst = (numbering.names[int(node)] for node in (error.src, error.dst))
            raise WeightOverflowError(error.t, src, dst) from None
    features, labels = (None, None) if values is None else values.static_features_and_labels()
    if not (options.nodes is not None and options.nodes.features):
        features = options.features or Degrees(log=True)
    info: dict[str, Any] = {
        **(options.info or {}),
        "rows": num_events,
        "bad_rows": bad.count,
        "comment_lines": bad.comment_lines,
        "repeated": options.parallel,
        "life": options.life,
        **_count_events(con, options, unit),
    }
    if bad.count and bad.path is not None:
        info["rejects"] = str(bad.path)
    if values is not None and values.classes is not None:
        info["classes"] = values.classes
    con.close()
    return builder.finish(features=features, labels=labels, names=numbering.names, info=info)


def _count_events(con: Connection, options: IngestOptions, unit: TimeUnit) -> dict[str, Any]:
    """Return the first and last time (dates as ISO text) and, if requested, the number of distinct pairs of ids."""
    counted: dict[str, Any] = {}
    if options.time is not None:
        moment = "strftime(make_timestamp(CAST({} * 1000000 AS BIGINT)), '%Y-%m-%dT%H:%M:%S')"
        shown = "{}" if unit == "number" else moment
        selected = ", ".join(shown.format(end) for end in ("min(time)", "max(time)"))
        [ends] = con.execute(f"SELECT {selected} FROM events").fetchall()
        whole = [int(end) if isinstance(end, float) and end.is_integer() else end for end in ends]
        counted |= dict(zip(("first_time", "last_time"), whole, strict=True))
    if options.count_pairs:
        [(pairs,)] = con.execute("SELECT count(*) FROM (SELECT DISTINCT src, dst FROM events)").fetchall()
        counted["distinct_pairs"] = pairs
    return counted
