"""``strobe ingest``: tables of events become a dynamic graph."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from strobe.cli.clock_options import (
    CUT_PANEL,
    EDGES_PANEL,
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    SnapshotsOption,
    clock_from,
)
from strobe.cli.console import err, out, show_written, stage_bar
from strobe.errors import OptionError
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import NodeTable
from strobe.graph.ingest import ingest as ingest_table
from strobe.graph.ingest.tables import TextOptions

_COLUMNS = "Columns"
_NODES = "Node table"
_FILES = "Files and bad rows"


def ingest(
    sources: Annotated[list[Path], typer.Argument(help="Files: CSV, TSV, plain text (also .gz), Parquet, NPZ.")],
    to: Annotated[Path, typer.Option("--out", "-o", help="Where the graph goes: a directory that is made.")],
    src: Annotated[
        str, typer.Option(help="Source column, by name or position from 0.", rich_help_panel=_COLUMNS)
    ] = "src",
    dst: Annotated[str, typer.Option(help="Destination column.", rich_help_panel=_COLUMNS)] = "dst",
    time: Annotated[str | None, typer.Option(help="Time column.", rich_help_panel=_COLUMNS)] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column.", rich_help_panel=_COLUMNS)] = None,
    ids: Annotated[
        str | None,
        typer.Option(help="integer or string. \\[default: found from the first rows]", rich_help_panel=_COLUMNS),
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(help="iso, s, ms or number. \\[default: found from the first rows]", rich_help_panel=_COLUMNS),
    ] = None,
    every: EveryOption = None,
    per: PerOption = None,
    events: EventsOption = None,
    snapshots: SnapshotsOption = None,
    by_column: Annotated[
        str | None, typer.Option("--by-column", help="A snapshot per value of this column.", rich_help_panel=CUT_PANEL)
    ] = None,
    per_file: Annotated[
        bool, typer.Option("--per-file", help="A snapshot per file, in the order given.", rich_help_panel=CUT_PANEL)
    ] = False,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="An edge goes both ways.", rich_help_panel=EDGES_PANEL)
    ] = False,
    life: LifeOption = None,
    repeated: Annotated[
        str | None,
        typer.Option(
            help="What several events of an edge in a snapshot become: count, sum, last or keep. "
            "\\[default: sum with weights, else count]",
            rich_help_panel=EDGES_PANEL,
        ),
    ] = None,
    self_loops: Annotated[
        bool, typer.Option(help="Keep edges of a node with itself.", rich_help_panel=EDGES_PANEL)
    ] = True,
    presence: PresenceOption = None,
    nodes: Annotated[
        Path | None, typer.Option(help="A table with features and labels of nodes.", rich_help_panel=_NODES)
    ] = None,
    node_id: Annotated[str, typer.Option(help="Its id column.", rich_help_panel=_NODES)] = "id",
    features: Annotated[
        str | None, typer.Option(help="Its feature columns, separated by commas.", rich_help_panel=_NODES)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Its label column.", rich_help_panel=_NODES)] = None,
    node_time: Annotated[
        str | None,
        typer.Option(help="Its time column: a row holds until the node's next one.", rich_help_panel=_NODES),
    ] = None,
    fill_missing: Annotated[
        bool, typer.Option("--fill-missing", help="Zeros for nodes without a row.", rich_help_panel=_NODES)
    ] = False,
    delimiter: Annotated[str | None, typer.Option(help="\\[default: found]", rich_help_panel=_FILES)] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="\\[default: yes if columns are given by name]", rich_help_panel=_FILES
        ),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of text files.", rich_help_panel=_FILES)] = "utf-8",
    skip_bad_rows: Annotated[
        bool,
        typer.Option("--skip-bad-rows", help="Leave bad rows out, and write them to a file.", rich_help_panel=_FILES),
    ] = False,
    rejects: Annotated[
        Path | None, typer.Option(help="That file. \\[default: OUT.rejects.csv]", rich_help_panel=_FILES)
    ] = None,
    memory: Annotated[
        str, typer.Option(help="For the database; more than that goes to disk.", rich_help_panel=_FILES)
    ] = "512MB",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing graph.", rich_help_panel=_FILES)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")] = False,
) -> None:
    """Make a dynamic graph from tables of events.

    A row is an event: a source, a destination, a time, perhaps a weight. Say how time is cut into snapshots, and
    Strobe sorts the events into them, numbers the nodes and writes a graph that opens in no time:

    `strobe ingest payments.parquet --src payer --dst payee --time at --weight amount --per month -o payments`

    `strobe ingest wiki.tsv.gz --src 0 --dst 1 --time 2 --every 7d --life 3 -o wiki`

    Every bad row is reported with file, line, column and reason, and nothing is written, unless you leave them out
    with `--skip-bad-rows`. Larger tables than memory are fine.
    """
    clock = clock_from(every, per, events, snapshots, None if by_column is None else _column(by_column), per_file)
    if clock is None:
        raise OptionError(
            "say how to cut time into snapshots: --per month, --every 7d, --events 10000, --snapshots 50, "
            "--by-column NAME or --per-file"
        )
    given: dict[str, Any] = {
        "ids": _one_of("--ids", ids, "integer", "string"),
        "time_unit": _one_of("--time-unit", time_unit, "iso", "s", "ms", "number"),
        "repeated": _one_of("--repeated", repeated, "count", "sum", "last", "keep"),
        "presence": presence,
        "life": life,
        "nodes": _node_table(nodes, node_id, features, label, node_time, fill_missing),
    }
    begin = perf_counter()
    with stage_bar() as on_stage:
        graph = ingest_table(
            list(sources),
            src=_column(src),
            dst=_column(dst),
            time=None if time is None else _column(time),
            weight=None if weight is None else _column(weight),
            clock=clock,
            out=to,
            directed=not undirected,
            self_loops=self_loops,
            text=TextOptions(delimiter=delimiter, header=header, encoding=encoding),
            skip_bad_rows=skip_bad_rows,
            rejects=rejects,
            memory=memory,
            overwrite=overwrite,
            on_stage=on_stage,
            **{name: value for name, value in given.items() if value is not None},
        )
    _summary(graph, to, perf_counter() - begin, as_json)


def _summary(graph: DynamicGraph, path: Path, seconds: float, as_json: bool) -> None:
    info, rows = graph.info, int(graph.info["rows"])
    if as_json:
        counts = {"nodes": graph.num_nodes, "snapshots": len(graph), "cells": graph.num_cells, "edges": graph.num_edges}
        out.print_json(json.dumps({"graph": str(path), **counts, **info, "seconds": round(seconds, 3)}), indent=None)
        return
    out.print(f"{rows:,} events in {seconds:.1f} s ({rows / max(seconds, 1e-9):,.0f} per second)", highlight=False)
    if info["bad_rows"]:
        err.print(
            f"{info['bad_rows']:,} bad rows were left out: see {info['rejects']}", style="yellow", highlight=False
        )
    show_written(graph, path)


def _column(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _one_of(option: str, value: str | None, *allowed: str) -> str | None:
    if value is not None and value not in allowed:
        raise OptionError(f"{option} takes {', '.join(allowed)}, not {value!r}")
    return value


def _node_table(
    source: Path | None, node_id: str, features: str | None, label: str | None, time: str | None, fill_missing: bool
) -> NodeTable | None:
    if source is None:
        if features or label or time:
            raise OptionError("--features, --label and --node-time speak of a node table: say which with --nodes FILE")
        return None
    return NodeTable(
        source=source,
        id=_column(node_id),
        features=[_column(name.strip()) for name in features.split(",")] if features else [],
        label=None if label is None else _column(label),
        time=None if time is None else _column(time),
        missing="zero" if fill_missing else "error",
    )
