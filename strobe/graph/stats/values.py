"""What ``describe`` finds out: numbers per snapshot and for the whole graph, as values that survive JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from strobe.graph.stats.degrees import DegreeLaw
from strobe.graph.stats.sequences import SequenceStats
from strobe.graph.stats.spread import Spread
from strobe.graph.storage import Time


@dataclass(frozen=True, kw_only=True)
class SnapshotStats:
    """One snapshot, and how it differs from the one before. Before the first there is an empty graph.

    Churn compares edges as distinct (source, destination) pairs, an undirected edge once; weights do not
    matter to it. Shares of nothing are 0, and two snapshots without edges are alike.
    """

    time: Time
    nodes: int
    edges: int  # an undirected edge once
    arcs: int
    self_loops: int
    parallel_edges: int  # edges beyond the first of their pair
    isolated: int  # nodes without any edge; a self-loop is one
    arrivals: int  # nodes never present before
    departures: int  # nodes of the snapshot before that are absent now
    returns: int  # nodes present once, but not in the snapshot before
    new_pairs: int
    dropped_pairs: int
    kept_pairs: int
    changed_rows: int  # stored feature rows that a delta holds
    full_bytes: int
    delta_bytes: int

    @property
    def load(self) -> int:
        """Work of a training pass: cells + arcs."""
        return self.nodes + self.arcs

    @property
    def new_share(self) -> float:
        """The share of this snapshot's pairs that the one before lacks."""
        return _share(self.new_pairs, self.new_pairs + self.kept_pairs)

    @property
    def dropped_share(self) -> float:
        """The share of the pairs before that this snapshot lacks."""
        return _share(self.dropped_pairs, self.dropped_pairs + self.kept_pairs)

    @property
    def jaccard(self) -> float:
        """Pairs in both over pairs in either."""
        union = self.new_pairs + self.dropped_pairs + self.kept_pairs
        return self.kept_pairs / union if union else 1.0


@dataclass(frozen=True, kw_only=True)
class GraphStats:
    """A whole graph in numbers; ``describe`` makes it and says how bytes are counted."""

    num_nodes: int
    directed: bool
    weighted: bool
    features: str | None  # "16 per cell", "2 derived", …
    snapshots: tuple[SnapshotStats, ...]
    degrees: DegreeLaw
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
        """Pairs that neighbouring snapshots share over pairs in either, all neighbours together; None without any."""
        later = self.snapshots[1:]
        kept = sum(s.kept_pairs for s in later)
        union = kept + sum(s.new_pairs + s.dropped_pairs for s in later)
        return kept / union if union else None

    @property
    def edge_spread(self) -> Spread:
        """How uneven snapshots are in edges."""
        return Spread.of(self.series("edges"))

    @property
    def load_spread(self) -> Spread:
        """How uneven snapshots are in cells + arcs."""
        return Spread.of(self.series("load"))

    def series(self, name: str) -> list[Any]:
        """One field or property of every snapshot, in order of time."""
        return [getattr(snapshot, name) for snapshot in self.snapshots]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without NaN or infinity; what stands per snapshot is one list per name."""
        totals = ("num_snapshots", "num_cells", "num_edges", "num_arcs", "full_bytes", "delta_bytes", "shared_pairs")
        return {
            **{name: getattr(self, name) for name in ("num_nodes", "directed", "weighted", "features", *totals)},
            "degrees": asdict(self.degrees),
            "sequences": asdict(self.sequences),
            "edge_spread": asdict(self.edge_spread),
            "load_spread": asdict(self.load_spread),
            "snapshots": {name: self.series(name) for name in (*SnapshotStats.__dataclass_fields__, *_DERIVED)},
        }


_DERIVED = ("load", "new_share", "dropped_share", "jaccard")


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
