"""``describe``: exact statistics per snapshot and of the whole graph, as values that survive JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import PerCell, Static, describe_provider, find_stored
from strobe.graph.progress import OnProgress
from strobe.graph.snapshot import Snapshot
from strobe.graph.stats.churn import (
    EdgeList,
    EdgeMatch,
    NodeRows,
    SequenceCounter,
    SequenceStats,
    Turnover,
    match_edges,
    num_changed_rows,
)
from strobe.graph.stats.distributions import DegreeDistribution, Spread
from strobe.graph.storage import Time
from strobe.ops.sparse.csr import IntArray


@dataclass(frozen=True, kw_only=True)
class SnapshotStats:
    """Statistics of one snapshot, and its difference from the previous one (the first: from an empty graph).

    Churn compares distinct (source, destination) pairs, an undirected edge once, without weights. Fractions of nothing
    are 0, and two snapshots without edges are equal.
    """

    time: Time
    nodes: int
    edges: int  # an undirected edge once
    arcs: int
    self_loops: int
    parallel_edges: int  # edges beyond the first of their pair
    isolated: int  # nodes without any edge; a self-loop is one
    arrivals: int  # nodes never present before
    departures: int  # nodes of the previous snapshot that are absent now
    returns: int  # nodes present earlier, but not in the previous snapshot
    new_pairs: int
    dropped_pairs: int
    retained_pairs: int
    changed_rows: int  # stored feature rows of a delta
    full_bytes: int
    delta_bytes: int

    @property
    def load(self) -> int:
        """Work of a training pass: cells + arcs."""
        return self.nodes + self.arcs

    @property
    def new_share(self) -> float:
        """Fraction of this snapshot's pairs that the previous one lacks."""
        return _fraction(self.new_pairs, self.new_pairs + self.retained_pairs)

    @property
    def dropped_share(self) -> float:
        """Fraction of the previous pairs that this snapshot lacks."""
        return _fraction(self.dropped_pairs, self.dropped_pairs + self.retained_pairs)

    @property
    def jaccard(self) -> float:
        """Pairs in both snapshots over pairs in either."""
        union = self.new_pairs + self.dropped_pairs + self.retained_pairs
        return self.retained_pairs / union if union else 1.0


