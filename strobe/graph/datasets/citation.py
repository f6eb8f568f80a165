"""Papers that cite, authors who publish together: labelled graphs, dated ones and static ones made dynamic."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow.compute as pc
from pyarrow import csv

from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request
from strobe.graph.datasets.simulated import Simulated, static_set
from strobe.graph.datasets.static import StaticGraph, dense_features, planetoid
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.ingest import ByColumn, NodeTable


class DatedPubmed(Loader):
    """Pubmed with the years its papers appeared: a citation is as old as the younger of its two papers."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
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
    """All of Cora by the year of the citing paper. Citations that lack a year are left out, and counted in info."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
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

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
        return request.ingest(
            request.files["dblp.txt.gz"],
            src=0,
            dst=1,
            time=2,
            clock=ByColumn(2),
            directed=False,
            nodes=NodeTable(source=request.files["node2label.txt.gz"], id=0, label=1),
        )


def _read(file: str, request: Request) -> StaticGraph:
    return planetoid(request.files[file])


def _planetoid(name: str, title: str, nodes: int, edges: int) -> DataSet:
    """A static graph as a dynamic one of a single snapshot."""
    file = f"{name}.npz"
    return DataSet(
        name=name,
        title=f"{title}: static, one snapshot",
        tasks=("node classification",),
        source="https://github.com/kimiyoung/planetoid",
        citation="Yang, Cohen and Salakhutdinov, ICML 2016",
        licence="MIT",
        files=(File(path=file),),
        loader=Simulated(read=partial(_read, file), snapshots=1, first=1.0),
        nodes=nodes,
        edges=edges,
        snapshots=1,
        folder="planetoid",
    )


def _grown(static: DataSet) -> DataSet:
    """The set the papers call Cora-T or Pubmed-T (DynaHB, Table 1): 50 snapshots, always all nodes.

    Edges grow by the same amount each time. The table's edges of Cora-T (0.27M arcs over all snapshots) are those of
    such a line; how its nodes come to be 20 times Cora's, the paper does not say, and here they are Cora's.
    """
    assert isinstance(static.loader, Simulated)
    return static_set(
        static,
        name=f"{static.name}-t",
        title=f"{static.title.split(':')[0]}, edges growing over 50 snapshots",
        loader=Simulated(read=static.loader.read, snapshots=50, first=0.02),
    )


STATIC: tuple[DataSet, ...] = (
    _planetoid("cora", "Cora", 2708, 5278),
    _planetoid("citeseer", "CiteSeer", 3327, 4552),
    _planetoid("pubmed", "Pubmed", 19717, 44324),
)

SETS: tuple[DataSet, ...] = (
    DataSet(
        name="dblp_coauthor",
        title="Co-authors in DBLP, 10 research areas",
        tasks=("node classification", "link prediction"),
        source="https://github.com/CsuYuzhigang/CLDHG-main",
        citation="Lu, Wang, Shi, Yu and Ye (M2DNE), CIKM 2019",
        licence="none stated (DBLP itself is CC0)",
        files=(File(path="dblp.txt.gz"), File(path="node2label.txt.gz")),
        loader=Coauthors(),
        nodes=25387,
        edges=185480,
        snapshots=25,
    ),
    DataSet(
        name="cora_temporal",
        title="Cora with the years of its citations, 10 classes",
        tasks=("node classification", "link prediction"),
        source="https://github.com/urielsinger/tNodeEmbed",
        citation="Singer, Guy and Radinsky (tNodeEmbed), IJCAI 2019",
        licence="none stated",
        files=(File(path="citations_with_dates.csv.gz"), File(path="classifications.csv.gz")),
        loader=DatedCora(),
        nodes=11347,
        edges=34100,
        snapshots=27,
    ),
    DataSet(
        name="pubmed_temporal",
        title="Pubmed with the years of its papers, 3 classes",
        tasks=("node classification", "link prediction"),
        source="https://github.com/nelsonaloysio/pubmed-temporal",
        citation="Passos, Carlini and Trani, GNNet 2024",
        licence="MIT",
        files=(File(path="pubmed_temporal.npz"),),
        loader=DatedPubmed(),
        nodes=19717,
        edges=44324,
        snapshots=42,
    ),
    *STATIC,
    *(_grown(static) for static in STATIC),
)
