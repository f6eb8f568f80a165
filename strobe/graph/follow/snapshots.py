"""Following a graph: its snapshots arrive one after the other."""

from __future__ import annotations

from typing import Any

from strobe.errors import OptionError
from strobe.graph.build import Edges
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Carrier, PerCell, given, resting_on
from strobe.graph.follow.base import Following
from strobe.graph.growing import Growing
from strobe.graph.snapshot import Snapshot


class FollowingGraph(Following):
    """The snapshots of another graph: one more with every poll, or, of one that grows, all that are there.

    Nodes keep their numbers; how many are known grows with the largest one that was present. Values per node are
    written with every snapshot.
    """

    def __init__(self, source: DynamicGraph | Growing, graph: Growing) -> None:
        super().__init__(graph)
        self._source = source
        built, there = graph.open().times, self._snapshots().times
        if there[: len(built)] != built:
            raise OptionError(f"{graph.path} was begun with another graph: its first snapshots are others")
        self.ended = isinstance(source, DynamicGraph) and len(built) == len(there)

    def poll(self, *, ended: bool = False) -> int:
        snapshots, done = self._snapshots(), len(self.graph)
        grows = isinstance(self._source, Growing)
        for t in range(done, len(snapshots) if grows else min(done + 1, len(snapshots))):
            self._append(snapshots, t)
        self.ended = ended if grows else len(self.graph) == len(snapshots)
        return len(self.graph)

    def _snapshots(self) -> DynamicGraph:
        return self._source.open() if isinstance(self._source, Growing) else self._source

    def _append(self, source: DynamicGraph, t: int) -> None:
        snapshot, before = source[t], self.graph.num_nodes
        known = self._known(source, snapshot)
        self.graph.append(
            Edges(*snapshot.edges()),
            nodes=snapshot.nodes,
            time=snapshot.time,
            x=_rows(source.features, snapshot),
            y=_rows(source.labels, snapshot),
            names=None if source.names is None else source.names[before:known],
            num_nodes=known,
        )

    def _known(self, source: DynamicGraph, snapshot: Snapshot) -> int:
        """How many nodes are known after a snapshot; after the last one of a graph that has ended, all."""
        if isinstance(self._source, Growing):
            return self._source.parts[snapshot.t].num_nodes
        if snapshot.t == len(source) - 1:
            return source.num_nodes
        return max(self.graph.num_nodes, int(snapshot.nodes.max(initial=-1)) + 1)


def made_like(source: DynamicGraph | Growing) -> dict[str, Any]:
    """What a growing graph must be created with to take the snapshots of another."""
    like = source.open() if isinstance(source, Growing) else source
    return {
        "directed": like.directed,
        "weighted": like.weighted,
        "features": _with_the_snapshots(like.features),
        "labels": _with_the_snapshots(like.labels),
    }


def _with_the_snapshots(carrier: Carrier | None) -> Carrier | None:
    bottom = given(carrier)
    return carrier if carrier is None or bottom is None else resting_on(carrier, PerCell(bottom.values[:0]))


def _rows(carrier: Carrier | None, snapshot: Snapshot) -> Any:
    bottom = given(carrier)
    return None if bottom is None else bottom.rows(snapshot)
