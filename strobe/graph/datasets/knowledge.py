"""Temporal knowledge graphs: who did what to whom, when. Edges keep their ends and times, not their relations."""

from __future__ import annotations

from dataclasses import dataclass

from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Calendar, Clock, Every
from strobe.graph.ingest.text_table import TextOptions

_PARTS = ("train", "valid", "test")
_MIRRORS = (
    "https://object-arbutus.alliancecan.ca/swift/v1/14c95234f6cd4a21a47deafe20cce2a7/tgb",
    "https://object-arbutus.cloud.computecanada.ca/tgb",
)


class Quadruples(Loader):
    """``subject relation object time`` in train, valid and test; times in hours, a snapshot per day."""

    takes = CUTTING

    def load(self, request: Request) -> DynamicGraph:
        files = [request.files[f"{part}.txt.gz"] for part in _PARTS]
        return request.ingest(files, src=0, dst=2, time=3, clock=Every(24))


@dataclass(frozen=True, kw_only=True)
class EdgeList(Loader):
    """TGB's ``NAME_edgelist.csv``: a header, then time, head, tail, relation (the first is called ts or date)."""

    takes = CUTTING
    file: str
    clock: Clock

    def load(self, request: Request) -> DynamicGraph:
        text = TextOptions(delimiter=",", header=True)
        return request.ingest(request.files[self.file], text=text, time=0, src=1, dst=2, clock=self.clock)


def _icews(year: int, source: str, nodes: int, edges: int, snapshots: int) -> DataSet:
    return DataSet(
        name=f"icews{year}",
        title=f"Political events of 20{year} (ICEWS), by day",
        tasks=("link prediction",),
        source=source,
        citation="Boschee et al., ICEWS Coded Event Data, Harvard Dataverse",
        licence="ICEWS Dataverse terms",
        files=tuple(File(path=f"{part}.txt.gz") for part in _PARTS),
        loader=Quadruples(),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


def _tkgl(name: str, title: str, clock: Clock, nodes: int, edges: int, snapshots: int) -> DataSet:
    file, archive = f"{name}_edgelist.csv", f"{name}.zip"
    return DataSet(
        name=name,
        title=title,
        tasks=("link prediction",),
        source="https://tgb.complexdatalab.com/docs/tkg",
        citation="Gastinger, Huang et al. (TGB 2.0), NeurIPS 2024",
        licence="as stated by TGB for this set",
        files=(File(path=file, urls=tuple(f"{mirror}/{archive}" for mirror in _MIRRORS), archive=archive),),
        loader=EdgeList(file=file, clock=clock),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


SETS: tuple[DataSet, ...] = (
    _icews(14, "https://github.com/Liyyy2122/TiRGN", 7128, 90730, 365),
    _icews(18, "https://github.com/INK-USC/RE-Net", 23033, 468558, 304),
    _tkgl("tkgl-smallpedia", "Facts of Wikidata's oldest entries, by year", Every(1), 47433, 550376, 125),
    _tkgl("tkgl-polecat", "Political events (POLECAT), by day", Calendar("day"), 150931, 1779610, 1826),
    _tkgl("tkgl-icews", "Political events 1995 to 2022 (ICEWS), by day", Calendar("day"), 87856, 15513446, 10224),
    _tkgl("tkgl-wikidata", "Facts of Wikidata, by year", Every(1), 1226440, 9856203, 2025),
    _tkgl("tkgl-yago", "Facts of YAGO, by year", Every(1), 10778, 220393, 187),
)
