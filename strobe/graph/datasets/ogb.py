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
from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Loader, LoadRequest
from strobe.graph.datasets.download import unpack
from strobe.graph.datasets.static import StaticGraph, read_reddit
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.ingest import ByColumn, Every, NodeTable
from strobe.ops.sparse.csr import IntArray

_BATCH_ROWS = 1 << 20


class DatedPapers(Loader):
    """Citations of arXiv papers, each as old as the younger of its two papers."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        static = _read_csv(request)
        year = _column(request.files["raw/node_year.csv.gz"])
        return request.ingest(
            {"src": static.src, "dst": static.dst, "time": np.maximum(year[static.src], year[static.dst])},
            clock=ByColumn("time"),
            **_paper_options(static.num_nodes, static.features, static.labels),
        )


class HugeDatedPapers(Loader):
    """Citations from NPZ files larger than memory: arrays are unpacked once, and mapped."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        data = request.files["raw/data.npz"]
        request.report("unpacking", 0, None)
        edges, year, features = (_map_array(data, name) for name in ("edge_index", "node_year", "node_feat"))
        with np.load(request.files["raw/node-label.npz"]) as file:
            label = file["node_label"].reshape(-1)
        labels = np.where(np.isnan(label), -1, label).astype(np.int64) if label.dtype.kind == "f" else label
        batches = _dated_edges(edges, np.asarray(year).reshape(-1))
        schema = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("time", pa.int64())])
        return request.ingest(
            pa.RecordBatchReader.from_batches(schema, batches),
            clock=Every(1),
            **_paper_options(len(year), features, labels),
        )


def _paper_options(num_nodes: int, features: Array | None, labels: Array | None) -> dict[str, object]:
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


def _map_array(npz: Path, name: str) -> Array:
    """Memory-map an array of an NPZ file, unpacked once to NAME.npy next to it."""
    target = npz.with_name(f"{name}.npy")
    if not target.is_file():
        unpack(npz, target)
    mapped: Array = np.load(target, mmap_mode="r")
    return mapped


def _read_csv(request: LoadRequest, *, directed: bool = True) -> StaticGraph:
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


def _undirected(request: LoadRequest) -> StaticGraph:
    return _read_csv(request, directed=False)


def _reddit(request: LoadRequest) -> StaticGraph:
    return read_reddit(request.files["reddit_data.npz"], request.files["reddit_graph.npz"])


READERS = {"ogb": _read_csv, "ogb-undirected": _undirected, "reddit": _reddit}
"""Readers of static graphs, by their name in the catalog."""
