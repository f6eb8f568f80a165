"""Normalized matrices of the snapshots of a window. Snapshots that share their structure share their matrices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch

from strobe.graph import DynamicGraph
from strobe.graph.storage import GraphStorage
from strobe.ops.runtime.parallel import map_in_order
from strobe.ops.sparse.csr import Csr, IntArray
from strobe.ops.sparse.leading_block import LeadingBlock, LeadingBlocks
from strobe.ops.sparse.normalize import SYMMETRIC_NORMS, Norm, normalize, normalize_on_device
from strobe.ops.sparse.spmm import Sparse
from strobe.ops.time.sequences import Sequences

T = TypeVar("T")

EMPTY_CSR: Csr = np.zeros(1, np.int64), np.empty(0, np.int32), None
_MAX_CACHED_BYTES = 64 << 20
_MIN_BLOCK_ENTRIES = 1 << 18
"""Entries from which one block is multiplied once per snapshot. A block-diagonal copy takes more memory and as long; of
smaller blocks, it saves a kernel call per snapshot (benchmarks/startup_static.py)."""

_caches: WeakKeyDictionary[GraphStorage, StructureCache] = WeakKeyDictionary()
_caches_lock = Lock()


class StructureCache:
    """What windows make of the structures that several snapshots of a stored graph have, once for all windows.

    A value lives as long as something refers to it. The latest ones are kept longer: up to 64 MiB, and always the
    last. Thread-safe.
    """

    def __init__(self, structure: IntArray) -> None:
        self.is_shared = np.bincount(structure, minlength=1) > 1
        """Whether more than one snapshot has the structure, by number."""
        self._alive: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._recent: OrderedDict[Hashable, Any] = OrderedDict()
        self._recent_bytes = 0
        self._lock = Lock()
        self._making: dict[Hashable, Lock] = {}

    @classmethod
    def of(cls, graph: DynamicGraph) -> StructureCache | None:
        """The cache of the graph's storage; None if no snapshots share their structure, or only some nodes count."""
        storage = graph.storage
        if storage.structure is None or graph.node_subset is not None:
            return None
        with _caches_lock:
            if storage not in _caches:
                _caches[storage] = cls(storage.structure)
            return _caches[storage]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, which the first caller makes."""
        with self._lock:
            value: T | None = self._find(key)
            if value is not None:
                return value
            making = self._making.setdefault(key, Lock())
        with making:
            with self._lock:
                value = self._find(key)
            value = make() if value is None else value
            with self._lock:
                self._add(key, value)
                self._making.pop(key, None)
        return value

    def _find(self, key: Hashable) -> Any | None:
        found = self._recent.get(key)
        return self._alive.get(key) if found is None else found

    def _add(self, key: Hashable, value: Any) -> None:
        if not isinstance(value, tuple):
            self._alive[key] = value
        if key not in self._recent:
            self._recent_bytes += _num_bytes(value)
        self._recent[key] = value
        self._recent.move_to_end(key)
        while self._recent_bytes > _MAX_CACHED_BYTES and len(self._recent) > 1:
            self._recent_bytes -= _num_bytes(self._recent.popitem(last=False)[1])


def _num_bytes(value: Any) -> int:
    if isinstance(value, Sparse):
        value = value.row_ptr, value.col, value.weight
    return sum(int(each.nbytes) for each in value if each is not None) if isinstance(value, tuple) else 0


@dataclass(frozen=True, eq=False)
class SnapshotMatrices:
    """Normalized matrices of whole snapshots of a graph, on one device."""

    graph: DynamicGraph
    dtype: torch.dtype
    device: torch.device
    cache: StructureCache | None

    def block(self, t: int, norm: Norm) -> Csr:
        """The matrix of a snapshot on the host, with weights in double precision."""
        if self.cache is None or not self._is_shared(t):
            return self._normalize(t, norm)
        return self.cache.get(("block", norm, self._structure(t)), lambda: self._normalize(t, norm))

    def matrix(self, t: int, norm: Norm) -> Sparse:
        """The matrix of a snapshot."""
        if self.cache is None or not self._is_shared(t):
            return self._make(t, norm)
        key = "matrix", norm, self._structure(t), self.dtype, self.device
        return self.cache.get(key, lambda: self._make(t, norm))

    def in_order(self, norm: Norm, has_cells: Callable[[int], bool]) -> Iterator[Sparse | None]:
        """The matrix of every snapshot; None without cells. Those that no snapshots share are made in parallel on a
        CPU, and by the device otherwise."""

        def load(t: int) -> Csr | None:
            on_host = self.device.type == "cpu" and not self._is_shared(t)
            return self._normalize(t, norm) if has_cells(t) and on_host else None

        for t, block in enumerate(map_in_order(load, len(self.graph))):
            if block is not None:
                yield self._to_sparse(block, norm)
            else:
                yield self.matrix(t, norm) if has_cells(t) else None

    def block_diagonal(self, norm: Norm, has_cells: Callable[[int], bool]) -> Sparse:
        """The matrix of all snapshots, empty for those without cells; windows of equal structures share it."""

        def make() -> Sparse:
            symmetric, some = self._is_symmetric(norm), [t for t in range(len(self.graph)) if has_cells(t)]
            if self.device.type != "cpu" and some:
                return Sparse.join_diagonal([self.matrix(t, norm) for t in some], symmetric=symmetric)
            blocks = list(map_in_order(lambda number: self.block(some[number], norm), len(some)))
            return Sparse.block_diagonal(blocks, dtype=self.dtype, device=self.device, symmetric=symmetric)

        if self.cache is None:
            return make()
        structures = tuple(s if has_cells(t) else -1 for t, s in enumerate(self.graph.structures.tolist()))
        return self.cache.get(("window", norm, structures, self.dtype, self.device), make)

    def repeated(self, norm: Norm) -> LeadingBlocks | None:
        """The matrix of all snapshots without copies; None if they are small, or share no structure."""
        structures = self.graph.structures
        if self.cache is None or self.device.type != "cpu" or self.graph.num_structures == len(structures):
            return None
        if self.graph.num_arcs < _MIN_BLOCK_ENTRIES * len(structures):
            return None
        blocks: dict[int, LeadingBlock] = {}
        for t, structure in enumerate(structures.tolist()):
            if structure not in blocks:
                matrix = self.matrix(t, norm)
                blocks[structure] = LeadingBlock(matrix, matrix.num_rows, matrix.num_cols)
        return LeadingBlocks(tuple(blocks[structure] for structure in structures.tolist()))

    def sequences(self) -> Sequences:
        """The nodes of every snapshot, a slot each."""
        graph, device = self.graph, self.device

        def make() -> Sequences:
            return Sequences.of([snapshot.nodes for snapshot in graph], graph.num_nodes, device)

        key: Sequence[Hashable] = ("sequences", tuple(graph.structures.tolist()), device)
        return make() if self.cache is None else self.cache.get(key, make)

    def _structure(self, t: int) -> int:
        return int(self.graph.structures[t])

    def _is_shared(self, t: int) -> bool:
        return self.cache is not None and bool(self.cache.is_shared[self._structure(t)])

    def _is_symmetric(self, norm: Norm) -> bool:
        return not self.graph.directed and norm in SYMMETRIC_NORMS

    def _normalize(self, t: int, norm: Norm) -> Csr:
        snapshot = self.graph[t]
        return normalize(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)

    def _to_sparse(self, block: Csr, norm: Norm) -> Sparse:
        return Sparse.block_diagonal([block], dtype=self.dtype, device=self.device, symmetric=self._is_symmetric(norm))

    def _make(self, t: int, norm: Norm) -> Sparse:
        if self.device.type == "cpu":
            return self._to_sparse(self._normalize(t, norm), norm)
        snapshot = self.graph[t]
        arcs = snapshot.row_ptr, snapshot.col, snapshot.weight
        symmetric = self._is_symmetric(norm)
        return normalize_on_device(norm, arcs, dtype=self.dtype, device=self.device, symmetric=symmetric)
