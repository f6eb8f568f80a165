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
from strobe.graph.disk import check_arrays, open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.stats import GraphStats, describe
from strobe.numbers import file_size


def inspect(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="The directory of a saved graph.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page with plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read every array against its checksum first.")] = False,
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
    opened = open_graph(graph, verify=False if verify else None)
    if verify:
        _verify(graph)
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


def _verify(folder: Path) -> None:
    total = sum(path.stat().st_size for path in folder.rglob("*.npy")) >> 20
    done, names = 0, set[str]()
    with progress_bar("checksums, MiB") as on_progress:
        for name, num_bytes in check_arrays(folder):
            done += num_bytes
            names.add(name)
            on_progress(done >> 20, total)
    note = f"verified: {len(names)} arrays, {file_size(done)}, all match their checksums"
    err.print(Text(note), highlight=False, soft_wrap=True)


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
