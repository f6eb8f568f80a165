"""Static graphs made dynamic: edges are deleted at random so that what is left follows a growth curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strobe.errors import OptionError
from strobe.graph.build import Edges, GraphBuilder, Sink
from strobe.graph.datasets.dataset import DataSet, Loader, Request
from strobe.graph.datasets.static import StaticGraph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees, Static
from strobe.graph.ingest import Into
from strobe.ops.csr import FloatArray, IntArray

_PART = 1 << 22


def growth(snapshots: int, first: float, noise: float = 0.0, seed: int = 0) -> FloatArray:
    """The share of edges each snapshot keeps, [T]: steady growth from ``first`` to 1, which the last one has.

    ``noise`` is the relative standard deviation about the line; shares stay within 1.
    """
    if snapshots < 1:
        raise OptionError(f"a graph needs at least one snapshot, not {snapshots}")
    if not 0 <= first <= 1:
        raise OptionError(f"the first snapshot keeps a share of the edges from 0 to 1, not {first}")
    line = np.linspace(first, 1.0, snapshots) if snapshots > 1 else np.ones(1)
    shares = np.clip(line * (1 + noise * np.random.default_rng([seed, 1]).standard_normal(snapshots)), 0, 1)
    shares[-1] = 1.0
    return shares


def simulate(
    static: StaticGraph, shares: FloatArray, sink: Sink | None = None, *, growing_nodes: bool = False, seed: int = 0
) -> GraphBuilder:
    """A builder with one snapshot per share: that share of the static graph's edges, rounded.

    Edges arrive in one random order and leave in its reverse, so neighbouring snapshots overlap as much as they
    can. With ``growing_nodes`` nodes arrive in random order, an edge comes with the later of its two, and only nodes
    that have arrived are present: their number follows the square root of the share. Else all nodes always are.
    """
    rng = np.random.default_rng([seed, 0])
    rank = rng.permutation(static.num_nodes)  # rank of each node's arrival
    order = rng.permutation(static.src.size)
    if growing_nodes:
        arrival = np.maximum(rank[static.src], rank[static.dst])
        order = order[np.argsort(arrival[order], kind="stable")]
    builder = GraphBuilder(sink, num_nodes=static.num_nodes, directed=static.directed)
    for share in shares:
        kept = order[: round(float(share) * order.size)]
        nodes: IntArray | None = None
        if growing_nodes:
            arrived = arrival[kept[-1]] if kept.size else -1
            nodes = np.flatnonzero(rank <= (arrived if share < 1 else static.num_nodes))
        parts = (kept[at : at + _PART] for at in range(0, kept.size, _PART))
        builder.add((Edges(static.src[part], static.dst[part]) for part in parts), nodes=nodes)
    return builder


@dataclass(frozen=True, kw_only=True)
class Simulated(Loader):
    """A static graph made dynamic. ``Into(n)`` chooses the number of snapshots, ``seed`` the order of edges."""

    takes = frozenset({"clock", "seed"})
    read: Callable[[Request], StaticGraph]
    snapshots: int
    first: float
    noise: float = 0.0
    growing_nodes: bool = False

    def load(self, request: Request) -> DynamicGraph:
        clock = request.choices.clock or Into(self.snapshots)
        if not isinstance(clock, Into):
            raise OptionError("a simulated set has no times to cut by: choose its number of snapshots only")
        seed = request.choices.seed or 0
        request.report("reading the static graph", 0, None)
        static = self.read(request)
        request.report("writing snapshots", 0, None)
        shares = growth(clock.count, self.first, self.noise, seed)
        with request.sink() as sink:
            builder = simulate(static, shares, sink, growing_nodes=self.growing_nodes, seed=seed)
            return builder.finish(
                features=Degrees(log=True) if static.features is None else Static(static.features),
                labels=None if static.labels is None else Static(static.labels),
                info={
                    **request.info,
                    **static.info,
                    "rows": int(static.src.size),
                    "distinct_pairs": int(static.src.size),
                    "seed": seed,
                    "shares": shares.round(6).tolist(),
                },
            )


def static_set(like: DataSet, *, name: str, title: str, loader: Simulated) -> DataSet:
    """A simulated set over the files of a static one."""
    return DataSet(
        name=name,
        title=title,
        tasks=("node classification",),
        source=like.source,
        citation=like.citation,
        licence=like.licence,
        files=like.files,
        loader=loader,
        nodes=like.nodes,
        edges=like.edges,
        snapshots=loader.snapshots,
        folder=like.folder or like.name,
    )
