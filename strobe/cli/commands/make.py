"""``strobe data make``: synthetic graphs, written snapshot by snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strobe.cli.console import progress_bar, show_written
from strobe.errors import OptionError
from strobe.graph.disk.directory import DiskSink
from strobe.graph.synthetic import SHAPES, SIZES, Changing, Generator, Growth, PublishedShape, Social, Uneven
from strobe.graph.synthetic.base import CURVES, Curve

app = typer.Typer(
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


def _count_option(text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=text, parser=parse_count, metavar="COUNT")
    return option


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write the graph to.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing graph.")]
Exponent = Annotated[float, typer.Option(help="Exponent of the degrees' power law; near 2, hubs are large.")]
PerSnapshot = "on average per snapshot"


@app.command()
def social(
    target: Out,
    nodes: Annotated[int, _count_option("People; the last one joins in the last snapshot.")] = Social.nodes,
    snapshots: Annotated[int, _count_option("Snapshots.")] = Social.snapshots,
    edges: Annotated[int, _count_option(f"Friendships {PerSnapshot}.")] = Social.edges,
    start: Annotated[float, typer.Option(help="Share of nodes present from the beginning.")] = Social.start,
    communities: Annotated[int, _count_option("Communities, of equal size.")] = Social.communities,
    inside: Annotated[float, typer.Option(help="Share of edges within a community.")] = Social.inside,
    exponent: Exponent = Social.exponent,
    churn: Annotated[float, typer.Option(help="Share of edges that end per snapshot.")] = Social.churn,
    away: Annotated[float, typer.Option(help="Share of nodes absent at a time.")] = Social.away,
    spell: Annotated[float, typer.Option(help="Snapshots that an absence lasts.")] = Social.spell,
    drift: Annotated[
        float, typer.Option(help="How much activity moves from community to community, 0 to 1.")
    ] = Social.drift,
    labels: Annotated[bool, typer.Option("--labels", help="Label every node with its community.")] = Social.labels,
    directed: Annotated[bool, typer.Option("--directed", help="Followers instead of friends.")] = Social.directed,
    seed: Seed = Social.seed,
    overwrite: Overwrite = False,
) -> None:
    """A growing social network with hubs, communities, and people who come and go.

    A model can learn degrees and communities from history and neighbors.

    Example: `strobe data make social friends --nodes 20K --edges 100K --labels`
    """
    generator = Social(
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
    _write(generator, target, overwrite)


@app.command()
def uneven(
    target: Out,
    cells: Annotated[int, _count_option("Cells in total.")] = Uneven.cells,
    edges: Annotated[int, _count_option("Edges in total.")] = Uneven.edges,
    snapshots: Annotated[int, _count_option("Snapshots.")] = Uneven.snapshots,
    edge_spread: Annotated[
        float, typer.Option(help="Standard deviation of the edges per snapshot.")
    ] = Uneven.edge_spread,
    mean_length: Annotated[float, typer.Option(help="Mean length of a sequence, in snapshots.")] = Uneven.mean_length,
    length_spread: Annotated[float, typer.Option(help="Standard deviation of the lengths.")] = Uneven.length_spread,
    seed: Seed = Uneven.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph with snapshots of uneven size and sequences of uneven length, to test load balancing.

    Spreads do not change totals.

    Example: `strobe data make uneven u10k --edge-spread 10000 --length-spread 20`
    """
    generator = Uneven(
        cells=cells,
        edges=edges,
        snapshots=snapshots,
        edge_spread=edge_spread,
        mean_length=mean_length,
        length_spread=length_spread,
        seed=seed,
    )
    _write(generator, target, overwrite)


@app.command()
def changing(
    target: Out,
    size: Annotated[str, typer.Option(help=f"A published size to start from: {', '.join(SIZES)}.")] = "10k-s",
    nodes: Annotated[int | None, _count_option("Nodes, instead of the size's.")] = None,
    edges: Annotated[int | None, _count_option("Edges per snapshot, instead of the size's.")] = None,
    snapshots: Annotated[int | None, _count_option("Snapshots, instead of the size's.")] = None,
    features: Annotated[int, _count_option("Binary features per node.")] = Changing.features,
    segments: Annotated[int, _count_option("Parts in which a node's features change.")] = Changing.segments,
    feature_change: Annotated[
        float, typer.Option(help="Share of parts that change per snapshot.")
    ] = Changing.feature_change,
    edge_change: Annotated[float, typer.Option(help="Share of edges replaced per snapshot.")] = Changing.edge_change,
    hot: Annotated[float | None, typer.Option(help="Share of nodes with more edges, instead of the size's.")] = None,
    heat: Annotated[float, typer.Option(help="Factor of edges of those nodes.")] = Changing.heat,
    seed: Seed = Changing.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph of constant size in which a given share of features and edges changes.

    Example: `strobe data make changing ex --size ex500k --feature-change 0.1`
    """
    overrides = {"nodes": nodes, "edges": edges, "snapshots": snapshots, "hot": hot}
    generator = Changing.from_size(
        size,
        **{name: value for name, value in overrides.items() if value is not None},
        features=features,
        segments=segments,
        feature_change=feature_change,
        edge_change=edge_change,
        heat=heat,
        seed=seed,
    )
    _write(generator, target, overwrite)


@app.command()
def growth(
    target: Out,
    snapshots: Annotated[int, _count_option("Snapshots, up to ten thousand.")] = Growth.snapshots,
    nodes: Annotated[int, _count_option(f"Nodes {PerSnapshot}.")] = Growth.nodes,
    edges: Annotated[int, _count_option(f"Edges {PerSnapshot}.")] = Growth.edges,
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
    generator = Growth(
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
    _write(generator, target, overwrite)


@app.command()
def shapes(
    target: Out,
    shape: Annotated[str, typer.Option(help=f"Which data set: {', '.join(SHAPES)}.")] = PublishedShape.shape,
    scale: Annotated[float, typer.Option(help="Factor of nodes and edges.")] = PublishedShape.scale,
    exponent: Exponent = PublishedShape.exponent,
    features: Annotated[
        int, _count_option("Random features per node; 0: degrees are the features.")
    ] = PublishedShape.features,
    seed: Seed = PublishedShape.seed,
    overwrite: Overwrite = False,
) -> None:
    """A graph with the published shape of a well-known data set, at any scale, without downloading it.

    Example: `strobe data make shapes flickr-tenth --shape soc-flickr --scale 0.1`
    """
    _write(PublishedShape(shape=shape, scale=scale, exponent=exponent, features=features, seed=seed), target, overwrite)


def _write(generator: Generator, target: Path, overwrite: bool) -> None:
    with DiskSink(target, overwrite=overwrite) as sink, progress_bar(f"making {target.name}") as on_progress:
        graph = generator.write(sink, on_progress)
    show_written(graph, target)
