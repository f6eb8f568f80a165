"""How many bytes do differences spare, beside full snapshots? Counted, so that no day and no machine matters.

A window of w snapshots slides over a graph. *In full* is what a trainer reads: ids of nodes unless all are there, rows
of features, and arcs by destination, of which an undirected edge is two. *As differences* is all that
``strobe.store`` allocates. Both at their peak. Beside that: the share of the median window; with only features, or only
edges, as differences; and what differences spare beside snapshots that are each kept alone in the same packing, where
an edge is one arc, too, and segments of zeros are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import strobe
from benchmarks.record import Record, table
from benchmarks.window_bytes import window_bytes
from strobe.errors import StrobeError
from strobe.graph import Degrees, DynamicGraph, FeatureProvider, PerCell, Snapshot
from strobe.graph.arrays import Array
from strobe.graph.synthetic import Changing

WINDOW, SEGMENTS = 4, 4
"""The paper's."""

SETS = ("uci_dysat", "enron_dysat", "as733", "icews18")
ONE_HOT, DEGREES = "one-hot", "degrees"
CHANGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SIZES = ("10k-s", "10k-m", "10k-d", "100k-s", "100k-m", "100k-d")
SWEPT = "100k-s"


SAVED = ("saved", "saved_median", "saved_features_only", "saved_edges_only", "saved_beside_alone")


@dataclass(frozen=True, eq=False)
class AsIfStored(PerCell):
    """Rows that are made when they are asked for, taken to be stored for every cell."""

    made: Callable[[Snapshot], Array]
    cells: int

    @property
    def num_rows(self) -> int:
        return self.cells

    def rows(self, snapshot: Snapshot) -> Array:
        return self.made(snapshot)


def one_hot(graph: DynamicGraph) -> DynamicGraph:
    """Every node has a column of its own: what a graph without features has in DySAT."""

    def made(snapshot: Snapshot) -> Array:
        x: Array = np.zeros((snapshot.num_nodes, graph.num_nodes), np.float32)
        x[np.arange(snapshot.num_nodes), snapshot.nodes] = 1
        return x

    return graph.with_features(_stored(graph, graph.num_nodes, made))


def degrees(graph: DynamicGraph) -> DynamicGraph:
    """log(1 + in-degree), log(1 + out-degree)."""
    return graph.with_features(_stored(graph, 2, Degrees(log=True).rows))


FEATURES: dict[str, Callable[[DynamicGraph], DynamicGraph]] = {ONE_HOT: one_hot, DEGREES: degrees}


def _stored(graph: DynamicGraph, width: int, made: Callable[[Snapshot], Array]) -> FeatureProvider:
    return AsIfStored(np.empty((0, width), np.float32), made, graph.num_cells)


@dataclass(frozen=True)
class Peak:
    """Peaks of windows, in bytes: in full, as differences, with one of both only, and each snapshot alone. And the
    share that is spared in the median window."""

    window: int
    segments: int
    full: int
    delta: int
    features_only: int
    edges_only: int
    alone: int
    saved_median: float

    @classmethod
    def of(cls, graph: DynamicGraph, window: int = WINDOW, segments: int = SEGMENTS) -> Peak:
        window = min(window, len(graph))
        found = list(window_bytes(graph, window, segments))
        single = np.array([each.delta for each in window_bytes(graph, 1, segments)])
        return cls(
            window=window,
            segments=segments,
            full=max(each.full for each in found),
            delta=max(each.delta for each in found),
            features_only=max(each.features_delta + each.arcs_full for each in found),
            edges_only=max(each.features_full + each.arcs_delta for each in found),
            saved_median=statistics.median(each.saved for each in found),
            alone=int(np.convolve(single, np.ones(window, np.int64), "valid").max()),
        )

    def to_record(self) -> dict[str, Any]:
        """For the record: bytes, and shares that are spared."""
        return asdict(self) | {
            "saved": 1 - self.delta / self.full,
            "saved_features_only": 1 - self.features_only / self.full,
            "saved_edges_only": 1 - self.edges_only / self.full,
            "saved_beside_alone": 1 - self.delta / self.alone,
        }


