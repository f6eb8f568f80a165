"""The dynamic graph: immutable snapshots over one id space of nodes, sliced and restricted by views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import as_ids, read_only
from strobe.graph.features import FeatureProvider, PerCell, describe_provider, find_stored
from strobe.graph.names import NodeNames
from strobe.graph.snapshot import Snapshot
from strobe.graph.storage import GraphStorage, Time
from strobe.ops.sparse.csr import IntArray, expand_rows, select_csr_rows


@dataclass(frozen=True, eq=False)
class DynamicGraph:
    """T snapshots over nodes 0..N-1. Nodes come, go and return; edges, features and labels change.

    ``graph[t]`` is a snapshot, ``graph[a:b]`` a range of snapshots, ``graph.subset(nodes)`` the graph on some nodes.
    Views copy nothing until a snapshot is read, and node ids stay the same. Make a graph with ``from_edges`` and its
    relatives, ``strobe.ingest`` or ``strobe.open``.
    """

    storage: GraphStorage
    features: FeatureProvider | None = None
    labels: FeatureProvider | None = None
    names: NodeNames | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    window: range | None = None
    node_subset: IntArray | None = None
    path: Path | None = field(default=None, init=False)
    """Directory of the saved graph; None for graphs in memory, views and graphs with other features or labels."""
    digest: str | None = field(default=None, init=False)
    """Digest of the saved graph (``strobe.graph.digest``); None where ``path`` is, and for growing graphs."""

    @property
    def num_nodes(self) -> int:
        """Size of the id space."""
        return self.storage.num_nodes

    @property
    def num_snapshots(self) -> int:
        return len(self._window)

    @property
    def directed(self) -> bool:
        return self.storage.directed

    @property
    def weighted(self) -> bool:
        return self.storage.weighted

    @cached_property
    def times(self) -> tuple[Time, ...]:
        """Labels of the snapshots: start times, or indices."""
        return tuple(self.storage.times[t] for t in self._window)

    @cached_property
    def cell_ptr(self) -> IntArray:
        """Offsets of the snapshots' cells, [T + 1], int64; cells are numbered t-major."""
        if self.node_subset is None:
            sizes = np.diff(self.storage.cell_ptr)[self._slice]
        else:
            subset = self.node_subset
            sizes = self._count_by_structure(lambda t: self._subset_size_at(self._window[t], subset))
        return read_only(np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))))

    @property
    def num_cells(self) -> int:
        return int(self.cell_ptr[-1])

    @cached_property
    def structures(self) -> IntArray:
        """Structure of each snapshot, [T]: snapshots with equal numbers have equal nodes, edges and weights."""
        stored = self.storage.structure
        return read_only(np.arange(len(self.storage.times))[self._slice] if stored is None else stored[self._slice])

    @property
    def num_structures(self) -> int:
        """Number of structures: 1 for a static graph, at most one per snapshot."""
        return len(self) if self.storage.structure is None else int(np.unique(self.structures).size)

    @cached_property
    def num_edges(self) -> int:
        """Number of edges of all snapshots; an undirected edge counts once per snapshot."""
        if self.node_subset is None:
            return int(self.storage.edge_count[self._slice].sum())
        return int(self._count_by_structure(lambda t: self[t].num_edges).sum())

    @cached_property
    def num_arcs(self) -> int:
        """Number of stored arcs of all snapshots."""
        if self.node_subset is None:
            return int(np.diff(self.storage.arc_ptr)[self._slice].sum())
        return int(self._count_by_structure(lambda t: self[t].num_arcs).sum())

    def cell(self, node: int, t: int) -> int:
        """Return the number of the cell (node, t).

        Raises:
            InputError: the node is absent from snapshot t.
        """
        snapshot = self[t]
        at = int(np.searchsorted(snapshot.nodes, node))
        if at == snapshot.num_nodes or snapshot.nodes[at] != node:
            raise InputError(f"node {node} is not present in snapshot {snapshot.t}")
        return int(self.cell_ptr[snapshot.t]) + at

    def with_features(self, features: FeatureProvider | None) -> DynamicGraph:
        """Return this graph with other features; a stored array must fit the whole storage."""
        if features is not None and len(features.shape) != 1:
            raise InputError(f"a cell's features must be one row of numbers, not of shape {features.shape}")
        return replace(self, features=self._check_num_rows(features, "features"))

    def with_labels(self, labels: FeatureProvider | None) -> DynamicGraph:
        """Return this graph with other labels."""
        if labels is not None and len(labels.shape) > 1:
            raise InputError(f"a cell's label must be one number or one row of them, not of shape {labels.shape}")
        return replace(self, labels=self._check_num_rows(labels, "labels"))

    def subset(self, nodes: Iterable[int] | IntArray) -> DynamicGraph:
        """Return the view of these nodes and the edges among them. Ids do not change."""
        chosen = np.unique(as_ids(nodes if isinstance(nodes, np.ndarray) else list(nodes), "nodes"))
        if chosen.size and (chosen[0] < 0 or chosen[-1] >= self.num_nodes):
            wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
            raise InputError(f"node {wrong} is not one of the graph's {self.num_nodes:,} nodes, numbered from 0")
        if self.node_subset is not None:
            chosen = chosen[np.isin(chosen, self.node_subset)]
        return replace(self, node_subset=read_only(chosen))

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> DynamicGraph:
        """Write the graph, or the part that this view shows, to a directory and open it from there.

        Args:
            path: target directory.
            overwrite: replace a graph that is already there.
        """
        from strobe.graph.disk.directory import save

        return save(self, path, overwrite=overwrite)

    def __len__(self) -> int:
        return self.num_snapshots

    def __iter__(self) -> Iterator[Snapshot]:
        return (self[t] for t in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> Snapshot: ...
    @overload
    def __getitem__(self, key: slice) -> DynamicGraph: ...
    def __getitem__(self, key: int | slice) -> Snapshot | DynamicGraph:
        if isinstance(key, slice):
            if key.step is not None and key.step < 1:
                raise OptionError(f"a slice in time needs a positive step, not {key.step}")
            return replace(self, window=self._window[key])
        t = operator.index(key)
        if not -len(self) <= t < len(self):
            raise IndexError(f"snapshot {t} of a graph with {len(self)}")
        t %= len(self)
        whole = self._stored_snapshot(t)
        return whole if self.node_subset is None else _restrict(whole, self.node_subset)

    def __eq__(self, other: object) -> bool:
        """Return whether ids, nodes, edges, weights, features and labels are equal in every snapshot."""
        if not isinstance(other, DynamicGraph):
            return NotImplemented
        return (
            self.num_nodes == other.num_nodes
            and self.directed == other.directed
            and self.weighted == other.weighted
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        ends = " … ".join(str(time) for time in self.times[:: max(1, len(self) - 1)])
        span = f" ({ends})" if ends else ""
        parts = [_pluralize(self.num_nodes, "node"), _pluralize(len(self), "snapshot") + span]
        if self.node_subset is None:
            parts += [_pluralize(self.num_cells, "cell"), _pluralize(self.num_edges, "edge")]
        else:
            parts += [f"view of {_pluralize(self.node_subset.size, 'node')}"]
        parts += ["directed" if self.directed else "undirected", "weighted" if self.weighted else "unweighted"]
        for what, carrier in (("feature", self.features), ("label", self.labels)):
            if carrier is not None:
                size, origin = describe_provider(carrier)
                parts += [f"{size} {what if size == '1' else what + 's'} {origin}"]
        return f"DynamicGraph({', '.join(parts)})"

    @property
    def _window(self) -> range:
        return range(len(self.storage.times)) if self.window is None else self.window

    @property
    def _slice(self) -> slice:
        window = self._window
        return slice(window.start, window.stop, window.step)

    def _count_by_structure(self, count: Callable[[int], int]) -> IntArray:
        """Return ``count(t)`` of every snapshot, int64, computed once per structure."""
        _, first, structure = np.unique(self.structures, return_index=True, return_inverse=True)
        return np.array([count(t) for t in first.tolist()], np.int64)[structure]

    def _subset_size_at(self, t: int, subset: IntArray) -> int:
        """Return how many nodes of the subset stored snapshot t has."""
        if int(self.storage.cell_ptr[t + 1] - self.storage.cell_ptr[t]) == self.num_nodes:
            return int(subset.size)
        return int(np.isin(self.storage.nodes(t), subset).sum())

    def _stored_snapshot(self, t: int) -> Snapshot:
        store, at = self.storage, self._window[t]
        cells = slice(int(store.cell_ptr[at]), int(store.cell_ptr[at + 1]))
        row_ptr, col, weight = store.csr(at)
        return Snapshot(
            t=t,
            time=store.times[at],
            nodes=store.nodes(at),
            row_ptr=row_ptr,
            col=col,
            weight=weight,
            num_edges=int(store.edge_count[at]),
            directed=store.directed,
            has_all_nodes=cells.stop - cells.start == store.num_nodes,
            stored_cells=cells,
            features=self.features,
            labels=self.labels,
        )

    def _check_num_rows(self, provider: FeatureProvider | None, what: str) -> FeatureProvider | None:
        bottom = find_stored(provider)
        if bottom is None:
            return provider
        per_cell = isinstance(bottom, PerCell)
        rows = int(self.storage.cell_ptr[-1]) if per_cell else self.num_nodes
        if bottom.num_rows != rows:
            unit = "cells" if per_cell else "nodes"
            raise InputError(f"{what} have {bottom.num_rows:,} rows, the graph has {rows:,} {unit}")
        return provider


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _restrict(snapshot: Snapshot, subset: IntArray) -> Snapshot:
    """Return the snapshot on the nodes of the subset and the arcs among them."""
    cells = subset.astype(np.int64) if snapshot.has_all_nodes else np.flatnonzero(np.isin(snapshot.nodes, subset))
    place = np.full(snapshot.num_nodes, -1, snapshot.col.dtype)
    place[cells] = np.arange(cells.size, dtype=place.dtype)
    row_ptr, col, weight = select_csr_rows((snapshot.row_ptr, snapshot.col, snapshot.weight), cells, place)
    assert isinstance(snapshot.stored_cells, slice)
    arcs, loops = int(col.size), int((expand_rows(row_ptr) == col).sum())
    return replace(
        snapshot,
        nodes=read_only(snapshot.nodes[cells]),
        row_ptr=read_only(row_ptr),
        col=read_only(col),
        weight=None if weight is None else read_only(weight),
        num_edges=arcs if snapshot.directed else (arcs + loops) // 2,
        has_all_nodes=False if cells.size < snapshot.num_nodes else snapshot.has_all_nodes,
        stored_cells=cells + snapshot.stored_cells.start,
    )
