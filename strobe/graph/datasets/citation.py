"""Citations dated by the years of papers: Cora, Pubmed, and OGB's arXiv and papers100M as published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Loader, LoadRequest
from strobe.graph.datasets.download import unpack
from strobe.graph.datasets.static import dense_features, read_matrix, read_ogb
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.ingest import ByColumn, Every, NodeTable
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv
else:
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")
    csv = lazy_import("pyarrow.csv")

_BATCH_ROWS = 1 << 20


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


class DatedPubmed(Loader):
    """Pubmed with the years of its papers: a citation is as old as the younger of its two papers."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        with np.load(request.files["pubmed_temporal.npz"]) as file:
            src, dst = file["edges"].T
            columns = {"src": src, "dst": dst, "time": file["time"]}
            options = _paper_options(file["labels"].size, dense_features(file), file["labels"])
        return request.ingest(columns, clock=ByColumn("time"), directed=False, **options)


class DatedCora(Loader):
    """Full Cora by the year of the citing paper. Citations without a year are left out and counted in info."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        rows = csv.read_csv(request.files["citations_with_dates.csv.gz"])
        dated = rows.filter(pc.and_(pc.is_valid(rows["referring_year"]), pc.is_valid(rows["cited_year"])))
        classes = csv.read_csv(request.files["classifications.csv.gz"])
        cited = pc.or_(
            pc.is_in(classes["id"], pc.unique(dated["referring_id"])),
            pc.is_in(classes["id"], pc.unique(dated["cited_id"])),
        )
        return request.ingest(
            dated,
            src="referring_id",
            dst="cited_id",
            time="referring_year",
            clock=ByColumn("referring_year"),
            repeated="last",
            presence="seen",
            nodes=NodeTable(source=classes.filter(cited), id="id", label="top_level_class"),
            info={"rows_without_year": len(rows) - len(dated)},
        )


class DatedPapers(Loader):
    """Citations of arXiv papers, each as old as the younger of its two papers."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        static, year = read_ogb(request), read_matrix(request.files["raw/node_year.csv.gz"])[:, 0]
        columns = {"src": static.src, "dst": static.dst, "time": np.maximum(year[static.src], year[static.dst])}
        options = _paper_options(static.num_nodes, static.features, static.labels)
        return request.ingest(columns, clock=ByColumn("time"), **options)


class HugeDatedPapers(Loader):
    """Citations from NPZ files larger than memory: arrays are unpacked once, and mapped.

    raw/data.npz holds edge_index, node_feat and node_year, raw/node-label.npz holds node_label (NaN: none).
    """

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
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return request.ingest(reader, clock=Every(1), **_paper_options(len(year), features, labels))


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
