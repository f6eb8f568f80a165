"""``strobe data``: published data sets and synthetic graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.table import Table

from strobe.cli.commands.make import make
from strobe.cli.console import out, print_json, print_note, print_result, show_written, stage_bar
from strobe.cli.options.clock import (
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    SnapshotsOption,
    make_clock,
)
from strobe.cli.options.groups import option
from strobe.cli.options.run import DataDirOption, OverwriteOption
from strobe.errors import UnknownNameError
from strobe.format import format_short
from strobe.graph.datasets import DATASETS, TASKS, Dataset, data_dir, find, load, status
from strobe.graph.ingest.options import Presence

data = typer.Typer(
    help="Download data sets by name, and generate synthetic graphs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
data.add_typer(make, name="make")

_LETTERS = {"link prediction": "L", "node classification": "C", "node regression": "R"}
_STATUS = {"local": "[green]local[/]", "downloadable": "[cyan]download[/]", "manual": "[dim]manual[/]"}
_CHOICES = "Options of some data sets"
_OUT = "The directory to write the graph to; without it, NAME."


@data.command("list")
def list_sets(
    task: Annotated[str | None, option(f"Only sets for a task, or a part of its name: {', '.join(TASKS)}.")] = None,
    local: Annotated[bool, option("Only sets whose files are on this machine.", "--local")] = False,
    directory: DataDirOption = None,
    as_json: Annotated[bool, option("Print one line of JSON, with titles and sources.", "--json")] = False,
) -> None:
    """List all data sets: size, task, and whether their files are on this machine.

    `strobe data get` fetches sets marked `download`; for those marked `manual` it prints which files to put where.
    Edges are the rows of the files, snapshots those of the default clock.
    """
    root = data_dir(directory)
    rows = [_row(dataset, root) for dataset in DATASETS.values() if _matches_task(dataset, task)]
    rows = [row for row in rows if row["files"] == "local" or not local]
    if as_json:
        print_json({"data_dir": str(root), "data_sets": rows})
        return
    out.print(_table(rows), highlight=False)
    letters = ", ".join(f"{letter} {task}" for task, letter in _LETTERS.items())
    print_note(f"for: {letters}\n{len(rows)} data sets in {root}\nNext: strobe data get NAME")


@data.command("get")
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A data set that `strobe data list` lists.", show_default=False)
    ],
    target: Annotated[Path | None, typer.Argument(metavar="OUT", help=_OUT, show_default=False)] = None,
    every: EveryOption = None,
    per: PerOption = None,
    events: EventsOption = None,
    snapshots: SnapshotsOption = None,
    life: LifeOption = None,
    presence: PresenceOption = None,
    label: Annotated[str | None, option("Which labels: file_ext or file_dir for rust_git.", panel=_CHOICES)] = None,
    seed: Annotated[int | None, option("Which random edges, for simulated sets (cora-t, …).", panel=_CHOICES)] = None,
    directory: DataDirOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Make a graph of a data set: download missing files, cut time into snapshots, write the graph.

    Every set has a default clock; the options of `strobe ingest` choose another:

    `strobe data get collegemsg`

    `strobe data get sx-mathoverflow mo-weekly --per week --life 4`

    An interrupted download continues where it stopped.
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
            clock=make_clock(every, per, events, snapshots),
            life=life,
            presence=cast(Presence | None, presence),
            label=label,
            seed=seed,
        )
    print_result(dataset.title, f"{dataset.citation}. {dataset.source}", f"Licence: {dataset.licence}")
    show_written(graph, path)


def _matches_task(dataset: Dataset, task: str | None) -> bool:
    if task is None:
        return True
    matching = [name for name in TASKS if task.lower() in name]
    if not matching:
        raise UnknownNameError("task", task, TASKS)
    return any(name in dataset.tasks for name in matching)


def _row(dataset: Dataset, root: Path) -> dict[str, Any]:
    columns = ("name", "title", "nodes", "edges", "snapshots", "tasks", "source", "citation", "licence")
    return {column: getattr(dataset, column) for column in columns} | {"files": status(dataset, root)}


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    sizes = ("nodes", "edges", "snapshots")
    for column in ("name", *sizes, "for", "files"):
        table.add_column(column, justify="right" if column in sizes else "left", no_wrap=True)
    for row in rows:
        tasks = "".join(letter if task in row["tasks"] else " " for task, letter in _LETTERS.items())
        table.add_row(row["name"], *(format_short(row[column]) for column in sizes), tasks, _STATUS[row["files"]])
    return table
