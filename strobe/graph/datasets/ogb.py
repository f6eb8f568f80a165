"""OGB node sets in their published raw layout, and Reddit: citations dated by year, and static graphs made dynamic.

A .zip holds raw/edge.csv.gz (one edge per line, undirected ones once), raw/node-feat.csv.gz, raw/node-label.csv.gz
and, where papers have years, raw/node_year.csv.gz, all without headers. papers100M holds raw/data.npz (edge_index,
node_feat, node_year, …) and raw/node-label.npz instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from strobe.errors import InputError
from strobe.graph.arrays import Array
from strobe.graph.datasets.archive import unpack
from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request
from strobe.graph.datasets.simulated import Simulated, static_set
from strobe.graph.datasets.static import StaticGraph, reddit
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.ingest import ByColumn, Every, NodeTable
from strobe.ops.csr import IntArray

_BATCH_ROWS = 1 << 20
_URL = "https://snap.stanford.edu/ogb/data/nodeproppred"


class DatedPapers(Loader):
    """Citations of arXiv papers; one is as old as the younger of its two papers."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
        static = _read_csv(request)
        year = _column(request.files["raw/node_year.csv.gz"])
        return request.ingest(
            {"src": static.src, "dst": static.dst, "time": np.maximum(year[static.src], year[static.dst])},
            clock=ByColumn("time"),
            **_papers(static.num_nodes, static.features, static.labels),
        )