def storage(record: Record, quick: bool, scale: float) -> None:
    """Real graphs, generated ones, and what windows and segments do."""
    samples = {"real": _real(record, quick), "synthetic": dict(_synthetic(scale)), "changes": dict(_changes(scale))}
    samples["settings"] = dict(_settings(scale))
    record.samples["storage"] = samples
    for kind, found in samples.items():
        rows = [
            [name, each["window"], each["segments"], *(f"{each[column]:.1%}" for column in SAVED)]
            for name, each in found.items()
        ]
        table([kind, "window", "segments", "saved", "median", "features only", "edges only", "beside alone"], rows)
    _figures(record, samples)


def _real(record: Record, quick: bool) -> dict[str, Any]:
    """By set and features: windows of four, and all snapshots in one where they are few."""
    found = {}
    for name in SETS[: 1 if quick else None]:
        try:
            graph = strobe.load(name)
        except StrobeError as error:
            record.missing[f"storage {name}"] = str(error).splitlines()[0]
            continue
        for kind, with_features in FEATURES.items():
            for window in (WINDOW, len(graph)) if len(graph) < 20 else (WINDOW,):
                peak = Peak.of(with_features(graph), window)
                found[f"{name}/{kind}/{window}"] = peak.to_record() | {
                    "nodes": graph.num_nodes,
                    "snapshots": len(graph),
                }
    return found


def scaled(size: str, scale: float, **changes: Any) -> DynamicGraph:
    """One of the published sizes at a scale."""
    whole = Changing.from_size(size)
    sizes = {"nodes": max(2, round(scale * whole.nodes)), "edges": round(scale * whole.edges)}
    return Changing.from_size(size, **sizes, **changes).write()


def _synthetic(scale: float) -> Iterator[tuple[str, Any]]:
    for size in SIZES:
        yield size, Peak.of(scaled(size, scale)).to_record()


def _changes(scale: float) -> Iterator[tuple[str, Any]]:
    """More or fewer features change, or edges."""
    for kind in ("feature_change", "edge_change"):
        for share in CHANGES:
            yield f"{kind}/{share}", Peak.of(scaled(SWEPT, scale, **{kind: share})).to_record()


def _settings(scale: float) -> Iterator[tuple[str, Any]]:
    """Other windows and segments, 30% changed."""
    graph = scaled("10k-s", scale, snapshots=12)
    for window, segments in ((2, 4), (4, 1), (4, 2), (4, 4), (4, 8), (8, 4)):
        yield f"{window}/{segments}", Peak.of(graph, window, segments).to_record()


def _figures(record: Record, samples: dict[str, dict[str, Any]]) -> None:
    real = {key: each["saved"] for key, each in samples["real"].items() if key.endswith(f"/{WINDOW}")}
    for name in SETS:
        if f"{name}/{ONE_HOT}/{WINDOW}" in real:
            figure = f"storage_saved_{name.removesuffix('_dysat')}"
            record.figures[figure] = real[f"{name}/{ONE_HOT}/{WINDOW}"]
            record.figures[f"{figure}_degrees"] = real[f"{name}/{DEGREES}/{WINDOW}"]
    if real:
        record.figures["storage_saved_best"] = max(real.values())
    else:
        record.missing["storage_saved_best"] = "no real graph: set STROBE_DATA"
    record.figures["storage_saved_synthetic_30"] = samples["synthetic"]["10k-s"]["saved"]
    record.figures["storage_saved_synthetic_30_dense"] = samples["synthetic"]["10k-d"]["saved"]
    for share in (0.1, 0.7):
        record.figures[f"storage_saved_changed_{share:.0%}"] = samples["changes"][f"feature_change/{share}"]["saved"]
