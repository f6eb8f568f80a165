"""Conversion from and to edge arrays, SciPy matrices, PyTorch Geometric data and temporal signals.

An edge goes from source to destination; arrays are ``[source row, destination row]`` as in PyTorch Geometric; a SciPy
matrix has sources as rows. An undirected edge is listed once in edge arrays, and in both directions in PyTorch
Geometric data, SciPy matrices and signals, as is the custom there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError
from strobe.graph.arrays import Array, as_array, as_features, as_ids, as_integers, as_labels, as_weights
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import FeatureProvider, Static
from strobe.graph.snapshot import Snapshot
from strobe.graph.storage import Time
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray, Parallel, row_pointers

if TYPE_CHECKING:
    import scipy.sparse as sp
    from torch_geometric.data import Data
else:
    sp = lazy_import("scipy.sparse")

SignalT = TypeVar("SignalT")
Values = FeatureProvider | npt.ArrayLike | Sequence[npt.ArrayLike]


def from_edges(
    edges: Iterable[npt.ArrayLike],
    *,
    weights: Iterable[npt.ArrayLike | None] | None = None,
    num_nodes: int | None = None,
    nodes: Iterable[npt.ArrayLike | None] | None = None,
    x: Values | None = None,
    y: Values | None = None,
    times: Iterable[Time] | None = None,
    directed: bool = True,
    parallel: Parallel = "keep",
    self_loops: bool = True,
) -> DynamicGraph:
    """Make a graph from one [2, E_t] array of node ids per snapshot.

    Args:
        edges: edge arrays in order of time.
        weights: one array of edge weights per snapshot.
        num_nodes: size of the id space (default: the largest id + 1).
        nodes: present nodes of each snapshot (default: all).
        x: features: one array per node, a list with one array per snapshot in the order of its nodes, or a provider
            such as ``Degrees()``.
        y: labels, as ``x``.
        times: labels of the snapshots (default: their indices).
        directed: whether edges have a direction.
        parallel: repeated edges: "keep", "count", "sum" or "last".
        self_loops: False drops self-loops.
    """
    pairs = [_as_edge_index(edge, t) for t, edge in enumerate(edges)]
    columns: dict[str, list[Any]] = {}
    for what, values in (("weights", weights), ("nodes", nodes), ("times", times)):
        columns[what] = [None] * len(pairs) if values is None else list(values)
        _check_length(columns[what], len(pairs), what)
    per_snapshot = {"x": _per_snapshot(x, len(pairs), "x"), "y": _per_snapshot(y, len(pairs), "y")}
    if num_nodes is None:
        present = [as_ids(ids, f"snapshot {t}: nodes") for t, ids in enumerate(columns["nodes"]) if ids is not None]
        num_nodes = max((int(ids.max()) + 1 for ids in [*pairs, *present] if ids.size), default=0)
        num_nodes = max(num_nodes, 0)  # the builder refuses negative ids
    builder = GraphBuilder(
        num_nodes=num_nodes,
        directed=directed,
        weighted=weights is not None,
        parallel=parallel,
        self_loops=self_loops,
    )
    for t, (src, dst) in enumerate(pairs):
        rows = {"time": columns["times"][t], "x": per_snapshot["x"][t], "y": per_snapshot["y"][t]}
        given = pairs, columns["weights"], columns["nodes"]
        if t and _ascends(columns["nodes"][t]) and all(_equal(each[t - 1], each[t]) for each in given):
            builder.repeat(t - 1, **rows)
        else:
            builder.add(Edges(src, dst, columns["weights"][t]), nodes=columns["nodes"][t], **rows)
    return builder.finish(features=_as_provider(x, as_features), labels=_as_provider(y, as_labels))


def to_edges(graph: DynamicGraph) -> list[Array]:
    """Return one [2, E_t] array of node ids per snapshot; an undirected edge is listed once."""
    return [np.stack(snapshot.edges()[:2]).astype(np.int64) for snapshot in graph]


def from_scipy(
    matrices: Iterable[sp.sparray | sp.spmatrix],
    *,
    weighted: bool = True,
    directed: bool = True,
    **options: Any,
) -> DynamicGraph:
    """Make a graph from one N x N matrix per snapshot, where entry (u, v) is the weight of the edge u -> v.

    Undirected graphs need symmetric matrices. Other options as in ``from_edges``.
    """
    listed = []
    size: int | None = None
    for t, entries in enumerate(matrices):
        matrix = _as_square_matrix(entries, size, t)
        size = matrix.shape[0]
        weight = as_weights(matrix.data, f"snapshot {t}: entries") if weighted else None
        listed.append(_list_edges_once(np.stack(matrix.coords).astype(np.int64), weight, directed, t))
    options.setdefault("num_nodes", size or 0)
    weights = [weight for _, weight in listed] if weighted else None
    return from_edges([edges for edges, _ in listed], weights=weights, directed=directed, **options)


def to_scipy(graph: DynamicGraph) -> list[sp.csr_array]:
    """Return one N x N matrix per snapshot; unweighted edges have entry 1, parallel edges stay separate entries."""
    matrices = []
    for snapshot in graph:
        src, dst = (snapshot.nodes[local] for local in snapshot.arcs())
        row_ptr = row_pointers(np.bincount(dst, minlength=graph.num_nodes))
        by_destination = sp.csc_array((_weight_or_ones(snapshot), src, row_ptr), shape=(graph.num_nodes,) * 2)
        matrices.append(by_destination.tocsr())
    return matrices


def from_pyg(
    data: Iterable[Data], *, num_nodes: int | None = None, directed: bool = True, **options: Any
) -> DynamicGraph:
    """Make a graph from one PyTorch Geometric ``Data`` per snapshot.

    Reads ``edge_index``, ``edge_weight`` (or a one-column ``edge_attr``), ``x`` and ``y``. If the node set changes,
    ``n_id`` has the global id of each row; without it row i is node i. Other options as in ``from_edges``.
    """
    listed = list(data)
    present = [_present_nodes(item, t) for t, item in enumerate(listed)]
    return _from_data(listed, present, num_nodes=num_nodes, directed=directed, **options)


def _from_data(
    listed: list[Data], present: Sequence[IntArray], *, num_nodes: int | None, directed: bool, **options: Any
) -> DynamicGraph:
    once: list[tuple[IntArray, Array | None]] = []
    before: tuple[Any, ...] | None = None
    for t, (item, nodes) in enumerate(zip(listed, present, strict=True)):
        index = _edge_index(item, nodes.size, t)
        given = nodes, index, _edge_weight(item, index.shape[1], t)
        if before is None or not all(map(_equal, before, given)):
            once.append(_list_edges_once(nodes[index], given[2], directed, t))
        else:  # static: the same arrays again, which from_edges recognizes
            once.append(once[-1])
        before = given
    return from_edges(
        [edges for edges, _ in once],
        weights=_all_or_none([weight for _, weight in once], "edge_weight"),
        nodes=present,
        num_nodes=num_nodes,
        x=_all_or_none([_attribute(item, "x") for item in listed], "x"),
        y=_all_or_none([_attribute(item, "y") for item in listed], "y"),
        directed=directed,
        **options,
    )


def to_pyg(graph: DynamicGraph) -> list[Data]:
    """Return one PyTorch Geometric ``Data`` per snapshot over its present nodes; ``n_id`` has their global ids."""
    import torch
    from torch_geometric.data import Data

    def tensor(array: Array | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.array(array))

    return [
        Data(
            edge_index=tensor(np.stack(snapshot.arcs()).astype(np.int64)),
            edge_weight=tensor(snapshot.weight),
            x=tensor(snapshot.x),
            y=tensor(snapshot.y),
            n_id=tensor(snapshot.nodes.astype(np.int64)),
            num_nodes=snapshot.num_nodes,
        )
        for snapshot in graph
    ]


def from_signal(
    signal: Iterable[Any], *, num_nodes: int | None = None, directed: bool = True, **options: Any
) -> DynamicGraph:
    """Make a graph from a PyTorch Geometric Temporal signal: any iterator of ``Data`` with one id space.

    Static, dynamic and static-graph signals share one protocol, so PyTorch Geometric Temporal need not be installed.
    Edge weights are ``edge_attr``; features and targets are per snapshot. All nodes are present in all snapshots; their
    number follows from features, targets or edge ids.
    """
    listed = list(signal)
    if num_nodes is None:
        num_nodes = max((_signal_rows(item, t) for t, item in enumerate(listed)), default=0)
    present = [np.arange(num_nodes)] * len(listed)
    return _from_data(listed, present, num_nodes=num_nodes, directed=directed, **options)


def to_signal(graph: DynamicGraph, make: Callable[..., SignalT]) -> SignalT:
    """Make a signal with ``make``, such as PyTorch Geometric Temporal's ``DynamicGraphTemporalSignal``.

    Raises:
        InputError: a node is absent from a snapshot; signals have all nodes in every snapshot.
    """
    snapshots = list(graph)
    for snapshot in snapshots:
        if not snapshot.has_all_nodes:
            raise InputError(
                f"snapshot {snapshot.t} has {snapshot.num_nodes:,} of {graph.num_nodes:,} nodes, "
                "and a signal must have all of them in every snapshot"
            )
    return make(
        edge_indices=[np.stack(snapshot.arcs()).astype(np.int64) for snapshot in snapshots],
        edge_weights=[_weight_or_ones(snapshot) for snapshot in snapshots],
        features=[snapshot.x for snapshot in snapshots],
        targets=[snapshot.y for snapshot in snapshots],
    )


def _as_edge_index(edge: npt.ArrayLike, t: int) -> IntArray:
    array = as_integers(edge, f"snapshot {t}: edges")
    if array.ndim != 2 or array.shape[0] != 2:
        raise InputError(f"snapshot {t}: edges must be an array of shape [2, E], not {array.shape}")
    return array


def _equal(a: Any, b: Any) -> bool:
    """Return whether two arrays, or two absent ones, are the same or have equal type and contents."""
    if a is b:
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    # the first columns mostly tell already
    return a.dtype == b.dtype and np.array_equal(a[..., :16], b[..., :16]) and np.array_equal(a, b)


def _ascends(nodes: Any) -> bool:
    """Return whether nodes are all, or an array in ascending order."""
    return nodes is None or (isinstance(nodes, np.ndarray) and nodes.ndim == 1 and bool((nodes[1:] > nodes[:-1]).all()))


def _check_length(column: Sequence[Any], length: int, what: str) -> None:
    if len(column) != length:
        raise InputError(f"{len(column)} {what} for {length} snapshots")


def _is_list(values: Values | None) -> bool:
    """Return whether values are given per snapshot; a plain list of numbers is one value per node."""
    return isinstance(values, list | tuple) and not (len(values) and np.isscalar(values[0]))


def _per_snapshot(values: Values | None, length: int, what: str) -> Sequence[Any]:
    if not _is_list(values):
        return [None] * length
    assert isinstance(values, list | tuple)
    _check_length(values, length, what)
    return values


def _as_provider(values: Any, as_rows: Callable[[npt.ArrayLike], Array]) -> FeatureProvider | None:
    if values is None or _is_list(values):
        return None
    return values if isinstance(values, FeatureProvider) else Static(as_rows(values))


def _list_edges_once(arcs: IntArray, weight: Array | None, directed: bool, t: int) -> tuple[IntArray, Array | None]:
    """Return the edges that arcs [2, A] stand for, and their weights; arcs of undirected edges must be symmetric."""
    if directed:
        return arcs, weight
    src, dst = arcs
    up, down = src < dst, src > dst
    forward = _sort_edges(src[up], dst[up], None if weight is None else weight[up])
    back = _sort_edges(dst[down], src[down], None if weight is None else weight[down])
    both = min(forward[0].size, back[0].size)
    differs = np.any([a[:both] != b[:both] for a, b in zip(forward, back, strict=True)], axis=0)
    if forward[0].size != back[0].size or bool(differs.any()):
        at = int(np.argmax(differs)) if bool(differs.any()) else both
        lone = min(
            tuple(column[at].item() for column in columns) for columns in (forward, back) if at < columns[0].size
        )
        raise InputError(
            f"snapshot {t}: an undirected graph must list every edge in both directions and with one weight, "
            f"but the edge between {lone[0]} and {lone[1]} is listed in one only"
            + (f" with weight {lone[2]}" if weight is not None else "")
        )
    once = src <= dst
    return arcs[:, once], None if weight is None else weight[once]


def _sort_edges(low: IntArray, high: IntArray, weight: Array | None) -> tuple[Array, ...]:
    columns = (low, high) if weight is None else (low, high, weight)
    order = np.lexsort(columns[::-1])
    return tuple(column[order] for column in columns)


def _as_square_matrix(matrix: Any, size: int | None, t: int) -> sp.coo_array:
    try:
        coo = sp.coo_array(matrix)
    except (TypeError, ValueError) as error:
        raise InputError(f"snapshot {t}: {type(matrix).__name__} cannot be read as a matrix: {error}") from error
    if coo.ndim != 2 or coo.shape[0] != coo.shape[1] or size not in (None, coo.shape[0]):
        others = "" if size is None else f", those before it {(size, size)}"
        raise InputError(f"snapshot {t}: matrices must be square and of one size; this one is {coo.shape}{others}")
    return coo


def _attribute(item: Data, name: str) -> Any | None:
    """Return an attribute as numpy can read it; None if the item lacks it."""
    value = item.get(name, None)
    return value.detach().cpu() if hasattr(value, "detach") else value


def _present_nodes(item: Data, t: int) -> IntArray:
    n_id = _attribute(item, "n_id")
    return np.arange(item.num_nodes or 0) if n_id is None else as_ids(n_id, f"snapshot {t}: n_id")


def _signal_rows(item: Data, t: int) -> int:
    for name in ("x", "y"):
        if (rows := _attribute(item, name)) is not None:
            return len(np.atleast_1d(as_array(rows, f"snapshot {t}: {name}")))
    index = _attribute(item, "edge_index")
    pair = _as_edge_index(np.empty((2, 0)) if index is None else index, t)
    return int(pair.max()) + 1 if pair.size else 0


def _edge_index(item: Data, num_rows: int, t: int) -> IntArray:
    """Return the edges of an item, [2, E]; an item without ``edge_index`` has none."""
    edge_index = _attribute(item, "edge_index")
    index = _as_edge_index(np.empty((2, 0), np.int64) if edge_index is None else edge_index, t)
    if index.size and (index.min() < 0 or index.max() >= num_rows):
        wrong = index.min() if index.min() < 0 else index.max()
        raise InputError(f"snapshot {t}: edge_index contains {wrong}, but there are {num_rows:,} nodes")
    return index


def _edge_weight(item: Data, num_edges: int, t: int) -> Array | None:
    values = _attribute(item, "edge_weight")
    if values is None:
        values = _attribute(item, "edge_attr")
    if values is None:
        return None
    weight = as_weights(values, f"snapshot {t}: edge weights")
    if weight.ndim == 2 and weight.shape[1] == 1:
        weight = weight[:, 0]
    if weight.shape != (num_edges,):
        raise InputError(
            f"snapshot {t}: one weight per edge is supported; for {num_edges:,} edges their shape is {weight.shape}"
        )
    return weight


def _all_or_none(values: list[Any], what: str) -> list[Any] | None:
    absent = [t for t, value in enumerate(values) if value is None]
    if absent and len(absent) < len(values):
        raise InputError(f"snapshot {absent[0]} has no {what}, though others have: give it for all or for none")
    return None if absent or not values else values


def _weight_or_ones(snapshot: Snapshot) -> Array:
    return np.ones(snapshot.num_arcs, np.float32) if snapshot.weight is None else snapshot.weight
