"""What is kept of edges: those of the first snapshot, then what is deleted, inserted and weighted anew.

An arc is one int64, destination times N plus source, so that ascending keys are a snapshot's rows one after the other.
Of an undirected edge only the arc to the higher end is kept; the other one is made when rows are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array, read_only
from strobe.graph.storage import Rows
from strobe.ops.csr import FloatArray, IntArray, expand_rows, index_dtype, row_pointers, transpose
from strobe.store.first_and_later import FirstAndLater
from strobe.store.marks import Marks
from strobe.store.packed_keys import PackedKeys
from strobe.store.sorted_keys import Moves, merged, moves


class Keyed(NamedTuple):
    """Arcs as ascending keys, with weights where there are any."""

    keys: IntArray
    weight: FloatArray | None


@dataclass(frozen=True, eq=False)
class _Later:
    """A snapshot as its difference to the one before."""

    t: int
    deleted: Marks  # over arcs of before
    inserted: PackedKeys
    weight: FloatArray | None  # of those inserted
    reweighted: Marks | None  # over arcs of now
    new_weight: FloatArray | None  # of those

    def arrays(self) -> Iterator[Array]:
        yield self.deleted.held
        yield from self.inserted.held
        if self.weight is not None and self.reweighted is not None and self.new_weight is not None:
            yield from (self.weight, self.reweighted.held, self.new_weight)


class Arcs(FirstAndLater[tuple[int, PackedKeys, FloatArray | None], _Later]):
    """The arcs of the snapshots of a window.

    ``drop`` takes the oldest snapshot out: the first difference is applied to its arcs. Of parallel edges the n-th is
    compared with the n-th. Cost of a later snapshot: a bit per arc of before or 4 bytes per deleted one, 4 to 8 bytes
    and a weight per inserted one, a weight and as few for each that changed.
    """

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self._n = num_nodes

    def add(self, t: int, arcs: Keyed, near: tuple[int, Keyed] | None = None) -> None:
        """The next snapshot; ``near`` spares the way to the last one, where its arcs are at hand."""
        keys, weight = arcs
        if self._first is None:
            own = None if weight is None else np.array(weight)
            self._first = t, PackedKeys.of(np.array(keys, np.int64), self._n), own
            return
        if t <= self.times[-1]:
            raise InputError(f"snapshots come in order of time: {t} after {self.times[-1]}")
        before = self.keyed(self.times[-1], near)
        how = moves(before.keys, keys)
        inserted = PackedKeys.of(keys[how.new], self._n)
        reweighted, new_weight = _reweighted(how, before.weight, weight)
        of_inserted = None if weight is None else weight[how.new]
        self._later.append(_Later(t, Marks.of(~how.stay), inserted, of_inserted, reweighted, new_weight))

    def _whole(self, t: int) -> tuple[int, PackedKeys, FloatArray | None]:
        keys, weight = self.keyed(t)
        return t, PackedKeys.of(keys, self._n), weight

    def keyed(self, t: int, near: tuple[int, Keyed] | None = None) -> Keyed:
        """The arcs of snapshot t, from the first, or from a ``near`` one that is not later."""
        times = self.times
        if t not in times:
            raise InputError(f"snapshot {t} is not in the window, which has {times}")
        assert self._first is not None
        if near is not None and near[0] in times and near[0] <= t:
            start, arcs = times.index(near[0]), near[1]
        else:
            start, arcs = 0, Keyed(self._first[1].unpacked(self._n), self._first[2])
        for later in self._later[start : times.index(t)]:
            arcs = self._after(arcs, later)
        return arcs

    def arrays(self) -> Iterator[Array]:
        """Everything that is allocated."""
        if self._first is not None:
            _, keys, weight = self._first
            yield from keys.held
            if weight is not None:
                yield weight
        for later in self._later:
            yield from later.arrays()

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def _after(self, arcs: Keyed, later: _Later) -> Keyed:
        keys, how = merged(arcs.keys, later.deleted, later.inserted.unpacked(self._n))
        if arcs.weight is None:
            return Keyed(keys, None)
        assert later.weight is not None
        assert later.reweighted is not None
        weight = how.carried(arcs.weight, later.weight)
        weight[later.reweighted.numbers()] = later.new_weight
        return Keyed(keys, weight)


def keyed(nodes: IntArray, rows: Rows, num_nodes: int, *, directed: bool) -> Keyed:
    """The arcs of a snapshot as keys; of an undirected edge the one to its higher end."""
    row_ptr, col, weight = rows
    keys = np.repeat(nodes.astype(np.int64) * num_nodes, np.diff(row_ptr))
    keys += nodes[col]
    if directed:
        return Keyed(keys, weight)
    lower = col <= expand_rows(row_ptr)
    return Keyed(keys[lower], None if weight is None else weight[lower])


def as_rows(arcs: Keyed, nodes: IntArray, num_nodes: int, *, directed: bool) -> Rows:
    """The arcs between nodes that are present as rows of a snapshot."""
    dst = arcs.keys // max(num_nodes, 1)
    src = arcs.keys - dst * num_nodes
    if len(nodes) < num_nodes:
        place = np.empty(num_nodes, np.int64)
        place[nodes] = np.arange(len(nodes))
        dst, src = place[dst], place[src]
    row_ptr = row_pointers(np.bincount(dst, minlength=len(nodes)))
    col: IntArray = src.astype(index_dtype(num_nodes))
    rows = (row_ptr, col, arcs.weight) if directed else _mirrored(row_ptr, col, arcs.weight)
    return read_only(rows[0]), read_only(rows[1]), None if rows[2] is None else read_only(rows[2])


def _mirrored(row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Rows:
    """A symmetric matrix from its lower half: a row is what the half has in it, then what it has in the column."""
    row = expand_rows(row_ptr)
    strict = col < row
    own_degree = np.diff(row_ptr)
    upper_ptr, upper_col, origin = transpose(
        row_pointers(np.bincount(row[strict], minlength=own_degree.size)), col[strict], own_degree.size
    )
    both = row_pointers(own_degree + np.diff(upper_ptr))
    joined = np.empty(int(both[-1]), col.dtype)
    lower_at = np.arange(col.size) + upper_ptr[row]
    upper_row = expand_rows(upper_ptr)
    upper_at = np.arange(upper_col.size) + row_ptr[upper_row + 1]
    joined[lower_at], joined[upper_at] = col, upper_col
    if weight is None:
        return both, joined, None
    of_both = np.empty(joined.size, weight.dtype)
    of_both[lower_at], of_both[upper_at] = weight, weight[strict][origin]
    return both, joined, of_both


def _reweighted(
    how: Moves, before: FloatArray | None, now: FloatArray | None
) -> tuple[Marks | None, FloatArray | None]:
    """Arcs that stayed with another weight, to the bit."""
    if before is None or now is None:
        return None, None
    bits = f"u{now.itemsize}"
    other = np.zeros(now.size, np.bool_)
    other[~how.new] = before[how.stay].view(bits) != np.ascontiguousarray(now[~how.new]).view(bits)
    return Marks.of(other), now[other]
