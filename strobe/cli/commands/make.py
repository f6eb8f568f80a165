"""``strobe data make``: synthetic graphs, written snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from strobe.cli.console import progress_bar, show_written
from strobe.cli.options.groups import explicit_options, keyword, option, with_parameters
from strobe.cli.options.run import OverwriteOption
from strobe.errors import OptionError
from strobe.graph.disk.directory import DiskSink
from strobe.graph.synthetic.base import CURVES, Generator
from strobe.graph.synthetic.papers import SIZES, Changing, Growth, Uneven
from strobe.graph.synthetic.shapes import SHAPES, PublishedShape
from strobe.graph.synthetic.social import Social
from strobe.options import option_types

make = typer.Typer(
    help="Generate a synthetic dynamic graph. Equal options and seeds give equal graphs, bit for bit.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_UNITS = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


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
    parameters += [keyword("target", _OUT), keyword("overwrite", OverwriteOption, False)]

    def command(*, target: Path, overwrite: bool, **options: Any) -> None:
        made = (build or generator)(**explicit_options(**options))
        with DiskSink(target, overwrite=overwrite) as sink, progress_bar(f"making {target.name}") as on_progress:
            graph = made.write(sink, on_progress)
        show_written(graph, target)

    make.command(generator.name, help=doc)(with_parameters(command, parameters))


_OUT = Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write the graph to.")]


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