class HugeDatedPapers(Loader):
    """The same from NPZ files that do not fit in memory: arrays are unpacked beside them once, and mapped."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
        data = request.files["raw/data.npz"]
        request.report("unpacking", 0, None)
        edges, year, features = (_mapped(data, name) for name in ("edge_index", "node_year", "node_feat"))
        with np.load(request.files["raw/node-label.npz"]) as file:
            label = file["node_label"].reshape(-1)
        labels = np.where(np.isnan(label), -1, label).astype(np.int64) if label.dtype.kind == "f" else label
        batches = _dated_edges(edges, np.asarray(year).reshape(-1))
        schema = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("time", pa.int64())])
        return request.ingest(
            pa.RecordBatchReader.from_batches(schema, batches),
            clock=Every(1),
            **_papers(len(year), features, labels),
        )


def _papers(num_nodes: int, features: Array | None, labels: Array | None) -> dict[str, object]:
    assert labels is not None
    labelled = np.flatnonzero(labels >= 0)
    return {
        "src": "src",
        "dst": "dst",
        "time": "time",
        "repeated": "last",
        "presence": "seen",
        "renumber": False,
        "num_nodes": num_nodes,
        "features": None if features is None else Static(features),
        "nodes": NodeTable(source={"id": labelled, "label": labels[labelled]}, id="id", label="label"),
    }


def _dated_edges(edges: Array, year: IntArray) -> Iterator[pa.RecordBatch]:
    for start in range(0, edges.shape[1], _BATCH_ROWS):
        src, dst = np.asarray(edges[:, start : start + _BATCH_ROWS], np.int64)
        columns = [pa.array(column) for column in (src, dst, np.maximum(year[src], year[dst]).astype(np.int64))]
        yield pa.RecordBatch.from_arrays(columns, names=["src", "dst", "time"])


def _mapped(npz: Path, name: str) -> Array:
    """An array of an NPZ file without reading it into memory: unpacked to NAME.npy beside it, once."""
    target = npz.with_name(f"{name}.npy")
    if not target.is_file():
        unpack(npz, target)
    mapped: Array = np.load(target, mmap_mode="r")
    return mapped


def _read_csv(request: Request, *, directed: bool = True) -> StaticGraph:
    edges = _matrix(request.files["raw/edge.csv.gz"])
    labels = _column(request.files["raw/node-label.csv.gz"])
    return StaticGraph(
        num_nodes=int(_column(request.files["raw/num-node-list.csv.gz"])[0]),
        src=edges[:, 0],
        dst=edges[:, 1],
        directed=directed,
        features=_matrix(request.files["raw/node-feat.csv.gz"]).astype(np.float32),
        labels=labels.astype(np.int64),
    )


def _matrix(path: Path) -> Array:
    try:
        table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return np.column_stack([column.to_numpy() for column in table.columns])


def _column(path: Path) -> Array:
    column: Array = _matrix(path)[:, 0]
    return column


def _undirected(request: Request) -> StaticGraph:
    return _read_csv(request, directed=False)


def _reddit(request: Request) -> StaticGraph:
    return reddit(request.files["reddit_data.npz"], request.files["reddit_graph.npz"])


def _packed(archive: str, *paths: str) -> tuple[File, ...]:
    return tuple(File(path=path, urls=(f"{_URL}/{archive}",), archive=archive) for path in paths)


_CSV = tuple(f"raw/{name}.csv.gz" for name in ("edge", "node-feat", "node-label", "num-node-list"))


def _ogb(
    name: str, title: str, files: tuple[File, ...], loader: Loader, counts: tuple[int, int, int], folder: str = ""
) -> DataSet:
    nodes, edges, snapshots = counts
    return DataSet(
        name=name,
        title=title,
        tasks=("node classification",),
        source="https://ogb.stanford.edu/docs/nodeprop",
        citation="Hu et al. (Open Graph Benchmark), NeurIPS 2020",
        licence="Amazon licence" if "products" in name else "ODC-BY",
        files=files,
        loader=loader,
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
        folder=folder,
    )


def _grown(name: str, title: str, like: DataSet, loader: Simulated) -> DataSet:
    """30 snapshots whose edges grow steadily, with fluctuations (DyGNeX, section 5.1 and appendix E).

    The paper gives the curve as a picture only: here it rises from a fifth to the whole, give or take 3%.
    """
    return static_set(like, name=name, title=f"{title}, growing over 30 snapshots", loader=loader)


_ARXIV = _ogb(
    "ogbn-arxiv",
    "Citations of computer science papers on arXiv, by year",
    _packed("arxiv.zip", *_CSV, "raw/node_year.csv.gz"),
    DatedPapers(),
    (169343, 1166243, 35),
)
_PRODUCTS = _ogb(
    "ogbn-products",
    "Amazon products bought together: static, one snapshot",
    _packed("products.zip", *_CSV),
    Simulated(read=_undirected, snapshots=1, first=1.0),
    (2449029, 61859140 // 2, 1),
)
_REDDIT = DataSet(
    name="reddit",
    title="Reddit posts with common commenters: static, one snapshot",
    tasks=("node classification",),
    source="https://docs.dgl.ai/generated/dgl.data.RedditDataset.html",
    citation="Hamilton, Ying and Leskovec (GraphSAGE), NeurIPS 2017",
    licence="none stated",
    files=tuple(
        File(path=path, urls=("https://data.dgl.ai/dataset/reddit.zip",), archive="reddit.zip")
        for path in ("reddit_data.npz", "reddit_graph.npz")
    ),
    loader=Simulated(read=_reddit, snapshots=1, first=1.0),
    nodes=232965,
    edges=114615892 // 2,
    snapshots=1,
)

SETS: tuple[DataSet, ...] = (
    _ARXIV,
    _PRODUCTS,
    _ogb(
        "ogbn-papers100M",
        "Citations of the Microsoft Academic Graph, by year",
        _packed("papers100M-bin.zip", "raw/data.npz", "raw/node-label.npz"),
        HugeDatedPapers(),
        (111059956, 1615685872, 220),
    ),
    _REDDIT,
    _grown("arxiv-t", "ogbn-arxiv", _ARXIV, Simulated(read=_read_csv, snapshots=30, first=0.2, noise=0.03)),
    _grown(
        "products-t",
        "ogbn-products",
        _PRODUCTS,
        Simulated(read=_undirected, snapshots=30, first=0.2, noise=0.03, growing_nodes=True),
    ),
    _grown(
        "reddit-t",
        "Reddit",
        _REDDIT,
        Simulated(read=_reddit, snapshots=30, first=0.2, noise=0.03, growing_nodes=True),
    ),
)