@dataclass(frozen=True, kw_only=True)
class GraphStats:
    """Statistics of a whole graph; ``describe`` documents how bytes are counted."""

    num_nodes: int
    directed: bool
    weighted: bool
    features: str | None  # "16 per cell", "2 derived", …
    snapshots: tuple[SnapshotStats, ...]
    degrees: DegreeDistribution
    sequences: SequenceStats

    @property
    def num_snapshots(self) -> int:
        return len(self.snapshots)

    @property
    def num_cells(self) -> int:
        return sum(self.series("nodes"))

    @property
    def num_edges(self) -> int:
        return sum(self.series("edges"))

    @property
    def num_arcs(self) -> int:
        return sum(self.series("arcs"))

    @property
    def full_bytes(self) -> int:
        return sum(self.series("full_bytes"))

    @property
    def delta_bytes(self) -> int:
        return sum(self.series("delta_bytes"))

    @property
    def delta_share(self) -> float:
        """Bytes as deltas over bytes in full; 1 for a graph without bytes."""
        return self.delta_bytes / self.full_bytes if self.full_bytes else 1.0

    @property
    def shared_pairs(self) -> float | None:
        """Shared pairs over pairs in either, summed over adjacent snapshots; None without any."""
        later = self.snapshots[1:]
        retained = sum(s.retained_pairs for s in later)
        union = retained + sum(s.new_pairs + s.dropped_pairs for s in later)
        return retained / union if union else None

    @property
    def edge_spread(self) -> Spread:
        """Imbalance of snapshots in edges."""
        return Spread.from_values(self.series("edges"))

    @property
    def load_spread(self) -> Spread:
        """Imbalance of snapshots in cells + arcs."""
        return Spread.from_values(self.series("load"))

    def series(self, name: str) -> list[Any]:
        """Return one field or property of every snapshot, in order of time."""
        return [getattr(snapshot, name) for snapshot in self.snapshots]

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, without NaN or infinity; values per snapshot are one list per name."""
        totals = ("num_snapshots", "num_cells", "num_edges", "num_arcs", "full_bytes", "delta_bytes", "shared_pairs")
        return {
            **{name: getattr(self, name) for name in ("num_nodes", "directed", "weighted", "features", *totals)},
            "degrees": asdict(self.degrees),
            "sequences": asdict(self.sequences),
            "edge_spread": asdict(self.edge_spread),
            "load_spread": asdict(self.load_spread),
            "snapshots": {name: self.series(name) for name in (*SnapshotStats.__dataclass_fields__, *_DERIVED_FIELDS)},
        }


_DERIVED_FIELDS = ("load", "new_share", "dropped_share", "jaccard")


def _fraction(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def describe(graph: DynamicGraph, on_progress: OnProgress | None = None) -> GraphStats:
    """Read every snapshot once and return exact statistics.

    Bytes *in full*: for every snapshot the ids of its nodes (unless all are present) and its CSR (row pointers,
    columns, weights) as stored, counted in the first of the snapshots that share them, and the feature row of every
    cell. Bytes *as deltas*: the first snapshot in full; for every later one the ids of nodes that came or left, both
    ends of each deleted edge, both ends and the weight of each edge that is new or has another weight, and feature rows
    that differ in any bit from the previous snapshot's. Of parallel edges the n-th is compared with the n-th. Features
    per node count once, in the first snapshot; derived features, labels and names are not counted.

    Memory: the edges of two snapshots (9 bytes each, and their weights), their feature rows where a view copies them, 9
    bytes per node, and a few arrays of one snapshot's nodes. Time: linear in cells and arcs.

    Args:
        graph: the graph to describe.
        on_progress: called with (snapshots done, number of snapshots).
    """
    survey = _SnapshotSurvey(graph)
    snapshots = []
    for snapshot in graph:
        snapshots.append(survey.add(snapshot))
        if on_progress is not None:
            on_progress(len(snapshots), len(graph))
    return GraphStats(
        num_nodes=graph.num_nodes,
        directed=graph.directed,
        weighted=graph.weighted,
        features=None if graph.features is None else " ".join(describe_provider(graph.features)),
        snapshots=tuple(snapshots),
        degrees=DegreeDistribution.from_counts(survey.cells_by_degree),
        sequences=survey.sequences.finish(),
    )


class _SnapshotSurvey:
    """State from one snapshot to the next."""

    def __init__(self, graph: DynamicGraph) -> None:
        self.cells_by_degree: IntArray = np.zeros(0, np.int64)
        self.sequences = SequenceCounter(graph.num_nodes)
        self._num_nodes = graph.num_nodes
        self._structures = graph.structures.tolist()
        self._seen: set[int] = set()
        self._carrier = find_stored(graph.features)
        self._edges: EdgeList | None = None
        self._rows: NodeRows | None = None

    def add(self, snapshot: Snapshot) -> SnapshotStats:
        before_now, degrees = self.cells_by_degree, snapshot.in_degree
        self.cells_by_degree = np.bincount(degrees, minlength=before_now.size)
        self.cells_by_degree[: before_now.size] += before_now
        turnover = self.sequences.add(snapshot.nodes)
        before, edges, match = self._next_edges(snapshot)
        changed = self._changed_rows(snapshot)
        full = self._full_bytes(snapshot)
        return SnapshotStats(
            time=snapshot.time,
            nodes=snapshot.num_nodes,
            edges=snapshot.num_edges,
            arcs=snapshot.num_arcs,
            self_loops=edges.num_self_loops,
            parallel_edges=int(edges.arcs.keys.size) - edges.num_distinct,
            isolated=edges.num_isolated,
            **turnover._asdict(),
            new_pairs=edges.num_distinct - match.distinct,
            dropped_pairs=0 if before is None else before.num_distinct - match.distinct,
            retained_pairs=match.distinct,
            changed_rows=changed,
            full_bytes=full,
            delta_bytes=full if before is None else self._delta_bytes(snapshot, before, match, turnover, changed),
        )

    def _next_edges(self, snapshot: Snapshot) -> tuple[EdgeList | None, EdgeList, EdgeMatch]:
        """Return the edges of the previous snapshot, those of this one, and what they share."""
        before, structures, t = self._edges, self._structures, snapshot.t
        if before is not None and structures[t - 1] == structures[t]:
            return before, before, EdgeMatch(before.num_distinct, int(before.arcs.keys.size), 0)
        self._edges = edges = EdgeList.from_snapshot(snapshot, self._num_nodes)
        return before, edges, EdgeMatch(0, 0, 0) if before is None else match_edges(before, edges)

    def _changed_rows(self, snapshot: Snapshot) -> int:
        if not isinstance(self._carrier, PerCell):
            return 0
        rows = snapshot.nodes, self._carrier.rows(snapshot)
        before, self._rows = self._rows, rows
        return snapshot.num_nodes if before is None else num_changed_rows(before, rows)

    def _full_bytes(self, snapshot: Snapshot) -> int:
        arrays: list[Array] = [snapshot.row_ptr, snapshot.col]
        arrays += [] if snapshot.has_all_nodes else [snapshot.nodes]
        arrays += [] if snapshot.weight is None else [snapshot.weight]
        structure = self._structures[snapshot.t]
        stored = 0 if structure in self._seen else sum(int(array.nbytes) for array in arrays)
        self._seen.add(structure)
        if isinstance(self._carrier, Static):
            return stored + (int(self._carrier.values.nbytes) if snapshot.t == 0 else 0)
        return stored + snapshot.num_nodes * self._row_bytes

    def _delta_bytes(
        self, snapshot: Snapshot, before: EdgeList, match: EdgeMatch, turnover: Turnover, changed: int
    ) -> int:
        id_bytes = snapshot.nodes.itemsize
        weight_bytes = 0 if snapshot.weight is None else snapshot.weight.itemsize
        inserted = snapshot.num_edges - match.kept + match.reweighted
        deleted = int(before.arcs.keys.size) - match.kept
        edges = inserted * (2 * id_bytes + weight_bytes) + deleted * 2 * id_bytes
        return edges + sum(turnover) * id_bytes + changed * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self._carrier.row_bytes if isinstance(self._carrier, PerCell) else 0
