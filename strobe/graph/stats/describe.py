"""One pass over a graph that finds out everything ``strobe inspect`` shows."""

from __future__ import annotations

from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Array, PerCell, Static, given, size_and_origin
from strobe.graph.progress import OnProgress
from strobe.graph.snapshot import Snapshot
from strobe.graph.stats.churn import CellRows, EdgeList, EdgeMatch, match_edges, num_changed_rows
from strobe.graph.stats.degrees import DegreeLaw, DegreeTally
from strobe.graph.stats.sequences import SequenceTally, Turnover
from strobe.graph.stats.values import GraphStats, SnapshotStats


def describe(graph: DynamicGraph, on_progress: OnProgress | None = None) -> GraphStats:
    """Reads every snapshot once and gives exact numbers; ``on_progress`` gets (snapshots done, snapshots).

    Bytes *in full*: for every snapshot the ids of its nodes (unless all are present), its CSR (row pointers,
    columns, weights) as stored, and the feature row of every cell. Bytes *as deltas*: the first snapshot in
    full; for every later one the ids of nodes that came or left, both ends of each edge that was deleted,
    both ends and the weight of each edge that was inserted or has another weight, and the feature rows that
    are not, to the bit, what the same node had in the snapshot before. Of parallel edges the n-th is compared
    with the n-th. Features per node count once for the graph, in the first snapshot; derived features cost
    nothing; labels and names are not counted.

    Memory: the edges of two snapshots (8 bytes each, and their weights), their feature rows where a view copies
    them, 9 bytes a node, and a few arrays of one snapshot's nodes. Time: linear in cells and arcs, but for one
    binary search per edge.
    """
    survey = _Survey(graph)
    snapshots = []
    for snapshot in graph:
        snapshots.append(survey.add(snapshot))
        if on_progress is not None:
            on_progress(len(snapshots), len(graph))
    return GraphStats(
        num_nodes=graph.num_nodes,
        directed=graph.directed,
        weighted=graph.weighted,
        features=None if graph.features is None else " ".join(size_and_origin(graph.features)),
        snapshots=tuple(snapshots),
        degrees=DegreeLaw.of(survey.degrees.values, survey.degrees.counts),
        sequences=survey.sequences.finish(),
    )


class _Survey:
    """What must be remembered from one snapshot to the next."""

    def __init__(self, graph: DynamicGraph) -> None:
        self.degrees = DegreeTally()
        self.sequences = SequenceTally(graph.num_nodes)
        self._num_nodes = graph.num_nodes
        self._carrier = given(graph.features)
        self._edges: EdgeList | None = None
        self._rows: CellRows | None = None

    def add(self, snapshot: Snapshot) -> SnapshotStats:
        self.degrees.add(snapshot.in_degree)
        turnover = self.sequences.add(snapshot.nodes)
        edges = EdgeList.of(snapshot, self._num_nodes)
        before, self._edges = self._edges, edges
        match = EdgeMatch(0, 0, 0) if before is None else match_edges(before, edges)
        changed = self._changed_rows(snapshot)
        full = self._full_bytes(snapshot)
        return SnapshotStats(
            time=snapshot.time,
            nodes=snapshot.num_nodes,
            edges=snapshot.num_edges,
            arcs=snapshot.num_arcs,
            self_loops=edges.num_self_loops,
            parallel_edges=int(edges.key.size) - edges.num_distinct,
            isolated=edges.num_isolated,
            arrivals=turnover.arrivals,
            departures=turnover.departures,
            returns=turnover.returns,
            new_pairs=edges.num_distinct - match.distinct,
            dropped_pairs=0 if before is None else before.num_distinct - match.distinct,
            kept_pairs=match.distinct,
            changed_rows=changed,
            full_bytes=full,
            delta_bytes=full if before is None else self._delta_bytes(snapshot, before, match, turnover, changed),
        )

    def _changed_rows(self, snapshot: Snapshot) -> int:
        if not isinstance(self._carrier, PerCell):
            return 0
        rows = CellRows(snapshot.nodes, self._carrier.rows(snapshot))
        before, self._rows = self._rows, rows
        return snapshot.num_nodes if before is None else num_changed_rows(before, rows)

    def _full_bytes(self, snapshot: Snapshot) -> int:
        arrays: list[Array] = [snapshot.row_ptr, snapshot.col]
        arrays += [] if snapshot.has_all_nodes else [snapshot.nodes]
        arrays += [] if snapshot.weight is None else [snapshot.weight]
        stored = sum(int(array.nbytes) for array in arrays)
        if isinstance(self._carrier, Static):
            return stored + (int(self._carrier.values.nbytes) if snapshot.t == 0 else 0)
        return stored + snapshot.num_nodes * self._row_bytes

    def _delta_bytes(
        self, snapshot: Snapshot, before: EdgeList, match: EdgeMatch, turnover: Turnover, changed: int
    ) -> int:
        id_bytes = snapshot.nodes.itemsize
        weight_bytes = 0 if snapshot.weight is None else snapshot.weight.itemsize
        inserted = snapshot.num_edges - match.kept + match.reweighted
        deleted = int(before.key.size) - match.kept
        edges = inserted * (2 * id_bytes + weight_bytes) + deleted * 2 * id_bytes
        return edges + sum(turnover) * id_bytes + changed * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self._carrier.row_bytes if isinstance(self._carrier, PerCell) else 0
