"""The way of a table into a graph: check, stage, cut, number, sort, write. DuckDB does what may not fit in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.errors import InputError, OptionError
from strobe.graph.build import GraphBuilder, Sink, WeightOverflowError
from strobe.graph.disk import DiskSink
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Carrier, Degrees
from strobe.graph.ingest.clock import MAX_SNAPSHOTS, ByColumn, Clock
from strobe.graph.ingest.columns import (
    Ids,
    TimeUnit,
)
from strobe.graph.ingest.nodes import NodeTable, NodeValues
from strobe.graph.ingest.numbering import as_given, renumbered
from strobe.graph.ingest.options import MAX_NODES, Options, Presence
from strobe.graph.ingest.reading import database, stage_events
from strobe.graph.ingest.rejects import Rejects, rejects_path, usable_path
from strobe.graph.ingest.snapshots import Spool, add_snapshots, needed_columns, sort_events
from strobe.graph.ingest.stage import stage
from strobe.graph.ingest.tables import tables
from strobe.graph.ingest.text_table import TextOptions
from strobe.graph.progress import OnStage
from strobe.io.temporary import TemporaryFolder
from strobe.ops.csr import Parallel

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True)
class _Job:
    """What the steps of one ingest share."""

    con: Connection
    options: Options
    rejects: Rejects
    scratch: Path
    report: OnStage


def ingest(
    source: Any,
    *,
    src: str | int,
    dst: str | int,
    clock: Clock,
    time: str | int | None = None,
    weight: str | int | None = None,
    ids: Ids | None = None,
    time_unit: TimeUnit | None = None,
    directed: bool = True,
    life: int = 1,
    repeated: Parallel | None = None,
    self_loops: bool = True,
    presence: Presence = "active",
    nodes: NodeTable | None = None,
    features: Carrier | None = None,
    renumber: bool = True,
    num_nodes: int | None = None,
    max_nodes: int = MAX_NODES,
    max_snapshots: int = MAX_SNAPSHOTS,
    info: Mapping[str, Any] | None = None,
    count_pairs: bool = False,
    out: str | PathLike[str] | None = None,
    text: TextOptions | None = None,
    skip_bad_rows: bool = False,
    rejects: str | PathLike[str] | None = None,
    overwrite: bool = False,
    memory: str = "512MB",
    on_stage: OnStage | None = None,
) -> DynamicGraph:
    """Makes a dynamic graph from a table of events (or of snapshots' edges).

    ``source`` is a file (CSV, TSV, plain text, also .gz; Parquet; NPZ), a list of files, an Arrow table or stream,
    a data frame, a mapping of arrays, or a DB-API cursor whose query has been executed. Columns are given by name
    or position: ``src``, ``dst``, ``time`` and ``weight``; ``clock`` says how time is cut into snapshots. With
    ``out`` the graph is written there and opened; else it is built in memory.

    ``ids`` ("integer" or "string") and ``time_unit`` ("number", "s", "ms", "iso") are found out
    from the first rows if not given; ``directed``; ``life``, for how many snapshots an edge stays; ``repeated``,
    what several events of an edge in a snapshot do ("count", "sum", "last", "keep"; by default weights are summed
    and events without weights counted); ``self_loops``; ``presence``, when a node is present ("active": in
    snapshots where it has an edge; "seen": from its first edge on; "always"); ``nodes``, a ``NodeTable``;
    ``features``, by default log degrees; ``renumber=False`` where ids are 0..N-1 already, up to ``num_nodes`` or, where
    that is not given, at most ``max_nodes``; ``max_snapshots``, how many a clock may make; ``info``, what the graph
    shall remember of its origin; ``count_pairs``, to count the distinct pairs of ids for that, which costs a sort.

    Bad rows raise ``BadRowsError``, which names each, and nothing is written; ``skip_bad_rows`` leaves them out and
    writes them to ``rejects``, which must be no input and no file that holds anything else. Memory: ``memory`` for the
    database, which spills to disk, and what ``GraphBuilder`` needs. Equal rows in any order give the same graph;
    parallel edges that are kept come in order of weight.
    """
    options = Options(
        src=src,
        dst=dst,
        clock=clock,
        time=time,
        weight=weight,
        ids=ids,
        time_unit=time_unit,
        directed=directed,
        life=life,
        repeated=repeated,
        self_loops=self_loops,
        presence=presence,
        nodes=nodes,
        features=features,
        renumber=renumber,
        num_nodes=num_nodes,
        max_nodes=max_nodes,
        max_snapshots=max_snapshots,
        info=info or {},
        count_pairs=count_pairs,
    )
    if rejects is not None and not skip_bad_rows:
        raise OptionError("rejects= is where bad rows go that are left out: leave them out with skip_bad_rows=True")
    out = None if out is None else usable_path(out, "out")
    sources = [source, None if nodes is None else nodes.source]
    bad_path = rejects_path(out, rejects, sources) if skip_bad_rows else None
    with contextlib.ExitStack() as stack:
        sink = None if out is None else stack.enter_context(DiskSink(out, overwrite=overwrite))
        scratch = None if sink is None else sink.scratch_dir
        if scratch is None:
            scratch = stack.enter_context(TemporaryFolder("ingest")).path
        con = stack.enter_context(database(scratch, memory))
        bad = Rejects(bad_path, scratch)
        job = _Job(con, options, bad, scratch, on_stage or (lambda stage, done, total: None))
        kinds = _stage_all(job, source, text or TextOptions())
        if not skip_bad_rows:
            bad.refuse()
        bad.publish()
        graph = _build(job, sink, *kinds)
        bad.finish()
        return graph


def _stage_all(job: _Job, source: Any, text: TextOptions) -> tuple[Ids, TimeUnit]:
    """Fills the tables ``events``, ``files`` and, where a node table is given, ``nodes``."""
    con, options, report = job.con, job.options, job.report
    report("reading rows", 0, None)
    found = tables(con, source, text, options.columns())
    ids, unit = stage_events(con, found, options, job.rejects, partial(report, "reading rows"))
    if options.nodes is not None:
        table = options.nodes
        rows = tables(con, table.source, text, table.columns())
        parse_nodes = partial(table.parse, ids=ids, unit=unit, clock=options.clock)
        stage(con, "nodes", rows, parse_nodes, job.rejects, partial(report, "reading nodes"))
    return ids, unit


def _build(job: _Job, sink: Sink | None, ids: Ids, unit: TimeUnit) -> DynamicGraph:
    con, options, bad, report = job.con, job.options, job.rejects, job.report
    [(num_events,)] = con.execute("SELECT count(*) FROM events").fetchall()
    if num_events == 0 and not (isinstance(options.clock, ByColumn) and options.clock.values is not None):
        left_out = f" once bad rows are left out, see {bad.path}" if bad.count else ""
        raise InputError(f"there is no event to make a graph of{left_out}")
    report("cutting snapshots", 0, None)
    try:
        cut = options.clock.cut(con, "number" if unit == "number" else "unix", options.max_snapshots)
    except OverflowError as error:
        raise InputError(f"the events' times cannot be cut like this: {error}") from error
    report("numbering nodes", 0, None)
    columns = [("events", "src"), ("events", "dst"), *([("nodes", "id")] if options.nodes is not None else [])]
    if options.renumber:
        numbering = renumbered(con, columns, ids)
    else:
        numbering = as_given(con, columns, options.num_nodes, options.max_nodes)
    values = None if options.nodes is None else NodeValues(con, options.nodes, numbering, cut)
    builder = GraphBuilder(
        sink,
        num_nodes=numbering.num_nodes,
        directed=options.directed,
        weighted=options.weight is not None,
        parallel=options.merging,
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
    features, labels = (None, None) if values is None else values.for_all_time()
    if not (options.nodes is not None and options.nodes.features):
        features = options.features or Degrees(log=True)
    info: dict[str, Any] = {
        **options.info,
        "rows": num_events,
        "bad_rows": bad.count,
        "comment_lines": bad.comment_lines,
        "repeated": options.merging,
        "life": options.life,
        **_counted(con, options, unit),
    }
    if bad.count and bad.path is not None:
        info["rejects"] = str(bad.path)
    if values is not None and values.classes is not None:
        info["classes"] = values.classes
    con.close()
    return builder.finish(features=features, labels=labels, names=numbering.names, info=info)


def _counted(con: Connection, options: Options, unit: TimeUnit) -> dict[str, Any]:
    """The first and last time (dates as ISO text) and, if asked for, the distinct pairs of ids among the events."""
    counted: dict[str, Any] = {}
    if options.time is not None:
        moment = "strftime(make_timestamp(CAST({} * 1000000 AS BIGINT)), '%Y-%m-%dT%H:%M:%S')"
        shown = "{}" if unit == "number" else moment
        picked = ", ".join(shown.format(end) for end in ("min(time)", "max(time)"))
        [ends] = con.execute(f"SELECT {picked} FROM events").fetchall()
        whole = [int(end) if isinstance(end, float) and end.is_integer() else end for end in ends]
        counted |= dict(zip(("first_time", "last_time"), whole, strict=True))
    if options.count_pairs:
        [(pairs,)] = con.execute("SELECT count(*) FROM (SELECT DISTINCT src, dst FROM events)").fetchall()
        counted["distinct_pairs"] = pairs
    return counted
