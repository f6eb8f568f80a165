"""What one server keeps of features: whole rows once, then only the stretches of them that change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, read_only
from strobe.ops.csr import IntArray
from strobe.store.marks import Marks, Mask
from strobe.store.sorted_keys import Moves, merged, moves


@dataclass(frozen=True, eq=False)
class _Later:
    """A snapshot as its difference to the one before."""

    t: int
    gone: Marks  # nodes of before that left
    arrived: IntArray  # ids
    changed: tuple[Marks, ...]  # by segment, over the nodes of now; all segments of nodes that arrived
    rows: tuple[Array, ...]  # by segment, those that changed, [changed, width]

    def arrays(self) -> Iterator[Array]:
        yield from (self.gone.held, self.arrived, *(marks.held for marks in self.changed), *self.rows)


class Segments:
    """Nodes and their rows of features in the snapshots of a window, on one server.

    A row is cut into ``segments`` stretches (fewer where it is shorter). The first snapshot has all its rows whole. In
    a later one a node that was not in the snapshot before is stored whole; of others only the segments whose bits are
    not those of before. A segment that did not change is *where it was last stored*: that place is not kept but found
    again, from one bit per node and segment, when rows are asked for.

    ``drop`` takes the oldest snapshot out: segments that the second still refers to are put together with those it
    stored itself to whole rows, the new first ones; whatever nobody refers to any more is freed with the old ones.
    Later snapshots do not change by that.

    Cost: a snapshot of n nodes takes their changed segments, S bits a node, and ids of those that arrived. To rebuild
    rows: one pass over S numbers a node for every snapshot back to the first, then each row is copied once.
    """

    def __init__(self, segments: int = 4) -> None:
        if segments < 1:
            raise OptionError(f"a row is cut into 1 segment or more, not {segments}")
        self._segments = segments
        self._first: tuple[int, IntArray, Array] | None = None  # t, nodes, whole rows
        self._later: list[_Later] = []

    @property
    def times(self) -> list[int]:
        """Snapshots that are there, ascending."""
        return [] if self._first is None else [self._first[0], *(later.t for later in self._later)]

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """The next snapshot: ids, ascending, and their rows, [n, F]."""
        if self._first is None:
            _refuse_rows(nodes, x)
            self._first = t, _own(nodes), _own(x)
            return
        self._refuse(t, nodes, x)
        nodes_before, before = self.nodes(self.times[-1]), self.rows(self.times[-1])
        how = moves(nodes_before, nodes)
        changed = changed_segments(how, before, x, self._cuts(x))
        self._later.append(
            _Later(
                t,
                Marks.of(~how.stay),
                nodes[how.new].astype(nodes_before.dtype, copy=False),
                tuple(Marks.of(column) for column in changed),
                tuple(x[:, a:b][each] for each, (a, b) in zip(changed, self._cuts(x), strict=True)),
            )
        )

    def drop(self) -> int:
        """Takes the oldest snapshot out; which one it was."""
        if self._first is None:
            raise OptionError("there is no snapshot to drop: add one first")
        t = self._first[0]
        if self._later:
            second = self._later[0].t
            self._first = second, self.nodes(second), self.rows(second)
            del self._later[0]
        else:
            self._first = None
        return t

    def nodes(self, t: int) -> IntArray:
        """The nodes of snapshot t, ascending."""
        nodes, _ = self._up_to(t)
        return read_only(nodes)

    def rows(self, t: int, nodes: IntArray | None = None) -> Array:
        """The rows of snapshot t as they were added, to the bit: all of them, or those of some nodes."""
        there, place = self._places(t)
        assert self._first is not None
        whole, later = self._first[2], self._later[: self.times.index(t)]
        if nodes is None and not later:
            return read_only(whole)
        if nodes is not None:
            place = place[_positions(there, nodes, t)]
        rows: Array = np.empty((len(place), whole.shape[1]), whole.dtype)
        for segment, (a, b) in enumerate(self._cuts(whole)):
            _fetch(place[:, segment], [whole[:, a:b], *(each.rows[segment] for each in later)], rows[:, a:b])
        return rows

    @property
    def full_bytes(self) -> int:
        """Bytes of a node that is stored whole; 0 before the first snapshot."""
        return 0 if self._first is None else int(self._first[2].shape[1] * self._first[2].itemsize)

    def bytes_to_add(self, nodes: IntArray, x: Array) -> IntArray:
        """Bytes that each of these nodes would take in the next snapshot, [n]: whole, or only what changed since the
        last. Without the S bits a node, and the ids of those that arrive."""
        if self._first is None:
            _refuse_rows(nodes, x)
            return np.full(len(nodes), x.shape[1] * x.itemsize, np.int64)
        self._refuse(self.times[-1] + 1, nodes, x)
        how = moves(self.nodes(self.times[-1]), nodes)
        changed = changed_segments(how, self.rows(self.times[-1]), x, self._cuts(x))
        widths = [b - a for a, b in self._cuts(x)]
        return np.asarray(np.array(widths, np.int64) @ changed.astype(np.int64) * x.itemsize)

    def arrays(self) -> Iterator[Array]:
        """Everything that is allocated."""
        if self._first is not None:
            yield from self._first[1:]
        for later in self._later:
            yield from later.arrays()

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def _up_to(self, t: int) -> tuple[IntArray, list[Moves]]:
        """The nodes of snapshot t, and how they came about, from the second snapshot on."""
        self._refuse_unknown(t)
        assert self._first is not None
        nodes, steps = self._first[1], []
        for later in self._later[: self.times.index(t)]:
            nodes, how = merged(nodes, later.gone, later.arrived)
            steps.append(how)
        return nodes, steps

    def _places(self, t: int) -> tuple[IntArray, IntArray]:
        """The nodes of snapshot t, and where each segment was last stored, [n, S]: by segment, rows of the first
        snapshot are numbered first, then those of each later one."""
        nodes, steps = self._up_to(t)
        assert self._first is not None
        num_first, num_segments = len(self._first[1]), len(self._cuts(self._first[2]))
        stored = np.full(num_segments, num_first)
        place = np.repeat(np.arange(num_first)[:, None], num_segments, axis=1)
        for how, later in zip(steps, self._later, strict=False):
            place = place if how.nothing else how.carried(place)
            for segment, marks in enumerate(later.changed):
                changed = marks.numbers()
                place[changed, segment] = stored[segment] + np.arange(changed.size)
                stored[segment] += changed.size
        return nodes, place

    def _cuts(self, x: Array) -> list[tuple[int, int]]:
        return stretches(x.shape[1], self._segments)

    def _refuse(self, t: int, nodes: IntArray, x: Array) -> None:
        _refuse_rows(nodes, x)
        assert self._first is not None
        if t <= self.times[-1]:
            raise InputError(f"snapshots come in order of time: {t} after {self.times[-1]}")
        whole = self._first[2]
        if x.shape[1] != whole.shape[1] or x.dtype != whole.dtype:
            raise InputError(
                f"snapshot {t} has rows of {x.shape[1]} {x.dtype}, those before have {whole.shape[1]} {whole.dtype}"
            )

    def _refuse_unknown(self, t: int) -> None:
        if t not in self.times:
            raise InputError(f"snapshot {t} is not in the window, which has {self.times}")


def stretches(width: int, segments: int) -> list[tuple[int, int]]:
    """Where the segments of a row begin and end: as even as they can be, none empty."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


