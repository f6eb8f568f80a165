"""``strobe data``: published data sets by name, and graphs made to measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.table import Table

from strobe.cli import make
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
from strobe.errors import UnknownNameError
from strobe.graph.datasets import DATA_SETS, TASKS, DataSet, data_dir, find, load, status
from strobe.graph.datasets.folder import VARIABLE
from strobe.graph.ingest.options import Presence
from strobe.numbers import short

app = typer.Typer(
    help="Published data sets by name, and synthetic graphs.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(make.app, name="make")

_LETTERS = {"link prediction": "L", "node classification": "C", "node regression": "R"}
_COLOURS = {"here": "green", "download": "cyan", "by hand": "dim"}
_CHOICES = "What some sets let you choose"

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar=VARIABLE,
        help="Where data sets lie, one folder each. Without it, the user's cache.",
        show_default=False,
    ),
]


@app.command("list")
def list_sets(
    task: Annotated[
        str | None, typer.Option(help=f"Only sets for a task, in full or a part of: {', '.join(TASKS)}.")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Only sets whose files are here.")] = False,
    directory: DataDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON, with titles and sources.")] = False,
) -> None:
    """List all data sets: size, task, and whether their files are here.

    Sets marked `download` are fetched by `strobe data get`; for those marked `by hand` it says which files to put
    where. Edges are the rows of the files, snapshots those of the default cut.
    """
    root = data_dir(directory)
    rows = [_row(dataset, root) for dataset in DATA_SETS.values() if _fits(dataset, task)]
    rows = [row for row in rows if row["files"] == "here" or not here]
    if as_json:
        typer.echo(json.dumps({"data_dir": str(root), "data_sets": rows}))
        return
    out.print(_table(rows), highlight=False)
    letters = ", ".join(f"{letter} {task}" for task, letter in _LETTERS.items())
    notes = (f"for: {letters}", f"{len(rows)} data sets; files are looked for in {root}", "Next: strobe data get NAME")
    err.print(*notes, sep="\n", highlight=False, markup=False, soft_wrap=True)


@app.command("get")
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A data set that `strobe data list` names.", show_default=False)
    ],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="The directory to write the graph to; without it, NAME.", show_default=False
        ),
    ] = None,
    every: EveryOption = None,
    per: PerOption = None,
    events: EventsOption = None,
    snapshots: SnapshotsOption = None,
    life: LifeOption = None,
    presence: PresenceOption = None,
    label: Annotated[
        str | None,
        typer.Option(help="Which labels: file_ext or file_dir for rust_git.", rich_help_panel=_CHOICES),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Which random edges, for simulated sets (cora-t, …).", rich_help_panel=_CHOICES)
    ] = None,
    directory: DataDirOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a graph that is already there.")] = False,
) -> None:
    """Make a graph of a data set: download what is missing, cut it into snapshots, write it.

    Every set has a sensible cut of its own; the options of `strobe ingest` choose another:

    `strobe data get collegemsg`

    `strobe data get sx-mathoverflow mo-weekly --per week --life 4`

    A download that was cut goes on where it stopped when you call it again.
    """
    dataset = find(name)
    path = Path(dataset.name) if target is None else target
    with stage_bar() as on_stage:
        graph = load(
            dataset.name,
            data_dir=directory,
            out=path,
            overwrite=overwrite,
            on_stage=on_stage,
            clock=clock_from(every, per, events, snapshots),
            life=life,
            presence=cast(Presence | None, presence),
            label=label,
            seed=seed,
        )
    out.print(f"{dataset.title}\n{_origin(dataset)}", highlight=False, markup=False, soft_wrap=True)
    show_written(graph, path)


def _fits(dataset: DataSet, task: str | None) -> bool:
    if task is None:
        return True
    wanted = [known for known in TASKS if task.lower() in known]
    if not wanted:
        raise UnknownNameError("task", task, TASKS)
    return any(known in dataset.tasks for known in wanted)


def _row(dataset: DataSet, root: Path) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "title": dataset.title,
        "nodes": dataset.nodes,
        "edges": dataset.edges,
        "snapshots": dataset.snapshots,
        "tasks": list(dataset.tasks),
        "files": status(dataset, root),
        "source": dataset.source,
        "citation": dataset.citation,
        "licence": dataset.licence,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    for column in ("nodes", "edges", "snapshots"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("for", "files"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        tasks = "".join(letter if task in row["tasks"] else " " for task, letter in _LETTERS.items())
        sizes = (short(row[column]) for column in ("nodes", "edges", "snapshots"))
        table.add_row(row["name"], *sizes, tasks, f"[{_COLOURS[row['files']]}]{row['files']}[/]")
    return table


def _origin(dataset: DataSet) -> str:
    return f"{dataset.citation}. {dataset.source}\nLicence: {dataset.licence}"
