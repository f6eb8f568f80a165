"""``strobe predict``: the predictions of a trained model, as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from rich import box
from rich.markup import escape
from rich.table import Table

from strobe.api import open_run
from strobe.cli.console import out, print_json, print_note, print_result, progress_bar
from strobe.cli.options.groups import flatten_options, option
from strobe.cli.options.run import AsJsonOption, DeviceOption, GraphOption, RunArgument
from strobe.engine.evaluation.predict import write_predictions
from strobe.engine.evaluation.predict_links import TopLinks, link_problem, write_pairs, write_top_links
from strobe.engine.evaluation.tables import NODE, PAIR, NodeRows, WrittenTable, find_nodes, opener, read_node_rows
from strobe.engine.run import Run
from strobe.errors import OptionError
from strobe.format import file_size, pluralize
from strobe.graph import DynamicGraph

_LINKS = "Links, of link-prediction and link-ranking"


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Which links to predict: the best candidates of nodes, or the pairs of a file."""

    top: Annotated[
        int | None,
        option("The N likeliest destinations of every node in the next snapshot.", metavar="N", panel=_LINKS),
    ] = None
    nodes: Annotated[
        Path | None, option("Only for the nodes of this file (column node; .csv or .parquet).", panel=_LINKS)
    ] = None
    node: Annotated[
        list[str] | None, option("Only for this node, by name or id; may be repeated.", metavar="NAME", panel=_LINKS)
    ] = None
    exclude: Annotated[
        str, option("Pairs left out: none, last (an edge in the snapshot read), ever (in any).", panel=_LINKS)
    ] = "none"
    pairs: Annotated[
        Path | None,
        option("Score the pairs of this file (columns source, destination; .csv or .parquet).", panel=_LINKS),
    ] = None
    skip_bad_rows: Annotated[bool, option("Leave out rows of unknown nodes.", "--skip-bad-rows", panel=_LINKS)] = False

    def top_links(self, part: str, embeddings: bool) -> TopLinks:
        """What --top and --exclude ask for; refuses options that do not go together."""
        if self.top is not None and self.pairs is not None:
            raise OptionError("--top finds pairs, --pairs lists them: give one of them")
        if (self.nodes or self.node or self.exclude != "none") and self.top is None:
            raise OptionError("--nodes, --node and --exclude choose among the best candidates: add --top N")
        if (self.top is not None or self.pairs is not None) and (embeddings or part != "next"):
            raise OptionError(
                "--top and --pairs predict the next snapshot, without embeddings: leave out --part, --embeddings"
            )
        return TopLinks(top=20 if self.top is None else self.top, exclude=self.exclude)

    def read(self, graph: DynamicGraph, path: Path, columns: tuple[str, ...]) -> NodeRows:
        """Read a file of nodes or pairs, and note the rows that are left out."""
        read = read_node_rows(graph, path, columns, skip_bad_rows=self.skip_bad_rows)
        if read.bad:
            print_note(f"skipped {pluralize(len(read.bad), 'bad row')}:\n{read.describe_bad()}", "yellow")
        return read


@flatten_options
def predict(
    run: RunArgument,
    to: Annotated[
        Path, option("The file to write: Parquet (.parquet) or CSV (.csv).", "--out", "-o", metavar="FILE")
    ] = Path("predictions.parquet"),
    *,
    part: Annotated[
        str, option("Which snapshots: next (the newest, with an unknown future), train, validation, test.")
    ] = "next",
    embeddings: Annotated[
        bool, option("Also write the embeddings that predictions are made from.", "--embeddings")
    ] = False,
    links: LinkOptions,
    graph: GraphOption = None,
    device: DeviceOption = None,
    overwrite: Annotated[bool, option("Replace an existing file.", "--overwrite")] = False,
    as_json: AsJsonOption = False,
) -> None:
    """Write the predictions of a run as a table, a row per node (or pair) and snapshot.

    Columns: node and its name, the snapshot read (t, read_time), the time that is predicted (time), the prediction
    and, where it is known, the actual value.

    `strobe predict runs/social-tgcn -o next.parquet`

    `strobe predict runs/social-tgcn --part test --embeddings -o test.csv`

    Predict on a graph that has grown since:

    `strobe predict runs/social-tgcn --graph social-today -o next.parquet`

    The 20 likeliest links of every node, or of two nodes, among pairs that never had an edge:

    `strobe predict runs/links --top 20 -o links.parquet`

    `strobe predict runs/links --top 20 --node anna --node bob --exclude ever -o new.parquet`

    Links that you list, a line `source,destination` each:

    `strobe predict runs/links --pairs pairs.csv -o scores.parquet`

    A probability is calibrated: of pairs with probability 0.2 one in five has an edge in the predicted snapshot. A run
    without a calibration has scores alone.
    """
    wanted = links.top_links(part, embeddings)
    _check_output_path(to, overwrite)
    opened = open_run(run, graph=graph, device=device)
    if links.pairs is not None:
        written = _write_pairs(opened, to, links, links.pairs)
    elif links.top is not None:
        written = _write_top(opened, to, links, wanted)
    else:
        with progress_bar("snapshots") as on_progress:
            written = write_predictions(opened, to, part, embeddings=embeddings, on_progress=on_progress)
    rows, size = written.rows, to.stat().st_size
    if as_json:
        print_json({"run": str(run), "part": part, "file": str(to), "rows": rows, "bytes": size})
        return
    print_result(f"{pluralize(rows, 'prediction')}, {file_size(size)} at {to}")
    out.print(_first_rows(written.first), highlight=False)


def _write_top(run: Run, to: Path, links: LinkOptions, wanted: TopLinks) -> WrittenTable:
    graph = link_problem(run).graph
    sources: list[int] = find_nodes(graph, links.node or [])
    if links.nodes is not None:
        sources += links.read(graph, links.nodes, NODE).nodes[0].tolist()
    if links.nodes is not None or links.node:
        wanted = replace(wanted, nodes=sources)
    with progress_bar("sources") as on_progress:
        return write_top_links(run, to, wanted, on_progress)


def _write_pairs(run: Run, to: Path, links: LinkOptions, pairs: Path) -> WrittenTable:
    read = links.read(link_problem(run).graph, pairs, PAIR)
    with progress_bar("pairs") as on_progress:
        return write_pairs(run, to, read.nodes[0], read.nodes[1], on_progress)


def _first_rows(written: pa.Table, count: int = 5) -> Table:
    """The first rows of the written table, as far as they fit into a terminal: without embeddings, the snapshot read,
    and ids of nodes that have names."""
    names = written.column_names
    hidden = {"t", "read_time", *(name.removesuffix("_name") for name in names if name.endswith("_name"))}
    shown = written.select([name for name in names if name not in hidden and not name.endswith("embedding")])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in shown.column_names:
        table.add_column(name.removesuffix("_name").replace("_", " "), justify="right")
    for row in shown.slice(0, count).to_pylist():
        table.add_row(*(escape(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in row.values()))
    return table


def _check_output_path(path: Path, overwrite: bool) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OptionError(f"cannot write {path}: give the name of a file in a directory that exists")
    if path.exists() and not overwrite:
        raise OptionError(f"{path} exists already: choose another name (-o), or replace it (--overwrite)")
    opener(path)  # refuses an unknown file extension before the graph is read
