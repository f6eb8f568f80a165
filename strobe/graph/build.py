"""Builds dynamic graphs snapshot by snapshot, in memory or straight to disk: one code path for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.graph.dynamic import ARRAYS, DynamicGraph, Storage, Time
from strobe.graph.edge_sort import EdgeSorter
from strobe.graph.features import Array, Carrier, PerCell, as_features, as_labels, from_recipe, given
from strobe.graph.names import NodeNames
from strobe.ops.csr import FloatArray, IntArray, Parallel, index_dtype, row_pointers

PARALLEL: tuple[Parallel, ...] = ("keep", "count", "sum", "last")


class Edges(NamedTuple):
    """Some edges of a snapshot by global node id, in any order."""

    src: npt.ArrayLike
    dst: npt.ArrayLike
    weight: npt.ArrayLike | None = None


class Sink(Protocol):
    """Where a graph's arrays go."""

    scratch_dir: Path | None

    def append(self, name: str, rows: Array) -> None:
        """Adds rows to the end of an array, which widens where they need it."""

    def arrays(self) -> dict[str, Array]:
        """Everything written so far, by name."""

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        """Seals the arrays and returns the graph over them."""


class MemorySink:
    """Keeps arrays in memory."""

    scratch_dir: Path | None = None

    def __init__(self) -> None:
        self._chunks: dict[str, list[Array]] = {}

    def append(self, name: str, rows: Array) -> None:
        self._chunks.setdefault(name, []).append(rows)

    def arrays(self) -> dict[str, Array]:
        joined = {name: np.concatenate(chunks) for name, chunks in self._chunks.items()}
        for array in joined.values():
            array.flags.writeable = False
        return joined

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        return graph


