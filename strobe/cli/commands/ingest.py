"""``strobe ingest``: a dynamic graph from tables of events."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

from strobe.cli.console import err, out, show_written, stage_bar
from strobe.cli.options import ingest as options
from strobe.cli.options.clock import (
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    SnapshotsOption,
    make_clock,
)
from strobe.cli.options.ingest import parse_column
from strobe.errors import OptionError
from strobe.format import pluralize
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import NodeTable, TextOptions
from strobe.graph.ingest import ingest as ingest_table
from strobe.graph.ingest.clock import MAX_SNAPSHOTS


def ingest(
    sources: options.SourcesArgument,
    to: options.ToOption,
    src: options.SrcOption = "src",
    dst: options.DstOption = "dst",
    time: options.TimeOption = None,
    weight: options.WeightOption = None,
    ids: options.IdsOption = None,
    time_unit: options.TimeUnitOption = None,
    every: EveryOption = None,
    per: PerOption = None,
    events: EventsOption = None,
    snapshots: SnapshotsOption = None,
    by_column: options.ByColumnOption = None,
    per_file: options.PerFileOption = False,
    max_snapshots: options.MaxSnapshotsOption = MAX_SNAPSHOTS,
    undirected: options.UndirectedOption = False,
    life: LifeOption = None,
    repeated: options.RepeatedOption = None,
    self_loops: options.SelfLoopsOption = True,
    presence: PresenceOption = None,
    nodes: options.NodesOption = None,
    node_id: options.NodeIdOption = "id",
    features: options.FeaturesOption = None,
    label: options.LabelOption = None,
    node_time: options.NodeTimeOption = None,
    fill_missing: options.FillMissingOption = False,
    delimiter: options.DelimiterOption = None,
    header: options.HeaderOption = None,
    encoding: options.EncodingOption = "utf-8",
    skip_bad_rows: options.SkipBadRowsOption = False,
    rejects: options.RejectsOption = None,
    memory: options.MemoryOption = "512MB",
    overwrite: options.OverwriteOption = False,
    as_json: options.AsJsonOption = False,
) -> None:
    """Make a dynamic graph from tables of events.

    A row is an event: a source, a destination, a time, perhaps a weight. Options choose how time is cut into
    snapshots:

    `strobe ingest payments.parquet --src payer --dst payee --time at --weight amount --per month -o payments`

    `strobe ingest wiki.tsv.gz --src 0 --dst 1 --time 2 --every 7d --life 3 -o wiki`

    Bad rows are reported with file, line, column and reason, and nothing is written, unless `--skip-bad-rows` skips
    them. Tables may be larger than memory.
    """
    clock = make_clock(every, per, events, snapshots, None if by_column is None else parse_column(by_column), per_file)
    if clock is None:
        raise OptionError(
            "choose how to cut time into snapshots: --per month, --every 7d, --events 10000, --snapshots 50, "
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
            src=parse_column(src),
            dst=parse_column(dst),
            time=None if time is None else parse_column(time),
            weight=None if weight is None else parse_column(weight),
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
            f"{empty:,} of {len(graph):,} snapshots, from {times}, have no edges: is a time wrong?",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    if info["comment_lines"]:
        skipped = pluralize(info["comment_lines"], "comment line")
        err.print(f"skipped {skipped}", style="dim", highlight=False, soft_wrap=True)
    if info["bad_rows"]:
        skipped = pluralize(info["bad_rows"], "bad row")
        err.print(f"skipped {skipped}, see {info['rejects']}", style="yellow", highlight=False, soft_wrap=True)
    show_written(graph, path)


def _node_table(
    source: Path | None, node_id: str, features: str | None, label: str | None, time: str | None, fill_missing: bool
) -> NodeTable | None:
    if source is None:
        if features or label or time:
            raise OptionError("--features, --label and --node-time are columns of a node table: add --nodes FILE")
        return None
    return NodeTable(
        source=source,
        id=parse_column(node_id),
        features=[parse_column(name.strip()) for name in features.split(",")] if features else [],
        label=None if label is None else parse_column(label),
        time=None if time is None else parse_column(time),
        missing="zero" if fill_missing else "error",
    )