def changed_segments(how: Moves, before: Array, x: Array, cuts: list[tuple[int, int]]) -> Mask:
    """Which segments of which rows must be stored, [S, n]: those of new nodes, those with other bits than before."""
    old, new = (before, x) if how.nothing else (before[how.stay], x[~how.new])
    changed = np.ones((len(cuts), len(x)), np.bool_)
    for segment, (a, b) in enumerate(cuts):
        changed[segment, ~how.new] = (_bits(old[:, a:b]) != _bits(new[:, a:b])).any(axis=1)
    return changed


def _fetch(place: IntArray, blocks: list[Array], out: Array) -> None:
    """Rows by their number over all blocks, each copied once."""
    start = 0
    for block in blocks:
        here = np.flatnonzero((place >= start) & (place < start + len(block)))
        out[here] = block[place[here] - start]
        start += len(block)


def _bits(rows: Array) -> Array:
    """Rows as unsigned integers: NaN equals itself, and 0 is not -0."""
    return np.ascontiguousarray(rows).view(f"u{rows.itemsize}")


def _own(array: Array) -> Array:
    """A copy that holds nothing but itself."""
    return np.array(array, order="C")


def _positions(there: IntArray, nodes: IntArray, t: int) -> IntArray:
    at = np.searchsorted(there, nodes)
    missing = (at == there.size) | (there[np.minimum(at, there.size - 1)] != nodes) if there.size else nodes == nodes
    if missing.any():
        raise InputError(f"node {nodes[missing][0]} is not in snapshot {t} here")
    return at


def _refuse_rows(nodes: IntArray, x: Array) -> None:
    if x.ndim != 2 or len(x) != len(nodes):
        raise InputError(f"{len(nodes):,} nodes need as many rows of features, not an array of shape {x.shape}")
    if (nodes[1:] <= nodes[:-1]).any():
        raise InputError("nodes must be ascending, each once")
