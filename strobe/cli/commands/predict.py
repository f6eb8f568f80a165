"""``strobe predict``: the predictions of a trained model, as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from rich import box
from rich.markup import escape
from rich.table import Table

from strobe.api import open_run
from strobe.cli.console import out, print_json, print_note, print_result, progress_bar
from strobe.cli.options.groups import option
from strobe.cli.options.run import AsJsonOption, DeviceOption, GraphOption, RunArgument
from strobe.engine.evaluation.node_files import NODE, PAIR, NodeRows, find_nodes, read_node_rows
from strobe.engine.evaluation.predict import write_predictions
from strobe.engine.evaluation.predict_links import TopLinks, link_problem, write_pairs, write_top_links
from strobe.engine.evaluation.tables import WrittenTable, opener
from strobe.engine.run import Run
from strobe.errors import OptionError
from strobe.format import file_size, pluralize

_LINKS = "Links, of link-prediction and link-ranking"


def predict(
    run: RunArgument,
    to: Annotated[
        Path, option("The file to write: Parquet (.parquet) or CSV (.csv).", "--out", "-o", metavar="FILE")
    ] = Path("predictions.parquet"),
    part: Annotated[
        str, option("Which snapshots: next (the newest, with an unknown future), train, validation, test.")
    ] = "next",
    embeddings: Annotated[
        bool, option("Also write the embeddings that predictions are made from.", "--embeddings")
    ] = False,
    top: Annotated[
        int | None,
        option("The N likeliest destinations of every node in the next snapshot.", metavar="N", panel=_LINKS),
    ] = None,
    nodes: Annotated[
        Path | None, option("Only for the nodes of this file (column node; .csv or .parquet).", panel=_LINKS)
    ] = None,
    node: Annotated[
        list[str] | None, option("Only for this node, by name or id; may be repeated.", metavar="NAME", panel=_LINKS)
    ] = None,
    exclude: Annotated[
        str, option("Pairs left out: none, last (an edge in the snapshot read), ever (in any).", panel=_LINKS)
    ] = "none",
    pairs: Annotated[
        Path | None,
        option("Score the pairs of this file (columns source, destination; .csv or .parquet).", panel=_LINKS),
    ] = None,
    skip_bad_rows: Annotated[bool, option("Leave out rows of unknown nodes.", "--skip-bad-rows", panel=_LINKS)] = False,
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
    links = top is not None or pairs is not None
    _check_options(top, pairs, links, part=part, embeddings=embeddings, of_top=bool(nodes or node) or exclude != "none")
    _check_output_path(to, overwrite)
    opener(to)  # refuses an unknown file extension before the graph is read
    wanted = TopLinks(top=20 if top is None else top, exclude=exclude)
    opened = open_run(run, graph=graph, device=device)
    if pairs is not None:
        written = _write_pairs(opened, to, pairs, skip_bad_rows)
    elif top is not None:
        written = _write_top(opened, to, wanted, nodes, node or [], skip_bad_rows)
    else:
        with progress_bar("snapshots") as on_progress:
            written = write_predictions(opened, to, part, embeddings=embeddings, on_progress=on_progress)
    rows, size = written.rows, to.stat().st_size
    if as_json:
        print_json({"run": str(run), "part": part, "file": str(to), "rows": rows, "bytes": size})
        return
    print_result(f"{pluralize(rows, 'prediction')}, {file_size(size)} at {to}")
    out.print(_first_rows(written.first), highlight=False)


def _check_options(
    top: int | None, pairs: Path | None, links: bool, *, part: str, embeddings: bool, of_top: bool
) -> None:
    if top is not None and pairs is not None:
        raise OptionError("--top finds pairs, --pairs lists them: give one of them")
    if of_top and top is None:
        raise OptionError("--nodes, --node and --exclude choose among the best candidates: add --top N")
    if links and (embeddings or part != "next"):
        raise OptionError(
            "--top and --pairs predict the next snapshot, without embeddings: leave out --part, --embeddings"
        )


def _write_top(
    run: Run, to: Path, links: TopLinks, nodes: Path | None, names: list[str], skip_bad_rows: bool
) -> WrittenTable:
    graph = link_problem(run).graph
    sources: list[int] = find_nodes(graph, names)
    if nodes is not None:
        read = read_node_rows(graph, nodes, NODE, skip_bad_rows=skip_bad_rows)
        _note_bad(read)
        sources += read.nodes[0].tolist()
    if nodes is not None or names:
        links = replace(links, nodes=sources)
    with progress_bar("sources") as on_progress:
        return write_top_links(run, to, links, on_progress)


def _write_pairs(run: Run, to: Path, pairs: Path, skip_bad_rows: bool) -> WrittenTable:
    read = read_node_rows(link_problem(run).graph, pairs, PAIR, skip_bad_rows=skip_bad_rows)
    _note_bad(read)
    with progress_bar("pairs") as on_progress:
        return write_pairs(run, to, read.nodes[0], read.nodes[1], on_progress)


def _note_bad(read: NodeRows) -> None:
    if read.bad:
        print_note(f"skipped {pluralize(len(read.bad), 'bad row')}:\n{read.describe_bad()}", "yellow")


def _first_rows(written: pa.Table, count: int = 5) -> Table:
    """The first rows of the written table, without embeddings, which are too wide."""
    shown = written.select([name for name in written.column_names if not name.endswith("embedding")])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in shown.column_names:
        table.add_column(name.replace("_", " "), justify="right")
    for row in shown.slice(0, count).to_pylist():
        table.add_row(*(escape(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in row.values()))
    return table


def _check_output_path(path: Path, overwrite: bool) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OptionError(f"cannot write {path}: give the name of a file in a directory that exists")
    if path.exists() and not overwrite:
        raise OptionError(f"{path} exists already: choose another name (-o), or replace it (--overwrite)")
