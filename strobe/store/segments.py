"""What one server keeps of features: whole rows once, then only the stretches of them that change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, read_only
from strobe.ops.csr import IntArray
from strobe.store.first_and_later import FirstAndLater
from strobe.store.marks import Marks
from strobe.store.references import References
from strobe.store.row_pieces import PackedRows, Pieces, put
from strobe.store.sorted_keys import Moves, merged, moves
from strobe.store.stretches import (
    Cuts,
    changed_segments,
    stretches,
)

Known = tuple[int, IntArray, Array]
"""A snapshot with its nodes and whole rows."""


@dataclass(frozen=True, eq=False)
class _Later:
    """A snapshot as its difference to the one before."""

    t: int
    gone: Marks  # nodes of before that left
    arrived: IntArray  # ids
    changed: Pieces  # over the nodes of now; of nodes that arrived, all but zeros

    def arrays(self) -> Iterator[Array]:
        yield from (self.gone.held, self.arrived, *self.changed.arrays())


class Segments(FirstAndLater[tuple[int, IntArray, PackedRows], _Later]):
    """Nodes and their rows of features in the snapshots of a window, on one server.

    A row is cut into ``segments`` stretches (fewer where it is shorter). The first snapshot has all its rows whole. In
    a later one a node that was not in the snapshot before is stored whole; of others only the segments whose bits are
    not those of before. A segment that did not change is *where it was last stored*: that place is not kept but found
    again, from one bit per node and segment, when rows are asked for. Nor are segments of whole rows kept that are all
    zeros.

    ``drop`` takes the oldest snapshot out: segments that the second still refers to are put together with those it
    stored itself to whole rows, the new first ones; whatever nobody refers to any more is freed with the old ones.
    Later snapshots do not change by that.

    Cost: a snapshot of n nodes takes their changed segments, S bits a node, and ids of those that arrived. To rebuild
    rows: one pass over S numbers a node for every snapshot back to the first, then each row is copied once.
    """

    def __init__(self, segments: int = 4) -> None:
        if segments < 1:
            raise OptionError(f"a row is cut into 1 segment or more, not {segments}")
        super().__init__()
        self._segments = segments
        self._found: tuple[list[int], dict[int, References]] | None = None  # of which snapshots

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """The next snapshot: ids, ascending, and their rows, [n, F]."""
        if self._first is None:
            _refuse_rows(nodes, x)
            self._first = t, _own(nodes), PackedRows.of(x, self._cuts(x))
            return
        self._refuse(t, nodes, x)
        nodes_before, before = self.nodes(self.times[-1]), self.rows(self.times[-1])
        how = moves(nodes_before, nodes)
        cuts = self._cuts(x)
        changed = Pieces.of(x, changed_segments(how, before, x, cuts), cuts)
        arrived = nodes[how.new].astype(nodes_before.dtype, copy=False)
        self._later.append(_Later(t, Marks.of(~how.stay), arrived, changed))

    def _whole(self, t: int) -> tuple[int, IntArray, PackedRows]:
        rows = self.rows(t)
        return t, _own(self.nodes(t)), PackedRows.of(rows, self._cuts(rows), copy=False)

    def nodes(self, t: int) -> IntArray:
        """The nodes of snapshot t, ascending."""
        self._refuse_unknown(t)
        assert self._first is not None
        return read_only(_followed(self._first[1], self._later[: self.times.index(t)])[0])

    def rows(self, t: int, nodes: IntArray | None = None, near: Known | None = None) -> Array:
        """The rows of snapshot t as they were added, to the bit: all of them, or those of some nodes.

        ``near`` spares part of the way, where an earlier snapshot is at hand.
        """
        start, there, whole = self._start(t, near)
        later = self._later[start : self.times.index(t)]
        there, steps = _followed(there, later)
        wanted = None if nodes is None else _positions(there, nodes, t)
        if wanted is None and not later:
            return read_only(whole)
        places = iter(_places(there.size, wanted, steps))
        rows: Array = np.zeros((there.size if wanted is None else wanted.size, whole.shape[1]), whole.dtype)
        put(rows, whole, next(places))
        for each, place in zip(later, places, strict=True):
            each.changed.put(rows, self._cuts(whole), place)
        return rows

    def pick(self, t: int, at: IntArray) -> Array:
        """The rows of some nodes of snapshot t, by their positions in it, in any order.

        It finds out once where all segments of the snapshot are stored, and knows it until snapshots come or go.
        """
        if self._found is None or self._found[0] != self.times:
            self._found = self.times, {}
        if t not in self._found[1]:
            self._refuse_unknown(t)
            assert self._first is not None
            _, nodes, whole = self._first
            later = self._later[: self.times.index(t)]
            found = References(whole)
            for each, how in zip(later, _followed(nodes, later)[1], strict=True):
                found.follow(how, each.changed)
            self._found[1][t] = found
        return self._found[1][t].pick(at)

    def arrays(self) -> Iterator[Array]:
        """Everything that is allocated."""
        if self._first is not None:
            yield self._first[1]
            yield from self._first[2].arrays()
        for later in self._later:
            yield from later.arrays()

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def _start(self, t: int, near: Known | None = None) -> tuple[int, IntArray, Array]:
        """Where the way to snapshot t begins: the place of a snapshot in the window, its nodes, its rows."""
        self._refuse_unknown(t)
        if near is not None and near[0] in self.times and near[0] <= t:
            return self.times.index(near[0]), *near[1:]
        assert self._first is not None
        return 0, self._first[1], self._first[2].unpacked()

    def _cuts(self, x: Array) -> Cuts:
        return stretches(x.shape[1], self._segments)

    def _refuse(self, t: int, nodes: IntArray, x: Array) -> None:
        _refuse_rows(nodes, x)
        assert self._first is not None
        if t <= self.times[-1]:
            raise InputError(f"snapshots come in order of time: {t} after {self.times[-1]}")
        whole = self._first[2]
        if x.shape[1] != whole.width or x.dtype != whole.kind:
            raise InputError(
                f"snapshot {t} has rows of {x.shape[1]} {x.dtype}, those before have {whole.width} {whole.kind}"
            )

    def _refuse_unknown(self, t: int) -> None:
        if t not in self.times:
            raise InputError(f"snapshot {t} is not in the window, which has {self.times}")


def _followed(nodes: IntArray, later: list[_Later]) -> tuple[IntArray, list[Moves]]:
    """The nodes of the last of some snapshots, and how they came about."""
    steps = []
    for each in later:
        nodes, how = merged(nodes, each.gone, each.arrived)
        steps.append(how)
    return nodes, steps


def _places(size: int, wanted: IntArray | None, steps: list[Moves]) -> list[IntArray | None]:
    """For each snapshot on the way where its nodes are among the wanted of the last, -1 if they are not; None where
    they are all there, in order. What a node had before it left is not what it has when it is back."""
    place: IntArray | None = None
    if wanted is not None:
        place = np.full(size, -1)
        place[wanted] = np.arange(wanted.size)
    places = [place]
    for how in reversed(steps):
        if not how.nothing:
            place = how.places(np.arange(how.new.size) if place is None else place)
        places.append(place)
    return places[::-1]


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
