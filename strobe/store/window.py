"""The last snapshots as differences in memory, older ones on disk, and those last asked for as they are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strobe.errors import OptionError
from strobe.graph.arrays import Array, read_only
from strobe.graph.storage import Rows
from strobe.ops.csr import IntArray
from strobe.store.arcs import Arcs, Keyed, as_rows, keyed
from strobe.store.older import Older, Whole
from strobe.store.segments import Segments

RECENT = 2
"""Snapshots that are kept rebuilt: the next one is made from the one before."""


@dataclass
class _Rebuilt:
    """What was asked of a snapshot so far."""

    nodes: IntArray
    arcs: Keyed | None = None
    rows: Rows | None = None
    x: Array | None = None

    def arrays(self) -> Iterator[Array]:
        for array in (self.nodes, *(self.arcs or ()), *(self.rows or ()), self.x):
            if array is not None:
                yield array


class Window:
    """Snapshots in order of time, of which the last ``size`` are in memory, as differences.

    When one more comes, the oldest is written to disk whole, and the first difference is applied. Any snapshot can be
    asked for, to the bit as it was added; what is rebuilt of the last few is kept. Asking is safe from several threads.
    """

    def __init__(
        self, *, num_nodes: int, directed: bool, size: int, older: Older, segments: int = 4, start: int = 0
    ) -> None:
        if size < 1:
            raise OptionError(f"a window has 1 snapshot or more, not {size}")
        self._num_nodes, self._directed, self._size, self._older = num_nodes, directed, size, older
        self._segments, self._arcs = Segments(segments), Arcs(num_nodes)
        self._next = start
        self._kinds: tuple[np.dtype[np.generic], np.dtype[np.generic]] | None = None  # of row_ptr and col
        self._recent: OrderedDict[int, _Rebuilt] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def times(self) -> list[int]:
        """Snapshots in memory, ascending."""
        return self._segments.times

    def add(self, snapshot: Whole) -> int:
        """The next snapshot; its number."""
        with self._lock:
            t, self._next = self._next, self._next + 1
            if len(self.times) == self._size:
                self._slide()
            if self._kinds is None:
                self._kinds = snapshot.row_ptr.dtype, snapshot.col.dtype
            rows = snapshot.row_ptr, snapshot.col, snapshot.weight
            arcs = keyed(snapshot.nodes, rows, self._num_nodes, directed=self._directed)
            self._arcs.add(t, arcs, self._near(t))
            self._segments.add(t, snapshot.nodes, snapshot.x)
            self._remember(t, _Rebuilt(np.array(snapshot.nodes), arcs))
            return t

    def nodes(self, t: int) -> IntArray:
        """The nodes present at t, ascending."""
        return read_only(self._rebuilt(t).nodes)

    def rows(self, t: int) -> Rows:
        """The arcs of t by destination."""
        with self._lock:
            found = self._rebuilt(t)
            if found.rows is None:
                found.arcs = self._arcs.keyed(t, self._near(t)) if found.arcs is None else found.arcs
                row_ptr, col, weight = as_rows(found.arcs, found.nodes, self._num_nodes, directed=self._directed)
                assert self._kinds is not None
                found.rows = row_ptr.astype(self._kinds[0], copy=False), col.astype(self._kinds[1], copy=False), weight
            return found.rows

    def x(self, t: int) -> Array:
        """The features that are stored for the cells of t, [n, F]."""
        with self._lock:
            found = self._rebuilt(t)
            if found.x is None:
                known = [(at, each.nodes, each.x) for at, each in self._recent.items() if at < t and each.x is not None]
                near = max(known, key=lambda one: one[0], default=None)
                found.x = self._segments.rows(t, near=near)
            return read_only(found.x)

    @property
    def nbytes(self) -> int:
        """Bytes in memory for the snapshots of the window, without those rebuilt."""
        return self.features_bytes + self.arcs_bytes

    @property
    def features_bytes(self) -> int:
        """Those of nodes and the features stored for their cells."""
        return self._segments.nbytes

    @property
    def arcs_bytes(self) -> int:
        return self._arcs.nbytes

    @property
    def recent_bytes(self) -> int:
        """Bytes of snapshots that are kept rebuilt; what is mapped, or the window's own, counts here as well."""
        return sum(int(array.nbytes) for each in self._recent.values() for array in each.arrays())

    def arrays(self) -> Iterator[Array]:
        """What ``nbytes`` counts."""
        yield from self._segments.arrays()
        yield from self._arcs.arrays()

    def _slide(self) -> None:
        oldest = self.times[0]
        self._older.write(oldest, Whole(self.nodes(oldest), *self.rows(oldest), self.x(oldest)))
        self._recent.pop(oldest)  # from now on it is read where it was written
        self._segments.drop()
        self._arcs.drop()

    def _rebuilt(self, t: int) -> _Rebuilt:
        with self._lock:
            if t in self._recent:
                self._recent.move_to_end(t)
                return self._recent[t]
            if t in self.times:
                return self._remember(t, _Rebuilt(self._segments.nodes(t)))
            nodes, row_ptr, col, weight, x = self._older.read(t)
            return self._remember(t, _Rebuilt(nodes, None, (row_ptr, col, weight), x))

    def _remember(self, t: int, found: _Rebuilt) -> _Rebuilt:
        self._recent[t] = found
        while len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        return found

    def _near(self, t: int) -> tuple[int, Keyed] | None:
        """The latest snapshot up to t whose arcs are at hand."""
        known = [(at, each.arcs) for at, each in self._recent.items() if at <= t and each.arcs is not None]
        return max(known, key=lambda one: one[0], default=None)
