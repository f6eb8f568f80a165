"""``strobe data make``: graphs made to measure, written to disk snapshot by snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strobe.cli.console import progress_bar, show_written
from strobe.errors import OptionError
from strobe.graph.disk import DiskSink
from strobe.graph.synthetic import SHAPES, SIZES, Changing, Generator, Growth, Published, Social, Uneven
from strobe.graph.synthetic.curves import CURVES, Curve

app = typer.Typer(
    help="Make a synthetic dynamic graph. The same options and seed always give the same graph, bit by bit.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_UNITS = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


def whole_number(text: str | int) -> int:
    """A count as people write it: 20000000, 20_000_000, 20M, 2e7."""
    plain = str(text).lower().replace("_", "").replace(",", "")
    unit = _UNITS.get(plain[-1:], 1)
    try:
        value = float(plain[:-1] if unit > 1 else plain) * unit
        if value != int(value):
            raise ValueError
    except (ValueError, OverflowError):
        raise OptionError(f"{text!r} is not a whole number; write 2000, 2_000, 2K, 1.5M or 2e9") from None
    return int(value)


def _count(text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=text, parser=whole_number, metavar="COUNT")
    return option


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write the graph to.")]
Seed = Annotated[int, typer.Option(help="Another seed gives another graph of the same kind.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a graph that is already there.")]
Exponent = Annotated[float, typer.Option(help="Of the power law of degrees: nearer to 2, larger hubs.")]
PerSnapshot = "on average per snapshot"


@app.command()
def social(
    target: Out,
    nodes: Annotated[int, _count("People, of whom the last joins in the last snapshot.")] = Social.nodes,
    snapshots: Annotated[int, _count("Snapshots.")] = Social.snapshots,
    edges: Annotated[int, _count(f"Friendships {PerSnapshot}.")] = Social.edges,
    start: Annotated[float, typer.Option(help="Share of nodes that are there from the beginning.")] = Social.start,
    communities: Annotated[int, _count("Communities, all of one size.")] = Social.communities,
    inside: Annotated[float, typer.Option(help="Share of edges within a community.")] = Social.inside,
    exponent: Exponent = Social.exponent,
    churn: Annotated[float, typer.Option(help="Share of edges that end per snapshot.")] = Social.churn,
    away: Annotated[float, typer.Option(help="Share of nodes that are absent at a time.")] = Social.away,
    spell: Annotated[float, typer.Option(help="Snapshots for which they stay away.")] = Social.spell,
    drift: Annotated[
        float, typer.Option(help="How much activity moves from community to community, 0 to 1.")
    ] = Social.drift,
    labels: Annotated[bool, typer.Option("--labels", help="Label every node with its community.")] = Social.labels,
    directed: Annotated[bool, typer.Option("--directed", help="Followers instead of friends.")] = Social.directed,
    seed: Seed = Social.seed,
    overwrite: Overwrite = False,
) -> None:
    """A growing social network with hubs, communities, and people who come and go.

    Degrees and communities can be learnt from the past and the neighbours: a graph to try models on.

    Example: `strobe data make social friends --nodes 20K --edges 100K --labels`
    """
    made = Social(
        nodes=nodes,
        snapshots=snapshots,
        edges=edges,
        start=start,
        communities=communities,
        inside=inside,
        exponent=exponent,
        churn=churn,
        away=away,
        spell=spell,
        drift=drift,
        labels=labels,
        directed=directed,
        seed=seed,
    )
    _write(made, target, overwrite)


@app.command()
def uneven(
    target: Out,
    cells: Annotated[int, _count("Cells in all: nodes, counted once per snapshot they are in.")] = Uneven.cells,
    edges: Annotated[int, _count("Edges in all.")] = Uneven.edges,
    snapshots: Annotated[int, _count("Snapshots.")] = Uneven.snapshots,
    edge_spread: Annotated[
        float, typer.Option(help="Standard deviation of the edges per snapshot.")
    ] = Uneven.edge_spread,
    mean_length: Annotated[float, typer.Option(help="Mean length of a sequence, in snapshots.")] = Uneven.mean_length,
    length_spread: Annotated[float, typer.Option(help="Standard deviation of the lengths.")] = Uneven.length_spread,
    seed: Seed = Uneven.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph with snapshots of uneven size and sequences of uneven length, to see who balances them.

    Totals stay the same while the spreads change.

    Example: `strobe data make uneven u10k --edge-spread 10000 --length-spread 20`
    """
    made = Uneven(
        cells=cells,
        edges=edges,
        snapshots=snapshots,
        edge_spread=edge_spread,
        mean_length=mean_length,
        length_spread=length_spread,
        seed=seed,
    )
    _write(made, target, overwrite)