class GraphBuilder:
    """Takes snapshots in order of time and gives a dynamic graph.

    ``parallel`` says what repeated edges of a snapshot become: kept each, counted (the count is the
    weight), their weights summed, or the last one given. ``self_loops=False`` drops self-loops. Memory: one
    snapshot's nodes and, however many edges it has, a few sorted runs of them.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        *,
        num_nodes: int,
        directed: bool = True,
        weighted: bool = False,
        parallel: Parallel = "keep",
        self_loops: bool = True,
    ) -> None:
        if parallel not in PARALLEL:
            raise OptionError(f"parallel must be one of {', '.join(PARALLEL)}, not {parallel!r}")
        if parallel == "sum" and not weighted:
            raise OptionError("parallel='sum' needs edge weights; to count repeated edges use 'count'")
        if num_nodes < 0:
            raise OptionError(f"num_nodes must not be negative, it is {num_nodes}")
        self._sink: Sink = MemorySink() if sink is None else sink
        self._num_nodes = num_nodes
        self._directed = directed
        self._weighted_input = weighted
        self._weighted = weighted or parallel == "count"
        self._parallel: Parallel = parallel
        self._self_loops = self_loops
        self._times: list[Time] = []
        self._cell_ptr, self._arc_ptr, self._edge_count = [0], [0], list[int]()
        self._all_present = True
        self._carries: dict[str, bool] = {}

    @property
    def num_snapshots(self) -> int:
        return len(self._times)

    def add(
        self,
        edges: Edges | Iterable[Edges],
        *,
        nodes: npt.ArrayLike | None = None,
        time: Time | None = None,
        x: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
    ) -> None:
        """Adds the next snapshot. ``nodes`` are the present ones in any order (None: all of them); ``x`` and
        ``y`` are rows in the order of ``nodes``; edges may come in parts."""
        t = self.num_snapshots
        present, order = self._presence(nodes, t)
        size = self._num_nodes if present is None else int(present.size)
        row_ptr, loops = self._write_edges([edges] if isinstance(edges, Edges) else edges, present, size, t)
        self._sink.append("row_ptr", row_ptr)
        self._write_presence(present)
        self._write_values("x", x, size, order, t)
        self._write_values("y", y, size, order, t)
        arcs = int(row_ptr[-1])
        self._times.append(t if time is None else time)
        self._cell_ptr.append(self._cell_ptr[-1] + size)
        self._arc_ptr.append(self._arc_ptr[-1] + arcs)
        self._edge_count.append(arcs if self._directed else (arcs + loops) // 2)

    def finish(
        self,
        *,
        features: Carrier | None = None,
        labels: Carrier | None = None,
        names: NodeNames | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> DynamicGraph:
        """The graph. ``features`` and ``labels`` stand in for an ``x`` and ``y`` that no snapshot was given."""
        sink = self._sink
        for name in ("cell_ptr", "arc_ptr", "edge_count"):
            sink.append(name, np.asarray(getattr(self, f"_{name}"), np.int64))
        for name, dtype in (("row_ptr", np.int32), ("col", np.int32)):
            sink.append(name, np.empty(0, dtype))
        if self._weighted:
            sink.append("weight", np.empty(0, np.float32))
        for name, carrier in (("x", features), ("y", labels)):
            if self._carries.get(name):
                if carrier is not None:
                    raise InputError(f"{name} was given with the snapshots and again at the end")
            elif (bottom := given(carrier)) is not None:
                sink.append(name, bottom.values)
        for name, array in (names.arrays() if names is not None else {}).items():
            sink.append(name, array)
        arrays = sink.arrays()
        storage = Storage(
            num_nodes=self._num_nodes,
            directed=self._directed,
            times=tuple(self._times),
            **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
        )
        bare = DynamicGraph(storage, names=NodeNames.from_arrays(arrays), info=dict(info or {}))
        graph = bare.with_features(self._carrier("x", features, arrays.get("x")))
        return sink.finish(graph.with_labels(self._carrier("y", labels, arrays.get("y"))))

    def _carrier(self, name: str, carrier: Carrier | None, stored: Array | None) -> Carrier | None:
        """The carrier over the array that went into the sink."""
        if self._carries.get(name) and stored is not None:
            return PerCell(stored)
        return None if carrier is None else from_recipe(carrier.recipe(), stored)

    def _presence(self, nodes: npt.ArrayLike | None, t: int) -> tuple[IntArray | None, IntArray | None]:
        """Present nodes in ascending order (None: all), and the order that sorts the given ones."""
        if nodes is None:
            return None, None
        given_nodes = self._ids(nodes, "nodes", t)
        if given_nodes.size < 2 or bool((given_nodes[1:] > given_nodes[:-1]).all()):
            ascending, order = given_nodes, None
        else:
            order = np.argsort(given_nodes, kind="stable")
            ascending = given_nodes[order]
            if bool((ascending[1:] == ascending[:-1]).any()):
                twice = ascending[1:][ascending[1:] == ascending[:-1]][0]
                raise InputError(f"snapshot {t}: node {twice} is listed twice")
        if ascending.size == self._num_nodes:
            return None, order
        return ascending.astype(index_dtype(self._num_nodes), copy=False), order

    def _write_edges(self, parts: Iterable[Edges], present: IntArray | None, size: int, t: int) -> tuple[IntArray, int]:
        sorter = EdgeSorter(
            size,
            directed=self._directed,
            self_loops=self._self_loops,
            parallel=self._parallel,
            scratch_dir=self._sink.scratch_dir,
        )
        try:
            for part in parts:
                src, dst, weight = self._checked(part, t)
                sorter.add(_positions(src, present, t), _positions(dst, present, t), weight)
            degree, loops = np.zeros(size, np.int64), 0
            for key, merged in sorter.blocks():
                if key.size == 0:
                    continue
                row, col = np.divmod(key, size)
                first = int(row[0])
                counts = np.bincount(row - first)
                degree[first : first + counts.size] += counts
                loops += int((row == col).sum())
                self._sink.append("col", col.astype(index_dtype(size)))
                if merged is not None:
                    self._sink.append("weight", merged)
            return row_pointers(degree), loops
        finally:
            sorter.close()

    def _write_presence(self, present: IntArray | None) -> None:
        """The presence is stored from the first snapshot that lacks a node; earlier ones are filled in."""
        if present is None and self._all_present:
            return
        everyone = np.arange(self._num_nodes, dtype=index_dtype(self._num_nodes))
        if self._all_present:
            for _ in range(self.num_snapshots):
                self._sink.append("node", everyone)
            self._all_present = False
        self._sink.append("node", everyone if present is None else present)

    def _write_values(self, name: str, values: npt.ArrayLike | None, size: int, order: IntArray | None, t: int) -> None:
        what = "features" if name == "x" else "labels"
        if self._carries.setdefault(name, values is not None) != (values is not None):
            raise InputError(f"snapshot {t}: {what} must be given for every snapshot or for none")
        if values is None:
            return
        rows = as_features(values) if name == "x" else as_labels(values)
        if rows.shape[0] != size:
            raise InputError(f"snapshot {t}: {what} of shape {rows.shape} for {size:,} nodes")
        self._sink.append(name, rows if order is None else rows[order])

    def _checked(self, part: Edges, t: int) -> tuple[IntArray, IntArray, FloatArray | None]:
        src, dst = self._ids(part.src, "edge sources", t), self._ids(part.dst, "edge destinations", t)
        if src.shape != dst.shape:
            raise InputError(f"snapshot {t}: {src.size:,} sources but {dst.size:,} destinations")
        if (part.weight is not None) != self._weighted_input and (src.size or part.weight is not None):
            raise InputError(
                f"snapshot {t}: edge weights must be given for every snapshot or for none "
                f"(this graph is {'weighted' if self._weighted_input else 'unweighted'})"
            )
        if part.weight is None:
            return src, dst, None
        weight = np.asarray(part.weight)
        weight = weight if weight.dtype == np.float64 else weight.astype(np.float32)
        if weight.shape != src.shape:
            raise InputError(f"snapshot {t}: {weight.size:,} weights for {src.size:,} edges")
        if not bool(np.isfinite(weight).all()):
            raise InputError(f"snapshot {t}: edge {int(np.argmin(np.isfinite(weight)))} has no finite weight")
        return src, dst, weight

    def _ids(self, ids: npt.ArrayLike, what: str, t: int) -> IntArray:
        array = np.asarray(ids)
        if array.ndim != 1:
            raise InputError(f"snapshot {t}: {what} must be a one-dimensional array, not of shape {array.shape}")
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise InputError(f"snapshot {t}: {what} must be integers, not {array.dtype}")
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self._num_nodes:
            wrong = low if low < 0 else high
            raise InputError(f"snapshot {t}: {what} contain node {wrong}, outside 0..{self._num_nodes - 1}")
        return array


def _positions(ids: IntArray, present: IntArray | None, t: int) -> IntArray:
    """Where the ids stand among the present nodes; an absent one is refused."""
    if present is None:
        return ids
    if present.size and present[-1] == present.size - 1:  # the present nodes are a prefix of all
        at, missing = ids, ids >= present.size
    else:
        at = np.searchsorted(present, ids)
        missing = at == present.size
        missing[~missing] = present[at[~missing]] != ids[~missing]
    if bool(missing.any()):
        raise InputError(
            f"snapshot {t}: an edge touches node {int(ids[missing][0])}, which is not among the snapshot's nodes"
        )
    return at
