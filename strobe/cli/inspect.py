"""``strobe inspect``: what a graph looks like, in the terminal, as JSON, or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from strobe.cli.console import err, out, progress_bar
from strobe.cli.graph_summary import summary
from strobe.errors import OptionError
from strobe.graph.datasets import DATA_SETS
from strobe.graph.disk import open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.stats import GraphStats, describe
from strobe.numbers import file_size


def inspect(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="The directory of a saved graph.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page with plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every array first, also where that was done before.")
    ] = False,
    snapshots: Annotated[
        str | None, typer.Option("--snapshots", metavar="A:B", help="Only snapshots A up to B, such as 10:20 or -12:.")
    ] = None,
) -> None:
    """Show a graph's size, churn, degrees, sequence lengths, bytes and unevenness.

    Every number is exact and comes from one pass over the snapshots; memory holds two of them at a time.
    """
    if html is not None:
        from strobe.report.page import check_target

        check_target(html)  # before the work, not after it
    if str(graph) in DATA_SETS and not graph.exists():
        raise OptionError(f"there is no graph at {graph} yet: make one of the data set with strobe data get {graph}")
    opened = _opened(graph, verify)
    stats = _described(opened if snapshots is None else _part(opened, snapshots))
    name = graph.resolve().name
    if as_json:
        found = {"graph": str(graph), "verified": verify, **stats.to_dict()}
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        out.print(*summary(stats, name), sep="\n", highlight=False)
    if html is not None:
        _write(html, stats, name)


def _described(graph: DynamicGraph) -> GraphStats:
    with progress_bar("snapshots") as on_progress:
        return describe(graph, on_progress)


def _opened(folder: Path, verify: bool) -> DynamicGraph:
    with progress_bar("checking the graph") as on_progress:
        graph = open_graph(folder, verify=verify, on_progress=on_progress)
    if verify:
        files = list(folder.rglob("*.npy"))
        size = file_size(sum(path.stat().st_size for path in files))
        note = f"verified: {len(files)} arrays, {size}, all match their checksums, and all indices are in range"
        err.print(Text(note), highlight=False, soft_wrap=True)
    return graph


def _part(graph: DynamicGraph, text: str) -> DynamicGraph:
    """The snapshots a text such as ``10:20``, ``:40`` or ``-12:`` stands for."""
    try:
        start, stop = (int(end) if end.strip() else None for end in text.split(":"))
    except ValueError:
        raise OptionError(f"--snapshots takes A:B, such as 10:20, :40 or -12:, not {text!r}") from None
    part = graph[start:stop]
    if len(graph) and not len(part):
        raise OptionError(f"--snapshots {text} selects none of the {len(graph):,} snapshots (0:{len(graph)})")
    return part


def _write(path: Path, stats: GraphStats, name: str) -> None:
    from strobe.report.graph_page import graph_page
    from strobe.report.page import write_page

    try:
        write_page(path, graph_page(stats, name))
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
    err.print(Text(f"page: {path}"), highlight=False, soft_wrap=True)
