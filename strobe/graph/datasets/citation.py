"""Citation and co-author graphs with labels: dated ones, and static ones made dynamic."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from pyarrow import csv

from strobe.graph.datasets.dataset import SNAPSHOT_OPTIONS, Loader, LoadRequest
from strobe.graph.datasets.static import StaticGraph, dense_features, read_planetoid
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.ingest import ByColumn, NodeTable


class DatedPubmed(Loader):
    """Pubmed with the years of its papers: a citation is as old as the younger of its two papers."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        with np.load(request.files["pubmed_temporal.npz"]) as file:
            edges, labels = file["edges"], file["labels"]
            columns = {"src": edges[:, 0], "dst": edges[:, 1], "time": file["time"]}
            features = Static(dense_features(file))
        return request.ingest(
            columns,
            src="src",
            dst="dst",
            time="time",
            clock=ByColumn("time"),
            directed=False,
            repeated="last",
            presence="seen",
            renumber=False,
            num_nodes=labels.size,
            features=features,
            nodes=NodeTable(source={"id": np.arange(labels.size), "label": labels}, id="id", label="label"),
        )


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


class Coauthors(Loader):
    """DBLP: ``u v time`` with years scaled to 0..1, and ``node class``."""

    takes = SNAPSHOT_OPTIONS

    def load(self, request: LoadRequest) -> DynamicGraph:
        return request.ingest(
            request.files["dblp.txt.gz"],
            src=0,
            dst=1,
            time=2,
            clock=ByColumn(2),
            directed=False,
            nodes=NodeTable(source=request.files["node2label.txt.gz"], id=0, label=1),
        )


def read_planetoid_set(request: LoadRequest) -> StaticGraph:
    """Read Cora, CiteSeer or Pubmed, the only file of its set."""
    [path] = request.files.values()
    return read_planetoid(path)
