"""Static graphs with features and labels, and dynamic graphs simulated from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.datasets.dataset import Loader, LoadRequest
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees, Static
from strobe.graph.ingest import Into
from strobe.graph.sink import Sink
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import FloatArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse as sp
    from pyarrow import csv
else:
    pa = lazy_import("pyarrow")
    sp = lazy_import("scipy.sparse")
    csv = lazy_import("pyarrow.csv")

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class StaticGraph:
    """Edges between nodes 0..N-1; an undirected edge is listed once. Features are [N, F], labels [N] (-1: none)."""

    num_nodes: int
    src: IntArray
    dst: IntArray
    directed: bool
    features: Array | None = None
    labels: Array | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


def _read_planetoid(request: LoadRequest) -> StaticGraph:
    """Read Cora, CiteSeer or Pubmed from an NPZ with edges, labels, the standard split, and features as CSR."""
    [path] = request.files.values()
    with np.load(path) as file:
        edges = file["edges"]
        return StaticGraph(
            num_nodes=int(file["num_nodes"]),
            src=edges[:, 0],
            dst=edges[:, 1],
            directed=False,
            features=dense_features(file),
            labels=file["labels"].astype(np.int64),
            info={"split": {part: file[f"{part}_idx"].tolist() for part in _SPLITS}},
        )


def dense_features(file: Mapping[str, Any]) -> Array:
    """Return features stored as x_data, x_indices, x_indptr, x_shape as a dense float32 array."""
    parts = (file["x_data"], file["x_indices"], file["x_indptr"])
    dense: Array = sp.csr_array(parts, shape=tuple(file["x_shape"])).toarray()
    return dense.astype(np.float32, copy=False)


def read_ogb(request: LoadRequest, *, directed: bool = True) -> StaticGraph:
    """Read the files of an OGB node set as published, without headers; undirected edges are listed once."""
    edges = read_matrix(request.files["raw/edge.csv.gz"])
    return StaticGraph(
        num_nodes=int(read_matrix(request.files["raw/num-node-list.csv.gz"])[0, 0]),
        src=edges[:, 0],
        dst=edges[:, 1],
        directed=directed,
        features=read_matrix(request.files["raw/node-feat.csv.gz"]).astype(np.float32),
        labels=read_matrix(request.files["raw/node-label.csv.gz"])[:, 0].astype(np.int64),
    )


def read_matrix(path: Path) -> Array:
    """Read a CSV file of numbers without a header."""
    try:
        table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return np.column_stack([column.to_numpy() for column in table.columns])


def _read_reddit(request: LoadRequest) -> StaticGraph:
    """Read Reddit posts as DGL publishes them: reddit_data.npz (feature, label, node_types) and a SciPy matrix.

    The matrix lists both directions, of which one is kept. Memory: about 4 GB.
    """
    matrix = sp.load_npz(request.files["reddit_graph.npz"]).tocoo()
    once = matrix.row < matrix.col
    with np.load(request.files["reddit_data.npz"]) as file:
        kinds = np.bincount(file["node_types"], minlength=4)
        return StaticGraph(
            num_nodes=int(matrix.shape[0]),
            src=matrix.row[once],
            dst=matrix.col[once],
            directed=False,
            features=file["feature"].astype(np.float32),
            labels=file["label"].astype(np.int64),
            info={"split_sizes": {part: int(kinds[k]) for k, part in enumerate(_SPLITS, 1)}},
        )


READERS: dict[str, Callable[[LoadRequest], StaticGraph]] = {
    "planetoid": _read_planetoid,
    "ogb": read_ogb,
    "ogb-undirected": partial(read_ogb, directed=False),
    "reddit": _read_reddit,
}
"""Readers of static graphs, by their name in the catalog."""

_EDGES_PER_PART = 1 << 22


def growth_shares(snapshots: int, first: float, noise: float = 0.0, seed: int = 0) -> FloatArray:
    """Return the share of edges in each snapshot, [T]: linear growth from ``first`` to 1.

    ``noise`` is the relative standard deviation about the line; shares stay within 1.
    """
    line = np.linspace(first, 1.0, snapshots) if snapshots > 1 else np.ones(1)
    shares = np.clip(line * (1 + noise * np.random.default_rng([seed, 1]).standard_normal(snapshots)), 0, 1)
    shares[-1] = 1.0
    return shares


def simulate_growth(
    static: StaticGraph, shares: FloatArray, sink: Sink | None = None, *, growing_nodes: bool = False, seed: int = 0
) -> GraphBuilder:
    """Return a builder with one snapshot per share of the static graph's edges.

    Edges arrive in one random order and leave in its reverse, so adjacent snapshots overlap as much as they can. With
    ``growing_nodes`` nodes arrive in random order, an edge comes with the later of its two nodes, and only nodes that
    have arrived are present: their number follows the square root of the share. Otherwise all nodes are always present.
    """
    rng = np.random.default_rng([seed, 0])
    rank = rng.permutation(static.num_nodes)  # rank of each node's arrival
    order = rng.permutation(static.src.size)
    if growing_nodes:
        arrival = np.maximum(rank[static.src], rank[static.dst])
        order = order[np.argsort(arrival[order], kind="stable")]
    builder = GraphBuilder(sink, num_nodes=static.num_nodes, directed=static.directed)
    for share in shares:
        alive = order[: round(float(share) * order.size)]
        nodes: IntArray | None = None
        if growing_nodes:
            arrived = arrival[alive[-1]] if alive.size else -1
            nodes = np.flatnonzero(rank <= (arrived if share < 1 else static.num_nodes))
        parts = (alive[at : at + _EDGES_PER_PART] for at in range(0, alive.size, _EDGES_PER_PART))
        builder.add((Edges(static.src[part], static.dst[part]) for part in parts), nodes=nodes)
    return builder


@dataclass(frozen=True, kw_only=True)
class SimulatedGrowth(Loader):
    """A static graph made dynamic. ``Into(n)`` sets the number of snapshots, ``seed`` the order of edges."""

    takes = frozenset({"clock", "seed"})
    read: Callable[[LoadRequest], StaticGraph]
    snapshots: int
    first: float
    noise: float = 0.0
    growing_nodes: bool = False

    def load(self, request: LoadRequest) -> DynamicGraph:
        clock = request.choices.clock or Into(self.snapshots)
        if not isinstance(clock, Into):
            raise OptionError("a simulated set has no times to cut by: choose its number of snapshots only")
        seed = request.choices.seed or 0
        request.report("reading the static graph", 0, None)
        static = self.read(request)
        request.report("writing snapshots", 0, None)
        shares = growth_shares(clock.count, self.first, self.noise, seed)
        with request.sink() as sink:
            builder = simulate_growth(static, shares, sink, growing_nodes=self.growing_nodes, seed=seed)
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
