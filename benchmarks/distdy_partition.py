"""How long does it take to place and to store snapshots as they arrive, and how good are the places?

Each placement has a process of its own, which opens a graph on disk that is in the page cache. Snapshot by snapshot it
decides who owns which cell, and every rank's store takes what is its own: rows as changed segments and arcs that end in
its cells as inserts and deletes, of the last 4 snapshots. METIS on the union, which needs all snapshots, places first
and stores then. Loops are compiled, and METIS is loaded, before the clock runs. Rounds alternate; seconds are medians.

Memory is the anonymous memory of the process at its peak, libraries and stores with it, pages of the graph's files not.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.record import Record, child, memory, table
from strobe.graph import DiskSink, DynamicGraph, Snapshot, open_graph
from strobe.graph.diff import KeyedArcs, key_arcs
from strobe.graph.synthetic import Changing
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Greedy, Hash, Metis, MetisPerSnapshot, MetisSoFar, Online, Placement
from strobe.placement.loads import loads_of_cells
from strobe.placement.online import weigh_links
from strobe.placement.streaming import StreamingPlacement
from strobe.store.delta.edges import ArcWindow
from strobe.store.delta.features import FeatureWindow

MODULE = "benchmarks.distdy"
GRAPHS = ("uni500k", "ex500k")
RANKS, WINDOW, SEGMENTS, ROUNDS = 4, 4, 4, 2
ONCE = ("metis-per-snapshot",)
"""Takes as long as all others together, and is in no figure."""

PLACEMENTS: dict[str, Callable[[], Placement]] = {
    "online": Online,
    "metis": Metis,
    "metis-so-far": MetisSoFar,
    "metis-per-snapshot": MetisPerSnapshot,
    "greedy": Greedy,
    "hash": Hash,
}

PAPER: dict[str, dict[str, float | None]] = {
    "uni500k": {"metis": 105.11, "hash": 78.51, "greedy": 79.88, "metis-per-snapshot": 119.93, "online": 83.78},
    "ex500k": {"metis": 99.35, "hash": 75.05, "greedy": None, "metis-per-snapshot": 118.11, "online": 80.99},
}
"""Table 3, in seconds; None: out of memory."""


class Store:
    """What one rank keeps of the last snapshots."""

    def __init__(self, num_nodes: int) -> None:
        self._rows, self._arcs = FeatureWindow(SEGMENTS), ArcWindow(num_nodes)
        self._last: tuple[int, KeyedArcs] | None = None

    def add(self, snapshot: Snapshot, arcs: KeyedArcs, mine: IntArray) -> None:
        """Takes the cells that are marked in ``mine``, and the arcs that end there."""
        cells = np.flatnonzero(mine)
        if len(self._rows.times) == WINDOW:
            self._rows.drop()
            self._arcs.drop()
        assert snapshot.x is not None
        self._rows.add(snapshot.t, snapshot.nodes[cells], snapshot.x[cells])
        own = KeyedArcs(arcs.keys[np.repeat(mine, np.diff(snapshot.row_ptr))], None)
        self._arcs.add(snapshot.t, own, self._last)
        self._last = snapshot.t, own

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._arcs.nbytes


@dataclass
class Tally:
    """What came of a placement: seconds by snapshot, arcs that are cut, loads of ranks, and who moved."""

    place_s: list[float] = field(default_factory=list)
    store_s: list[float] = field(default_factory=list)
    cut: list[float] = field(default_factory=list)
    fetched: list[float] = field(default_factory=list)
    balance: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    store_bytes: list[list[int]] = field(default_factory=list)

    def judge(self, snapshot: Snapshot, owner: IntArray, last: IntArray | None) -> None:
        """Counts, outside of what is timed."""
        source, destination = snapshot.arcs()
        self.cut.append(float(np.mean(owner[source] != owner[destination])))
        links = weigh_links(snapshot)
        self.fetched.append(1 - links.utility(owner) / links.total)
        loads = np.bincount(owner, loads_of_cells(snapshot), RANKS)
        self.balance.append(float(loads.max() / loads.mean()))
        if last is not None:
            self.moved.append(float(np.mean(owner != last)))

    def to_record(self) -> dict[str, Any]:
        fullest = [max(each) for each in self.store_bytes]
        even = [sum(each) / len(each) for each in self.store_bytes]
        return {
            "place_s": sum(self.place_s),
            "store_s": sum(self.store_s),
            "place_s_by_snapshot": self.place_s,
            "store_s_by_snapshot": self.store_s,
            "cut": statistics.mean(self.cut),
            "fetched": statistics.mean(self.fetched),
            "balance": max(self.balance),
            "moved": statistics.mean(self.moved),
            "store_bytes": max(fullest),
            "store_balance": max(full / mean for full, mean in zip(fullest, even, strict=True)),
        }


def placed_and_stored(path: str, name: str) -> dict[str, Any]:
    """Child: places and stores all snapshots of a graph on disk."""
    tiny = Changing(nodes=500, edges=2_000, snapshots=6).write()
    _go(tiny, PLACEMENTS[name]())  # loads and compiles what it needs
    graph = open_graph(path)
    before = memory("RssAnon")
    with Watched() as watched:
        tally = _go(graph, PLACEMENTS[name]())
    return tally.to_record() | {"anonymous_before": before, "anonymous_peak": watched.peak}


def _go(graph: DynamicGraph, placement: Placement) -> Tally:
    """Snapshot by snapshot; nodes of these graphs are always present."""
    tally, stores, last = Tally(), [Store(graph.num_nodes) for _ in range(RANKS)], None
    began = perf_counter()
    owners_of = _owners_of(graph, placement)
    tally.place_s.append(perf_counter() - began)
    for snapshot in graph:
        began = perf_counter()
        owner = owners_of(snapshot)
        placed = perf_counter()
        arcs = key_arcs(snapshot.nodes, (snapshot.row_ptr, snapshot.col, None), graph.num_nodes, directed=True)
        for rank, store in enumerate(stores):
            store.add(snapshot, arcs, owner == rank)
        stored = perf_counter()
        tally.place_s.append(placed - began)
        tally.store_s.append(stored - placed)
        tally.store_bytes.append([store.nbytes for store in stores])
        tally.judge(snapshot, owner, last)
        last = owner
    return tally


def _owners_of(graph: DynamicGraph, placement: Placement) -> Callable[[Snapshot], IntArray]:
    """Who owns the cells of a snapshot: asked when it arrives, or known beforehand."""
    if isinstance(placement, StreamingPlacement):
        return placement.start(RANKS).place_next
    placed = placement.place(graph, [range(len(graph))], RANKS)
    return lambda snapshot: placed.owners(graph, snapshot.t)


class Watched:
    """Looks every few milliseconds how much anonymous memory this process has: the kernel keeps no peak of it."""

    def __init__(self, every_s: float = 0.01) -> None:
        self.peak = 0
        self._every_s, self._end = every_s, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._end.wait(self._every_s):
            self.peak = max(self.peak, memory("RssAnon"))

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self.peak = max(self.peak, memory("RssAnon"))


def partition(record: Record, quick: bool, scale: float) -> None:
    """All placements on both graphs."""
    found: dict[str, dict[str, Any]] = {}
    for name in GRAPHS[: 1 if quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            size = written(name, scale, path)
            runs: dict[str, list[dict[str, Any]]] = {placement: [] for placement in PLACEMENTS}
            for number in range(1 if quick else ROUNDS):
                for placement, mine in runs.items():
                    if number and placement in ONCE:
                        continue
                    mine.append(child(MODULE, "partition", path, placement))
                    took = f"{mine[-1]['place_s']:.2f} + {mine[-1]['store_s']:.2f} s"
                    print(f"{name} {placement}, round {number}: {took}", flush=True)
        found[name] = {"size": size, "placements": {each: _summary(mine) for each, mine in runs.items()}}
    record.samples["partition"] = found
    _show(found)
    _figures(record, found)


def written(name: str, scale: float, path: Path) -> dict[str, int]:
    """A published graph at a scale, on disk; how large it is."""
    whole = Changing.from_size(name)
    sizes = {"nodes": max(RANKS, round(scale * whole.nodes)), "edges": round(scale * whole.edges)}
    with DiskSink(path) as sink:
        graph = Changing.from_size(name, **sizes).write(sink)
    return {**sizes, "snapshots": len(graph), "features": whole.features}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of seconds; what is counted is the same in all rounds."""
    seconds = {kind: [each[kind] for each in runs] for kind in ("place_s", "store_s")}
    both = [place + store for place, store in zip(*seconds.values(), strict=True)]
    return {
        **runs[0],
        **{kind: statistics.median(each) for kind, each in seconds.items()},
        "seconds": statistics.median(both),
        "rounds": seconds,
        "anonymous_peak": max(each["anonymous_peak"] for each in runs),
    }


def _show(found: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            graph,
            name,
            f"{each['place_s']:.2f}",
            f"{each['store_s']:.2f}",
            f"{each['seconds']:.2f}",
            f"{each['cut']:.1%}",
            f"{each['moved']:.1%}",
            f"{each['balance']:.3f}",
            f"{each['store_bytes'] / 2**20:,.0f}",
            f"{each['anonymous_peak'] / 2**20:,.0f}",
        ]
        for graph, both in found.items()
        for name, each in both["placements"].items()
    ]
    counted = ("cut", "moved", "load max/mean", "store MiB", "peak MiB")
    table(["graph", "placement", "place s", "store s", "both", *counted], rows)


def _figures(record: Record, found: dict[str, dict[str, Any]]) -> None:
    """The worse of both graphs."""
    graphs = [both["placements"] for both in found.values()]
    record.figures["partition_s_500k"] = max(each["online"]["seconds"] for each in graphs)
    for other in ("metis", "hash"):
        ratios = [each["online"]["seconds"] / each[other]["seconds"] for each in graphs]
        record.figures[f"partition_vs_{other}"] = max(ratios)
    record.figures["fetched_vs_metis"] = max(each["online"]["fetched"] / each["metis"]["fetched"] for each in graphs)