@app.command()
def changing(
    target: Out,
    size: Annotated[str, typer.Option(help=f"A published size to start from: {', '.join(SIZES)}.")] = "10k-s",
    nodes: Annotated[int | None, _count("Nodes, instead of the size's.")] = None,
    edges: Annotated[int | None, _count("Edges per snapshot, instead of the size's.")] = None,
    snapshots: Annotated[int | None, _count("Snapshots, instead of the size's.")] = None,
    features: Annotated[int, _count("Binary features per node.")] = Changing.features,
    segments: Annotated[int, _count("Parts in which a node's features change.")] = Changing.segments,
    feature_change: Annotated[
        float, typer.Option(help="Share of parts that change per snapshot.")
    ] = Changing.feature_change,
    edge_change: Annotated[float, typer.Option(help="Share of edges replaced per snapshot.")] = Changing.edge_change,
    hot: Annotated[float | None, typer.Option(help="Share of nodes with more edges, instead of the size's.")] = None,
    heat: Annotated[float, typer.Option(help="How many times as many edges those have.")] = Changing.heat,
    seed: Seed = Changing.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph of constant size in which a given share of features and edges changes.

    Example: `strobe data make changing ex --size ex500k --feature-change 0.1`
    """
    given = {"nodes": nodes, "edges": edges, "snapshots": snapshots, "hot": hot}
    made = Changing.named(
        size,
        **{name: value for name, value in given.items() if value is not None},
        features=features,
        segments=segments,
        feature_change=feature_change,
        edge_change=edge_change,
        heat=heat,
        seed=seed,
    )
    _write(made, target, overwrite)


@app.command()
def growth(
    target: Out,
    snapshots: Annotated[int, _count("Snapshots; ten thousand are fine.")] = Growth.snapshots,
    nodes: Annotated[int, _count(f"Nodes {PerSnapshot}.")] = Growth.nodes,
    edges: Annotated[int, _count(f"Edges {PerSnapshot}.")] = Growth.edges,
    curve: Annotated[Curve, typer.Option(help=f"How sizes grow: {', '.join(CURVES)}.")] = Growth.curve,
    ratio: Annotated[float, typer.Option(help="Size of the last snapshot over the first.")] = Growth.ratio,
    noise: Annotated[float, typer.Option(help="Relative fluctuation of the edges.")] = Growth.noise,
    constant_nodes: Annotated[
        bool, typer.Option("--constant-nodes", help="Let only the edges grow.")
    ] = Growth.constant_nodes,
    churn: Annotated[float, typer.Option(help="Share of edges that end per snapshot.")] = Growth.churn,
    exponent: Exponent = Growth.exponent,
    seed: Seed = Growth.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph that grows along a curve over up to ten thousand snapshots.

    Example: `strobe data make growth long --snapshots 10K --nodes 200 --edges 1K`
    """
    made = Growth(
        snapshots=snapshots,
        nodes=nodes,
        edges=edges,
        curve=curve,
        ratio=ratio,
        noise=noise,
        constant_nodes=constant_nodes,
        churn=churn,
        exponent=exponent,
        seed=seed,
    )
    _write(made, target, overwrite)


@app.command()
def shapes(
    target: Out,
    shape: Annotated[str, typer.Option(help=f"Which data set: {', '.join(SHAPES)}.")] = Published.shape,
    scale: Annotated[float, typer.Option(help="Nodes and edges times this; snapshots stay.")] = Published.scale,
    exponent: Exponent = Published.exponent,
    features: Annotated[
        int, _count("Random features per node; without any, nodes carry their degrees.")
    ] = Published.features,
    seed: Seed = Published.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph with the published shape of a well-known data set, at any scale, without downloading it.

    Example: `strobe data make shapes flickr-tenth --shape soc-flickr --scale 0.1`
    """
    _write(Published(shape=shape, scale=scale, exponent=exponent, features=features, seed=seed), target, overwrite)


def _write(generator: Generator, target: Path, overwrite: bool) -> None:
    with DiskSink(target, overwrite=overwrite) as sink, progress_bar(f"making {target.name}") as on_progress:
        graph = generator.write(sink, on_progress)
    show_written(graph, target)
