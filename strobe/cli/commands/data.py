"""``strobe data``: published data sets and synthetic graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.table import Table

from strobe.cli.console import out, print_json, print_note, print_result, progress_bar, show_written, stage_bar
from strobe.cli.options.clock import (
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    SnapshotsOption,
    make_clock,
)
from strobe.cli.options.groups import explicit_options, keyword, option, with_parameters
from strobe.cli.options.run import DataDirOption, OverwriteOption
from strobe.errors import OptionError, UnknownNameError
from strobe.format import format_short
from strobe.graph.datasets import DATASETS, TASKS, Dataset, data_dir, find, load, status
from strobe.graph.disk.directory import DiskSink
from strobe.graph.ingest.options import Presence
from strobe.graph.synthetic.base import CURVES, Generator
from strobe.graph.synthetic.papers import SIZES, Changing, Growth, Uneven
from strobe.graph.synthetic.shapes import SHAPES, PublishedShape
from strobe.graph.synthetic.social import Social
from strobe.options import option_types

data = typer.Typer(
    help="Download data sets by name, and generate synthetic graphs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
make = typer.Typer(
    help="Generate a synthetic dynamic graph. Equal options and seeds give equal graphs, bit for bit.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
data.add_typer(make, name="make")

_UNITS = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
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


def parse_count(text: str | int) -> int:
    """Parse a count: 20000000, 20_000_000, 20M or 2e7."""
    plain = str(text).lower().replace("_", "").replace(",", "")
    unit = _UNITS.get(plain[-1:], 1)
    try:
        value = float(plain[:-1] if unit > 1 else plain) * unit
        if value != int(value):
            raise ValueError
    except (ValueError, OverflowError):
        raise OptionError(f"{text!r} is not a whole number; write 2000, 2_000, 2K, 1.5M or 2e9") from None
    return int(value)


def add_generator(
    generator: type[Generator],
    doc: str,
    texts: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
    build: Callable[..., Generator] | None = None,
) -> None:
    """Add the command of a generator to ``make``.

    Args:
        generator: has the name of the command, and types and defaults of its options.
        doc: the help of the command.
        texts: help of each option, in order; ``seed`` is added.
        defaults: of options, where they are not the generator's; with None, the option is not passed on.
        build: makes the generator from the options; without it, the class does.
    """
    hints = option_types(generator)
    values = {name: getattr(generator, name, None) for name in texts} | dict(defaults or {})
    parameters = [
        keyword(name, _annotate(name, hints.get(name, str), text, optional=values[name] is None), values[name])
        for name, text in texts.items()
    ]
    parameters.append(keyword("seed", Annotated[int, option("Random seed.")], generator.seed))
    parameters += [keyword("target", _TARGET), keyword("overwrite", OverwriteOption, False)]

    def command(*, target: Path, overwrite: bool, **options: Any) -> None:
        made = (build or generator)(**explicit_options(**options))
        with DiskSink(target, overwrite=overwrite) as sink, progress_bar(f"making {target.name}") as on_progress:
            graph = made.write(sink, on_progress)
        show_written(graph, target)

    make.command(generator.name, help=doc)(with_parameters(command, parameters))


_TARGET = Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write the graph to.")]


def _annotate(name: str, hint: Any, text: str, *, optional: bool) -> Any:
    """The annotation of an option: a count for a whole number, a flag for a bool."""
    if hint is bool:
        return Annotated[bool, option(text, f"--{name.replace('_', '-')}")]
    more: dict[str, Any] = {"parser": parse_count, "metavar": "COUNT"} if hint is int else {}
    return Annotated[hint | None if optional else hint, option(text, **more)]


_EXPONENT = "Exponent of the degrees' power law; near 2, hubs are large."
_CHURN = "Share of edges that end per snapshot."

add_generator(
    Social,
    """A growing social network with hubs, communities, and people who come and go.

    A model can learn degrees and communities from history and neighbors.

    Example: `strobe data make social friends --nodes 20K --edges 100K --labels`
    """,
    {
        "nodes": "People; the last one joins in the last snapshot.",
        "snapshots": "Snapshots.",
        "edges": "Friendships on average per snapshot.",
        "start": "Share of nodes present from the beginning.",
        "communities": "Communities, of equal size.",
        "inside": "Share of edges within a community.",
        "exponent": _EXPONENT,
        "churn": _CHURN,
        "away": "Share of nodes absent at a time.",
        "spell": "Snapshots that an absence lasts.",
        "drift": "How much activity moves from community to community, 0 to 1.",
        "labels": "Label every node with its community.",
        "directed": "Followers instead of friends.",
    },
)
add_generator(
    Uneven,
    """A graph with snapshots of uneven size and sequences of uneven length, to test load balancing.

    Spreads do not change totals.

    Example: `strobe data make uneven u10k --edge-spread 10000 --length-spread 20`
    """,
    {
        "cells": "Cells in total.",
        "edges": "Edges in total.",
        "snapshots": "Snapshots.",
        "edge_spread": "Standard deviation of the edges per snapshot.",
        "mean_length": "Mean length of a sequence, in snapshots.",
        "length_spread": "Standard deviation of the lengths.",
    },
)
add_generator(
    Changing,
    """A graph of constant size in which a given share of features and edges changes.

    Example: `strobe data make changing ex --size ex500k --feature-change 0.1`
    """,
    {
        "size": f"A published size to start from: {', '.join(SIZES)}.",
        "nodes": "Nodes, instead of the size's.",
        "edges": "Edges per snapshot, instead of the size's.",
        "snapshots": "Snapshots, instead of the size's.",
        "features": "Binary features per node.",
        "segments": "Parts in which a node's features change.",
        "feature_change": "Share of parts that change per snapshot.",
        "edge_change": "Share of edges replaced per snapshot.",
        "hot": "Share of nodes with more edges, instead of the size's.",
        "heat": "Factor of edges of those nodes.",
    },
    defaults={"size": "10k-s", "nodes": None, "edges": None, "snapshots": None, "hot": None},
    build=Changing.from_size,
)
add_generator(
    Growth,
    """A graph that grows along a curve over up to ten thousand snapshots.

    Example: `strobe data make growth long --snapshots 10K --nodes 200 --edges 1K`
    """,
    {
        "snapshots": "Snapshots, up to ten thousand.",
        "nodes": "Nodes on average per snapshot.",
        "edges": "Edges on average per snapshot.",
        "curve": f"How sizes grow: {', '.join(CURVES)}.",
        "ratio": "Size of the last snapshot over the first.",
        "noise": "Relative fluctuation of the edges.",
        "constant_nodes": "Let only the edges grow.",
        "churn": _CHURN,
        "exponent": _EXPONENT,
    },
)
add_generator(
    PublishedShape,
    """A graph with the published shape of a well-known data set, at any scale, without downloading it.

    Example: `strobe data make shapes flickr-tenth --shape soc-flickr --scale 0.1`
    """,
    {
        "shape": f"Which data set: {', '.join(SHAPES)}.",
        "scale": "Factor of nodes and edges.",
        "exponent": _EXPONENT,
        "features": "Random features per node; 0: degrees are the features.",
    },
)
