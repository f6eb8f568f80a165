"""``strobe ingest``: a dynamic graph from tables of events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from strobe.cli.console import print_json, print_note, print_result, show_written, stage_bar
from strobe.cli.options.clock import CUT_PANEL, SnapshotsOption
from strobe.cli.options.events import FILES_PANEL, EventOptions, parse_column, parse_optional_column
from strobe.cli.options.groups import flatten_options, option
from strobe.errors import OptionError
from strobe.format import pluralize
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import NodeTable
from strobe.graph.ingest import ingest as ingest_table
from strobe.graph.ingest.clock import MAX_SNAPSHOTS

_NODES = "Node table"
_MAX_SNAPSHOTS = "Fail with more: one wrong time among the events makes millions of empty snapshots."


@dataclass(frozen=True, kw_only=True)
class NodeTableOptions:
    """A table with features and labels of nodes, and its columns."""

    nodes: Annotated[Path | None, option("A table with features and labels of nodes.", panel=_NODES)] = None
    node_id: Annotated[str, option("Its id column.", panel=_NODES)] = "id"
    features: Annotated[str | None, option("Its feature columns, separated by commas.", panel=_NODES)] = None
    label: Annotated[str | None, option("Its label column.", panel=_NODES)] = None
    node_time: Annotated[
        str | None, option("Its time column: a row is valid until the node's next row.", panel=_NODES)
    ] = None
    fill_missing: Annotated[bool, option("Zeros for nodes without a row.", "--fill-missing", panel=_NODES)] = False

    def to_table(self) -> NodeTable | None:
        """The node table, if there is one."""
        if self.nodes is None:
            if self.features or self.label or self.node_time:
                raise OptionError("--features, --label and --node-time are columns of a node table: add --nodes FILE")
            return None
        return NodeTable(
            source=self.nodes,
            id=parse_column(self.node_id),
            features=[parse_column(name.strip()) for name in self.features.split(",")] if self.features else [],
            label=parse_optional_column(self.label),
            time=parse_optional_column(self.node_time),
            missing="zero" if self.fill_missing else "error",
        )


@flatten_options
def ingest(
    sources: Annotated[list[Path], typer.Argument(help="Files: CSV, TSV, plain text (also .gz), Parquet, NPZ.")],
    to: Annotated[Path, option("The directory to write the graph to.", "--out", "-o")],
    *,
    events: EventOptions,
    snapshots: SnapshotsOption = None,
    max_snapshots: Annotated[int, option(_MAX_SNAPSHOTS, metavar="N", panel=CUT_PANEL)] = MAX_SNAPSHOTS,
    node_table: NodeTableOptions,
    rejects: Annotated[Path | None, option("That file. \\[default: OUT.rejects.csv]", panel=FILES_PANEL)] = None,
    memory: Annotated[
        str, option("Memory of the database; larger tables are spilled to disk.", panel=FILES_PANEL)
    ] = "512MB",
    overwrite: Annotated[bool, option("Replace an existing graph.", "--overwrite", panel=FILES_PANEL)] = False,
    as_json: Annotated[bool, option("Print the result as one line of JSON.", "--json")] = False,
) -> None:
    """Make a dynamic graph from tables of events.

    A row is an event: a source, a destination, a time, perhaps a weight. Options choose how time is cut into
    snapshots:

    `strobe ingest payments.parquet --src payer --dst payee --time at --weight amount --per month -o payments`

    `strobe ingest wiki.tsv.gz --src 0 --dst 1 --time 2 --every 7d --life 3 -o wiki`

    Bad rows are reported with file, line, column and reason, and nothing is written, unless `--skip-bad-rows` skips
    them. Tables may be larger than memory.
    """
    arguments = events.to_arguments(snapshots, also="--snapshots 50, ")
    nodes = node_table.to_table()
    begin = perf_counter()
    with stage_bar() as on_stage:
        graph = ingest_table(
            list(sources),
            **arguments,
            nodes=nodes,
            max_snapshots=max_snapshots,
            out=to,
            text=events.text,
            skip_bad_rows=events.skip_bad_rows,
            rejects=rejects,
            memory=memory,
            overwrite=overwrite,
            on_stage=on_stage,
        )
    _summary(graph, to, perf_counter() - begin, as_json)


def _summary(graph: DynamicGraph, path: Path, seconds: float, as_json: bool) -> None:
    info, rows = graph.info, int(graph.info["rows"])
    if as_json:
        counts = {"nodes": graph.num_nodes, "snapshots": len(graph), "cells": graph.num_cells, "edges": graph.num_edges}
        print_json({"graph": str(path), **counts, **info, "seconds": round(seconds, 3)})
        return
    print_result(f"{rows:,} events in {seconds:.1f} s ({rows / max(seconds, 1e-9):,.0f} per second)")
    empty = sum(not snapshot.num_edges for snapshot in graph)
    if 10 * empty > 9 * len(graph):
        times = f"{graph.times[0]} to {graph.times[-1]}"
        print_note(f"{empty:,} of {len(graph):,} snapshots, from {times}, have no edges: is a time wrong?", "yellow")
    if info["comment_lines"]:
        print_note(f"skipped {pluralize(info['comment_lines'], 'comment line')}", "dim")
    if info["bad_rows"]:
        print_note(f"skipped {pluralize(info['bad_rows'], 'bad row')}, see {info['rejects']}", "yellow")
    show_written(graph, path)
