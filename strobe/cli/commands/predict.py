"""``strobe predict``: the predictions of a trained model, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
from rich import box
from rich.markup import escape
from rich.table import Table

from strobe.api import open_run
from strobe.cli.console import out, print_json, print_result, progress_bar
from strobe.cli.options.groups import option
from strobe.cli.options.run import AsJsonOption, DeviceOption, GraphOption, RunArgument
from strobe.engine.evaluation.predict import opener, write_predictions
from strobe.errors import OptionError
from strobe.format import file_size, pluralize


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
    graph: GraphOption = None,
    device: DeviceOption = None,
    overwrite: Annotated[bool, option("Replace an existing file.", "--overwrite")] = False,
    as_json: AsJsonOption = False,
) -> None:
    """Write the predictions of a run as a table, a row per node (or pair) and snapshot.

    Columns: node and its name, the snapshot read (t, time), the prediction and, where it is known, the actual value.

    `strobe predict runs/social-tgcn -o next.parquet`

    `strobe predict runs/social-tgcn --part test --embeddings -o test.csv`

    Predict on a graph that has grown since:

    `strobe predict runs/social-tgcn --graph social-today -o next.parquet`
    """
    _check_output_path(to, overwrite)
    opener(to)  # refuses an unknown file extension before the graph is read
    opened = open_run(run, graph=graph, device=device)
    with progress_bar("snapshots") as on_progress:
        written = write_predictions(opened, to, part, embeddings=embeddings, on_progress=on_progress)
    rows, size = written.rows, to.stat().st_size
    if as_json:
        print_json({"run": str(run), "part": part, "file": str(to), "rows": rows, "bytes": size})
        return
    print_result(f"{pluralize(rows, 'prediction')}, {file_size(size)} at {to}")
    out.print(_first_rows(written.first), highlight=False)


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
