"""Sets that come as snapshots: a column of the table says which one a row belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import ByColumn
from strobe.graph.ingest.columns import Ids
from strobe.graph.ingest.options import Presence


@dataclass(frozen=True, kw_only=True)
class SnapshotTable(Loader):
    """A table with a column of snapshots; its time can be cut otherwise."""

    takes = CUTTING
    file: str
    snapshot: str | int
    src: str | int
    dst: str | int
    time: str | int
    weight: str | int | None = None
    directed: bool = True
    presence: Presence = "active"
    ids: Ids = "integer"

    def load(self, request: Request) -> DynamicGraph:
        return request.ingest(
            request.files[self.file],
            src=self.src,
            dst=self.dst,
            time=self.time,
            weight=self.weight,
            clock=ByColumn(self.snapshot),
            directed=self.directed,
            presence=self.presence,
            ids=self.ids,
        )


class DailyRouters(Loader):
    """AS-733 as one NPZ: the edges of all days end to end (src, dst), where each day begins (ptr), its date."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
        with np.load(request.files["as733.npz"]) as file:
            day = np.repeat(file["date"], np.diff(file["ptr"]))
            columns = {"src": file["src"], "dst": file["dst"], "day": day, "time": _dates(day)}
        return request.ingest(
            columns, src="src", dst="dst", time="time", clock=ByColumn("day"), directed=False, repeated="last"
        )


def _dates(day: Array) -> Array:
    """20000102 as a date."""
    year, month, rest = day // 10000 - 1970, day // 100 % 100 - 1, day % 100 - 1
    months = (12 * year + month).astype("datetime64[M]")
    dates: Array = months.astype("datetime64[D]") + rest.astype("timedelta64[D]")
    return dates


def _monthly(name: str, title: str, source: str, licence: str, nodes: int, edges: int, snapshots: int) -> DataSet:
    file = "edges.csv.gz"
    return DataSet(
        name=name,
        title=title,
        tasks=("link prediction", "node regression"),
        source=source,
        citation="Liu, Xu, Yin, Song, Huang and Wang (CTGCN), TKDE 2021",
        licence=licence,
        files=(File(path=file),),
        loader=SnapshotTable(file=file, snapshot="snapshot", src="src", dst="dst", time="snapshot", weight="weight"),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


def _dysat(name: str, title: str, source: str, nodes: int, edges: int, snapshots: int) -> DataSet:
    """Ids grow with time: whoever was seen stays, as in DySAT."""
    file = "events.csv.gz"
    return DataSet(
        name=name,
        title=title,
        tasks=("link prediction",),
        source=source,
        citation="Sankar, Wu, Gou, Zhang and Yang (DySAT), WSDM 2020",
        licence="none stated",
        files=(File(path=file),),
        loader=SnapshotTable(
            file=file, snapshot="snapshot", src="src", dst="dst", time="unix_time", directed=False, presence="seen"
        ),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


SETS: tuple[DataSet, ...] = (
    _monthly(
        "mathoverflow_monthly",
        "MathOverflow interactions, counted by month",
        "https://snap.stanford.edu/data/sx-mathoverflow.html",
        "none stated by SNAP (research data, cite)",
        24740,
        323357,
        77,
    ),
    _monthly(
        "enron_full_monthly",
        "Enron e-mail of all addresses, counted by month",
        "https://networkrepository.com/ia-enron-email-dynamic.php",
        "CC BY-SA as far as the Network Repository states",
        87036,
        530284,
        38,
    ),
    _dysat("uci_dysat", "UCI messages, 13 snapshots", "https://github.com/aravindsankar28/DySAT", 1809, 56459, 13),
    _dysat("enron_dysat", "Enron e-mail, 16 snapshots", "https://github.com/aravindsankar28/DySAT", 143, 22784, 16),
    DataSet(
        name="as733",
        title="Routers of the Internet (autonomous systems), 733 days",
        tasks=("link prediction", "node regression"),
        source="https://snap.stanford.edu/data/as-733.html",
        citation="Leskovec, Kleinberg and Faloutsos, KDD 2005",
        licence="none stated by SNAP (research data, cite)",
        files=(File(path="as733.npz"),),
        loader=DailyRouters(),
        nodes=7716,
        edges=6260128,
        snapshots=733,
    ),
    DataSet(
        name="canvote",
        title="Votes for each other's bills in the Canadian parliament, by year",
        tasks=("link prediction",),
        source="https://github.com/shenyangHuang/LAD",
        citation="Huang, Hitti, Rabusseau and Rabbany, KDD 2020",
        licence="none stated",
        files=(File(path="canVote_edgelist.txt.gz"),),
        loader=SnapshotTable(file="canVote_edgelist.txt.gz", snapshot=0, src=1, dst=2, time=0, weight=3, ids="string"),
        nodes=734,
        edges=74478,
        snapshots=14,
    ),
    DataSet(
        name="uslegis",
        title="Co-sponsored bills in the US Senate, by congress",
        tasks=("link prediction",),
        source="https://github.com/shenyangHuang/LAD",
        citation="Fowler, Political Analysis 2006",
        licence="none stated",
        files=(File(path="LegisEdgelist.txt.gz"),),
        loader=SnapshotTable(file="LegisEdgelist.txt.gz", snapshot=0, src=1, dst=2, time=0, weight=3, directed=False),
        nodes=225,
        edges=60396,
        snapshots=12,
    ),
)
