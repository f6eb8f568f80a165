"""Event streams: one row per event with source, destination, time and often a weight.

Formats: SNAP's (``src dst unix_time``), KONECT's and the Network Repository's (comments with %, then source,
destination, often a weight, time) and JODIE's (``user,item,time,…`` with a header).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strobe.errors import InputError
from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request, Task
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Calendar, Clock, Every, Into
from strobe.graph.ingest.text import sniff

HOUR, DAY, WEEK = 3600, 86400, 7 * 86400
BOTH: tuple[Task, ...] = ("link prediction", "node regression")
LINKS: tuple[Task, ...] = ("link prediction",)
_SNAP = "https://snap.stanford.edu/data"
_NO_LICENCE = "none stated by SNAP (research data, cite)"


@dataclass(frozen=True, kw_only=True)
class Stream(Loader):
    """A file of events whose columns are known; ``clock`` is the default way to cut it."""

    takes = CUTTING
    file: str
    clock: Clock
    src: str | int = 0
    dst: str | int = 1
    time: str | int = 2
    weight: str | int | None = None

    def load(self, request: Request) -> DynamicGraph:
        return request.ingest(
            request.files[self.file],
            src=self.src,
            dst=self.dst,
            time=self.time,
            weight=self.weight,
            clock=self.clock,
        )


@dataclass(frozen=True, kw_only=True)
class Edges(Loader):
    """A file of KONECT or the Network Repository: ``src dst time``, or ``src dst weight time``.

    The first comment of such a file says ``% sym`` where edges have no direction.
    """

    takes = CUTTING
    file: str
    clock: Clock

    def load(self, request: Request) -> DynamicGraph:
        path = request.files[self.file]
        width = len(sniff(path, delimiter=None, header=False, encoding="utf-8").columns)
        if width not in (3, 4):
            raise InputError(f"{path} has {width} columns: edges with a time have 3, or 4 with a weight")
        return request.ingest(
            path,
            src=0,
            dst=1,
            weight=2 if width == 4 else None,
            time=width - 1,
            clock=self.clock,
            directed=not _is_symmetric(path),
        )


def _is_symmetric(path: Path) -> bool:
    with open_text(path) as file:
        words = file.readline().split()
    return words[:2] == ["%", "sym"]


def _snap(
    name: str, title: str, file: str, clock: Clock, counts: tuple[int, int, int], page: str, *, folder: str = ""
) -> DataSet:
    nodes, edges, snapshots = counts
    return DataSet(
        name=name,
        title=title,
        tasks=BOTH,
        source=f"{_SNAP}/{page}.html",
        citation="Paranjape, Benson and Leskovec, WSDM 2017",
        licence=_NO_LICENCE,
        files=(File(path=file, urls=(f"{_SNAP}/{file}",)),),
        loader=Stream(file=file, clock=clock),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
        folder=folder,
    )


_SITES: dict[str, dict[str, tuple[int, int]]] = {
    "mathoverflow": {"": (24818, 506550), "-a2q": (21688, 107581), "-c2q": (16836, 203639), "-c2a": (13840, 195330)},
    "askubuntu": {"": (159316, 964437), "-a2q": (137517, 280102), "-c2q": (79155, 327513), "-c2a": (75555, 356822)},
    "superuser": {"": (194085, 1443339), "-a2q": (167981, 430033), "-c2q": (94548, 479067), "-c2a": (101052, 534239)},
    "stackoverflow": {
        "": (2601977, 63497050),
        "-a2q": (2464606, 17823525),
        "-c2q": (1655353, 20268151),
        "-c2a": (1646338, 25405374),
    },
}
_MONTHS = {"mathoverflow": 79, "askubuntu": 80, "superuser": 91, "stackoverflow": 92}
_PARTS = {"": "all interactions", "-a2q": "answers", "-c2q": "comments on questions", "-c2a": "comments on answers"}


def _stack_exchange() -> list[DataSet]:
    return [
        _snap(
            f"sx-{site}{part}",
            f"Stack Exchange {site}: {what}, by month",
            f"sx-{site}{part}.txt.gz",
            Calendar("month"),
            (*_SITES[site][part], _MONTHS[site]),
            f"sx-{site}",
            folder=f"sx-{site}",
        )
        for site in _SITES
        for part, what in _PARTS.items()
    ]


def _bitcoin(name: str, title: str, counts: tuple[int, int, int]) -> DataSet:
    file = f"soc-sign-{name.replace('_', '')}.csv.gz"
    nodes, edges, snapshots = counts
    return DataSet(
        name=name,
        title=f"{title}: who trusts whom, rated -10 to 10, by fortnight",
        tasks=LINKS,
        source=f"{_SNAP}/soc-sign-{name.replace('_', '-')}.html",
        citation="Kumar, Spezzano, Subrahmanian and Faloutsos, ICDM 2016",
        licence=_NO_LICENCE,
        files=(File(path=file, urls=(f"{_SNAP}/{file}",)),),
        loader=Stream(file=file, weight=2, time=3, clock=Every(2 * WEEK)),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


def _network_repository(name: str, title: str, nodes: int, edges: int, snapshots: int) -> DataSet:
    """Cut into as many snapshots as DynaHB does (Table 1)."""
    archive = f"{name}.zip"
    return DataSet(
        name=name,
        title=title,
        tasks=("node regression", "link prediction"),
        source=f"https://networkrepository.com/{name}.php",
        citation="Rossi and Ahmed, AAAI 2015",
        licence="CC BY-SA as far as the Network Repository states",
        files=(
            File(
                path=f"{name}.edges",
                urls=(f"https://nrvis.com/download/data/dynamic/{archive}",),
                archive=archive,
            ),
        ),
        loader=Edges(file=f"{name}.edges", clock=Into(snapshots)),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
    )


SETS: tuple[DataSet, ...] = (
    _snap(
        "collegemsg",
        "Messages on a college's social network, by week",
        "CollegeMsg.txt.gz",
        Calendar("week"),
        (1899, 59835, 29),
        "CollegeMsg",
    ),
    *_stack_exchange(),
    _bitcoin("bitcoin_otc", "Bitcoin OTC", (5881, 35592, 137)),
    _bitcoin("bitcoin_alpha", "Bitcoin Alpha", (3783, 24186, 137)),
    DataSet(
        name="digg_reply",
        title="Replies on Digg, by 6 hours",
        tasks=BOTH,
        source="http://konect.cc/networks/munmun_digg_reply",
        citation="De Choudhury, Sundaram, John and Seligmann, SocialCom 2009",
        licence="as stated by KONECT",
        files=(
            File(
                path="out.munmun_digg_reply",
                urls=("http://konect.cc/files/download.tsv.munmun_digg_reply.tar.bz2",),
                archive="munmun_digg_reply.tar.bz2",
            ),
        ),
        loader=Edges(file="out.munmun_digg_reply", clock=Every(6 * HOUR)),
        nodes=30398,
        edges=87627,
        snapshots=62,
    ),
    DataSet(
        name="wikipedia_jodie",
        title="Edits of Wikipedia pages by users, by day",
        tasks=LINKS,
        source="https://snap.stanford.edu/jodie",
        citation="Kumar, Zhang and Leskovec, KDD 2019",
        licence=_NO_LICENCE,
        files=(File(path="wikipedia.csv.gz"),),
        loader=Stream(file="wikipedia.csv.gz", src="u", dst="i", time="ts", clock=Every(DAY)),
        nodes=9227,
        edges=157474,
        snapshots=31,
    ),
    _network_repository("ia-slashdot-reply-dir", "Replies on Slashdot", 51083, 140778, 80),
    _network_repository("ia-stackexch-user-marks-post-und", "Favourites on Stack Overflow", 545196, 1302439, 170),
    _network_repository("rec-amazon-ratings", "Amazon ratings", 2146057, 5838041, 70),
    _network_repository("soc-flickr-growth", "Flickr, as it grew", 2302925, 33140017, 70),
    _network_repository("soc-youtube-growth", "YouTube, as it grew", 3223589, 12223774, 80),
    _network_repository("soc-bitcoin", "Bitcoin payments", 24575385, 122948162, 90),
)
