"""Builder of dynamic graphs, snapshot by snapshot, in memory or on disk."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, RowType, as_features, as_ids, as_labels, as_weights
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.edge_sort import EdgeSorter, NodePositions
from strobe.graph.features import FeatureProvider, PerCell, find_stored, from_recipe
from strobe.graph.names import NodeNames
from strobe.graph.sink import MemorySink, Sink
from strobe.graph.storage import ARRAYS, ArrayStorage, Time
from strobe.graph.written import WrittenStructures
from strobe.ops.graph.degrees import decode_edge_keys
from strobe.ops.sparse.csr import MAX_NODES, FloatArray, IntArray, Parallel, index_dtype

PARALLEL: tuple[Parallel, ...] = ("keep", "count", "sum", "last")


class Edges(NamedTuple):
    """Edges of a snapshot by global node id, in any order."""

    src: npt.ArrayLike
    dst: npt.ArrayLike
    weight: npt.ArrayLike | None = None


class WeightOverflowError(InputError):
    """Weights of parallel edges sum to more than float32 holds; ``src`` and ``dst`` are node ids or names."""

    def __init__(self, t: int, src: int | str, dst: int | str) -> None:
        super().__init__(
            f"snapshot {t}: the weights of the edges from node {src!r} to node {dst!r} sum to more than float32 holds: "
            "scale the weights down, or keep the last one (parallel='last', --repeated last)"
        )
        self.t, self.src, self.dst = t, src, dst


class GraphBuilder:
    """Build a dynamic graph from snapshots in order of time.

    Snapshots with equal nodes, edges and weights share one stored structure. Memory: the nodes of one snapshot and a
    few sorted runs of its edges, however many edges there are.

    Args:
        sink: destination of the arrays (default: memory).
        num_nodes: size of the id space.
        directed: whether edges have a direction.
        weighted: whether edges have weights.
        parallel: repeated edges of a snapshot: "keep" all, "count" them (the count becomes the weight), "sum" weights,
            or keep the "last".
        self_loops: False drops self-loops.
        first_index: number of the first snapshot, used where a snapshot has no time.
        row_types: types of the rows of earlier snapshots, by "x" and "y" (None: they have none).
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
        first_index: int = 0,
        row_types: Mapping[str, RowType | None] | None = None,
    ) -> None:
        if parallel not in PARALLEL:
            raise OptionError(f"parallel must be one of {', '.join(PARALLEL)}, not {parallel!r}")
        if parallel == "sum" and not weighted:
            raise OptionError("parallel='sum' needs edge weights; to count repeated edges use 'count'")
        try:
            self._num_nodes = int(operator.index(num_nodes))
        except TypeError:
            raise OptionError(f"num_nodes must be an integer, not {num_nodes!r}") from None
        if not 0 <= num_nodes <= MAX_NODES:
            raise OptionError(
                f"num_nodes must be from 0 to {MAX_NODES:,}, it is {num_nodes:,}: number the nodes from 0 on"
            )
        self._sink: Sink = MemorySink() if sink is None else sink
        self._directed = bool(directed)
        self._weighted_input = weighted
        self._weighted = weighted or parallel == "count"
        self._parallel: Parallel = parallel
        self._self_loops = self_loops
        self._first = first_index
        self._times: list[Time] = []
        self._cell_ptr, self._arc_ptr, self._edge_count = [0], [0], list[int]()
        self._structures, self._structure = WrittenStructures(self._sink), list[int]()
        self._all_present = True
        self._positions = NodePositions(self._num_nodes)
        self._finished = False
        self._row_types = {"x": None, "y": None, **(row_types or {})}  # None if snapshots have no such rows

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    @property
    def num_snapshots(self) -> int:
        return len(self._times)

    @property
    def num_edges(self) -> int:
        """Number of edges of all snapshots so far; an undirected edge counts once per snapshot."""
        return sum(self._edge_count)

    def add(
        self,
        edges: Edges | Iterable[Edges],
        *,
        nodes: npt.ArrayLike | None = None,
        time: Time | None = None,
        x: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
    ) -> None:
        """Add the next snapshot. A snapshot that is refused leaves the builder unchanged.

        Args:
            edges: edges of the snapshot, at once or in blocks.
            nodes: present nodes in any order (None: all).
            time: label of the snapshot (default: its index).
            x: feature rows in the order of ``nodes``.
            y: labels in the order of ``nodes``.

        Raises:
            InputError: an array cannot be used; the message names the snapshot.
        """
        self._check_not_finished()
        t = self._first + self.num_snapshots
        label = _as_time(time, t)
        present, order = self._presence(nodes, t)
        size = self._num_nodes if present is None else int(present.size)
        carried = {name: self._check_values(name, values, size, order, t) for name, values in (("x", x), ("y", y))}
        end, known = self._sink.mark(), len(self._structures)
        row_ptr, loops = self._write_edges([edges] if isinstance(edges, Edges) else edges, present, size, t)
        self._sink.append("row_ptr", row_ptr)
        self._write_presence(present)
        has = {"node": not self._all_present, "col": True, "weight": self._weighted}
        structure = self._structures.add(row_ptr, [name for name, stored in has.items() if stored])
        if structure < known:
            self._sink.rollback(end)
        arcs = int(row_ptr[-1])
        self._finish_snapshot(label, structure, arcs if self._directed else (arcs + loops) // 2, carried)

    def repeat(
        self, of: int, *, time: Time | None = None, x: npt.ArrayLike | None = None, y: npt.ArrayLike | None = None
    ) -> None:
        """Add the next snapshot with the nodes, edges and weights of snapshot ``of``, without sorting them again.

        Args:
            of: number of an earlier snapshot of this builder, from 0.
            time: label of the snapshot (default: its index).
            x: feature rows in ascending order of the nodes.
            y: labels in ascending order of the nodes.

        Raises:
            OptionError: there is no snapshot ``of``.
        """
        self._check_not_finished()
        if not 0 <= of < self.num_snapshots:
            raise OptionError(f"there is no snapshot {of} to repeat: this builder has {self.num_snapshots}")
        t = self._first + self.num_snapshots
        label, size = _as_time(time, t), self._cell_ptr[of + 1] - self._cell_ptr[of]
        carried = {name: self._check_values(name, values, size, None, t) for name, values in (("x", x), ("y", y))}
        self._finish_snapshot(label, self._structure[of], self._edge_count[of], carried)

    def _finish_snapshot(self, label: Time, structure: int, num_edges: int, carried: dict[str, Array | None]) -> None:
        self._write_values(carried)
        self._times.append(label)
        self._structure.append(structure)
        for ptr, of_structures in (
            (self._cell_ptr, self._structures.cell_ptr),
            (self._arc_ptr, self._structures.arc_ptr),
        ):
            ptr.append(ptr[-1] + of_structures[structure + 1] - of_structures[structure])
        self._edge_count.append(num_edges)

    def finish(
        self,
        *,
        features: FeatureProvider | None = None,
        labels: FeatureProvider | None = None,
        names: NodeNames | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> DynamicGraph:
        """Return the graph.

        Args:
            features: features instead of ``x``, or derived from ``x`` (a ``PerCell`` without rows stands for ``x``).
            labels: labels instead of ``y``, or derived from ``y``.
            names: original names of the nodes.
            info: JSON metadata to store with the graph.
        """
        self._check_not_finished()
        sink = self._sink
        if names is not None and len(names) != self._num_nodes:
            raise InputError(f"{len(names):,} names for {self._num_nodes:,} nodes")
        self._finished = True
        for name in ("cell_ptr", "arc_ptr", "edge_count"):
            sink.append(name, np.asarray(getattr(self, f"_{name}"), np.int64))
        if len(self._structures) < self.num_snapshots:
            sink.append("structure", np.asarray(self._structure, np.int32))
        for name, dtype in (("row_ptr", np.int32), ("col", np.int32)):
            sink.append(name, np.empty(0, dtype))
        if self._weighted:
            sink.append("weight", np.empty(0, np.float32))
        for name, carrier in (("x", features), ("y", labels)):
            bottom = find_stored(carrier)
            if self._row_types[name] is not None:
                if carrier is not None and not (isinstance(bottom, PerCell) and len(bottom.values) == 0):
                    raise InputError(f"{name} was given with the snapshots and again at the end")
            elif bottom is not None:
                sink.append(name, bottom.values)
        for name, array in (names.arrays() if names is not None else {}).items():
            sink.append(name, array)
        arrays = sink.arrays()
        storage = ArrayStorage(
            num_nodes=self._num_nodes,
            directed=self._directed,
            times=tuple(self._times),
            **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
        )
        bare = DynamicGraph(storage, names=NodeNames.from_arrays(arrays), info=dict(info or {}))
        graph = bare.with_features(self._provider("x", features, arrays.get("x")))
        return sink.finish(graph.with_labels(self._provider("y", labels, arrays.get("y"))))

    def _check_not_finished(self) -> None:
        if self._finished:
            raise OptionError("this graph is finished: start another builder")

    def _provider(self, name: str, provider: FeatureProvider | None, stored: Array | None) -> FeatureProvider | None:
        """Bind the provider to the array that went into the sink."""
        if provider is None:
            return None if stored is None else PerCell(stored)
        return from_recipe(provider.recipe(), stored)

    def _presence(self, nodes: npt.ArrayLike | None, t: int) -> tuple[IntArray | None, IntArray | None]:
        """Return present nodes in ascending order (None: all) and the permutation that sorts ``nodes``."""
        if nodes is None:
            return None, None
        given_nodes = self._check_ids(nodes, "nodes", t)
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
        """Write the columns and weights of a snapshot; return its row pointers and the number of its self-loops."""
        sorter = EdgeSorter(
            size,
            directed=self._directed,
            self_loops=self._self_loops,
            parallel=self._parallel,
            scratch_dir=self._sink.scratch_dir,
        )
        try:
            with self._positions.lookup(present, size, t) as position:
                for part in parts:
                    src, dst, weight = self._check_edges(part, t)
                    sorter.add(position(src), position(dst), weight)
            row_ptr, loops = np.zeros(size + 1, index_dtype(sorter.num_arcs)), 0
            for key, merged in sorter.blocks():
                if key.size == 0:
                    continue
                if merged is not None and not bool(np.isfinite(merged).all()):
                    ends = np.array(divmod(int(key[np.argmin(np.isfinite(merged))]), size))
                    dst, src = ends if present is None else present[ends]
                    raise WeightOverflowError(t, int(src), int(dst))
                col, degrees = decode_edge_keys(key, size, row_ptr[1:])
                loops += degrees
                self._sink.append("col", col)
                if merged is not None:
                    self._sink.append("weight", merged)
            return np.cumsum(row_ptr, out=row_ptr), loops
        finally:
            sorter.close()

    def _write_presence(self, present: IntArray | None) -> None:
        """Write present nodes from the first incomplete structure on; fill in earlier structures then."""
        if present is None and self._all_present:
            return
        if self._all_present or present is None:
            everyone = np.arange(self._num_nodes, dtype=index_dtype(self._num_nodes))
            for _ in range(len(self._structures) if self._all_present else 0):
                self._sink.append("node", everyone)
            self._all_present = False
        self._sink.append("node", everyone if present is None else present)

    def _check_values(
        self, name: str, values: npt.ArrayLike | None, size: int, order: IntArray | None, t: int
    ) -> Array | None:
        """Return a snapshot's rows in cell order; dtype and shape must match those of earlier snapshots."""
        what = f"snapshot {t}: {'features' if name == 'x' else 'labels'}"
        before = self._row_types[name]
        if (t or before is not None) and (before is None) != (values is None):
            raise InputError(f"{what} must be given for every snapshot or for none")
        if values is None:
            return None
        rows = as_features(values, what) if name == "x" else as_labels(values, what)
        if rows.shape[0] != size:
            raise InputError(f"{what} of shape {rows.shape} for {size:,} nodes")
        if before is not None and rows.shape[1:] != before.shape:
            raise InputError(f"{what} have shape {rows.shape[1:]} per node, those before it {before.shape}")
        if before is not None and before.dtype is not None and len(rows) and rows.dtype.kind != before.dtype.kind:
            # An integer label of -1 (unlabeled) would become a target of -1.0 among floats.
            raise InputError(f"{what} are {rows.dtype}, those before it {before.dtype}: give all of one kind")
        return rows if order is None else rows[order]

    def _write_values(self, carried: dict[str, Array | None]) -> None:
        for name, rows in carried.items():
            if rows is not None:
                self._sink.append(name, rows)
                before = self._row_types[name]
                if before is None or before.dtype is None:  # an empty array has no meaningful dtype: [] is float64
                    self._row_types[name] = RowType(rows.shape[1:], rows.dtype if len(rows) else None)

    def _check_edges(self, part: Edges, t: int) -> tuple[IntArray, IntArray, FloatArray | None]:
        src, dst = self._check_ids(part.src, "edge sources", t), self._check_ids(part.dst, "edge destinations", t)
        if src.shape != dst.shape:
            raise InputError(f"snapshot {t}: {src.size:,} sources but {dst.size:,} destinations")
        if (part.weight is not None) != self._weighted_input and (src.size or part.weight is not None):
            raise InputError(
                f"snapshot {t}: edge weights must be given for every snapshot or for none "
                f"(this graph is {'weighted' if self._weighted_input else 'unweighted'})"
            )
        if part.weight is None:
            return src, dst, None
        weight = as_weights(part.weight, f"snapshot {t}: edge weights")
        if weight.shape != src.shape:
            raise InputError(f"snapshot {t}: edge weights of shape {weight.shape} for {src.size:,} edges")
        return src, dst, weight

    def _check_ids(self, ids: npt.ArrayLike, what: str, t: int) -> IntArray:
        array = as_ids(ids, f"snapshot {t}: {what}")
        if array.size == 0:
            return array
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self._num_nodes:
            wrong = low if low < 0 else high
            allowed = f"0..{self._num_nodes - 1}" if self._num_nodes else "of which there are none"
            raise InputError(f"snapshot {t}: {what} contain {wrong}, which is not among the nodes, {allowed}")
        return array


def _as_time(time: Time | None, t: int) -> Time:
    """Return the snapshot's time as a JSON value."""
    if time is None:
        return t
    if isinstance(time, str):
        return str(time)
    try:
        return int(operator.index(time))  # bool is an index, too, and stays bool
    except TypeError:
        raise InputError(f"snapshot {t}: its time must be an integer or a string, not {time!r}") from None
