"""``strobe ingest``: tables of events become a dynamic graph."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

from strobe.cli import ingest_options as given
from strobe.cli.clock_options import (
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    SnapshotsOption,
    clock_from,
)
from strobe.cli.console import err, out, show_written, stage_bar
from strobe.cli.ingest_options import column_of
from strobe.errors import OptionError
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import NodeTable, TextOptions
from strobe.graph.ingest import ingest as ingest_table
from strobe.graph.ingest.clock import MAX_SNAPSHOTS


def ingest(
    sources: given.SourcesArgument,
    to: given.ToOption,
    src: given.SrcOption = "src",
    dst: given.DstOption = "dst",
    time: given.TimeOption = None,
    weight: given.WeightOption = None,
    ids: given.IdsOption = None,
    time_unit: given.TimeUnitOption = None,
    every: EveryOption = None,
    per: PerOption = None,
    events: EventsOption = None,
    snapshots: SnapshotsOption = None,
    by_column: given.ByColumnOption = None,
    per_file: given.PerFileOption = False,
    max_snapshots: given.MaxSnapshotsOption = MAX_SNAPSHOTS,
    undirected: given.UndirectedOption = False,
    life: LifeOption = None,
    repeated: given.RepeatedOption = None,
    self_loops: given.SelfLoopsOption = True,
    presence: PresenceOption = None,
    nodes: given.NodesOption = None,
    node_id: given.NodeIdOption = "id",
    features: given.FeaturesOption = None,
    label: given.LabelOption = None,
    node_time: given.NodeTimeOption = None,
    fill_missing: given.FillMissingOption = False,
    delimiter: given.DelimiterOption = None,
    header: given.HeaderOption = None,
    encoding: given.EncodingOption = "utf-8",
    skip_bad_rows: given.SkipBadRowsOption = False,
    rejects: given.RejectsOption = None,
    memory: given.MemoryOption = "512MB",
    overwrite: given.OverwriteOption = False,
    as_json: given.AsJsonOption = False,
) -> None:
    """Make a dynamic graph from tables of events.

    A row is an event: a source, a destination, a time, perhaps a weight. Say how time is cut into snapshots, and
    Strobe sorts the events into them, numbers the nodes and writes a graph that opens in no time:

    `strobe ingest payments.parquet --src payer --dst payee --time at --weight amount --per month -o payments`

    `strobe ingest wiki.tsv.gz --src 0 --dst 1 --time 2 --every 7d --life 3 -o wiki`

    Every bad row is reported with file, line, column and reason, and nothing is written, unless you leave them out
    with `--skip-bad-rows`. Larger tables than memory are fine.
    """
    clock = clock_from(every, per, events, snapshots, None if by_column is None else column_of(by_column), per_file)
    if clock is None:
        raise OptionError(
            "say how to cut time into snapshots: --per month, --every 7d, --events 10000, --snapshots 50, "
            "--by-column NAME or --per-file"
        )
    chosen: dict[str, Any] = {
        "ids": ids,
        "time_unit": time_unit,
        "repeated": repeated,
        "presence": presence,
        "life": life,
        "nodes": _node_table(nodes, node_id, features, label, node_time, fill_missing),
    }
    begin = perf_counter()
    with stage_bar() as on_stage:
        graph = ingest_table(
            list(sources),
            src=column_of(src),
            dst=column_of(dst),
            time=None if time is None else column_of(time),
            weight=None if weight is None else column_of(weight),
            clock=clock,
            max_snapshots=max_snapshots,
            out=to,
            directed=not undirected,
            self_loops=self_loops,
            text=TextOptions(delimiter=delimiter, header=header, encoding=encoding),
            skip_bad_rows=skip_bad_rows,
            rejects=rejects,
            memory=memory,
            overwrite=overwrite,
            on_stage=on_stage,
            **{name: value for name, value in chosen.items() if value is not None},
        )
    _summary(graph, to, perf_counter() - begin, as_json)


def _summary(graph: DynamicGraph, path: Path, seconds: float, as_json: bool) -> None:
    info, rows = graph.info, int(graph.info["rows"])
    if as_json:
        counts = {"nodes": graph.num_nodes, "snapshots": len(graph), "cells": graph.num_cells, "edges": graph.num_edges}
        out.print_json(json.dumps({"graph": str(path), **counts, **info, "seconds": round(seconds, 3)}), indent=None)
        return
    out.print(f"{rows:,} events in {seconds:.1f} s ({rows / max(seconds, 1e-9):,.0f} per second)", highlight=False)
    empty = sum(not snapshot.num_edges for snapshot in graph)
    if 10 * empty > 9 * len(graph):
        times = f"{graph.times[0]} to {graph.times[-1]}"
        err.print(
            f"{empty:,} of {len(graph):,} snapshots, from {times}, have no edges: is one of the times wrong?",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    if info["comment_lines"]:
        passed = "1 comment line was" if info["comment_lines"] == 1 else f"{info['comment_lines']:,} comment lines were"
        err.print(f"{passed} skipped", style="dim", highlight=False, soft_wrap=True)
    if info["bad_rows"]:
        left = "1 bad row was" if info["bad_rows"] == 1 else f"{info['bad_rows']:,} bad rows were"
        err.print(f"{left} left out, see {info['rejects']}", style="yellow", highlight=False, soft_wrap=True)
    show_written(graph, path)


def _node_table(
    source: Path | None, node_id: str, features: str | None, label: str | None, time: str | None, fill_missing: bool
) -> NodeTable | None:
    if source is None:
        if features or label or time:
            raise OptionError("--features, --label and --node-time speak of a node table: say which with --nodes FILE")
        return None
    return NodeTable(
        source=source,
        id=column_of(node_id),
        features=[column_of(name.strip()) for name in features.split(",")] if features else [],
        label=None if label is None else column_of(label),
        time=None if time is None else column_of(time),
        missing="zero" if fill_missing else "error",
    )
