"""Where each segment of each row was last stored, for rows that are asked for again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray
from strobe.store.row_pieces import PackedRows, Pieces
from strobe.store.sorted_keys import Moves

_ZEROS = 255
"""Stored nowhere: all of it is 0. A window of more snapshots than this is followed no further."""


class References:
    """Of every node of a snapshot and every segment: in which snapshot it is stored, and as which of the rows there.

    Memory: 5 bytes a node and segment. To pick rows each of them is copied once, whatever their number.
    """

    def __init__(self, first: PackedRows) -> None:
        self._cuts, self._kind, self._width = first.cuts, first.kind, first.width
        shape = len(first.cuts), first.num_rows
        self._source: npt.NDArray[np.uint8] = np.zeros(shape, np.uint8)
        self._index: npt.NDArray[np.int32] = np.tile(np.arange(first.num_rows, dtype=np.int32), (shape[0], 1))
        self._stored: list[Sequence[Array]] = []
        if isinstance(first.held, Pieces):
            self._source[:] = _ZEROS
            self._take(first.held)
        else:
            whole = first.held
            self._stored.append([whole[:, a:b] for a, b in first.cuts])

    def follow(self, how: Moves, changed: Pieces) -> None:
        """On to the next snapshot. What a node that arrives does not bring is 0."""
        source = np.full((len(self._cuts), how.new.size), _ZEROS, np.uint8)
        index = np.zeros((len(self._cuts), how.new.size), np.int32)
        source[:, ~how.new], index[:, ~how.new] = self._source[:, how.stay], self._index[:, how.stay]
        self._source, self._index = source, index
        self._take(changed)

    def pick(self, at: IntArray) -> Array:
        """The rows of some nodes, by their positions, in any order."""
        rows: Array = np.zeros((at.size, self._width), self._kind)
        for segment, (a, b) in enumerate(self._cuts):
            source, index = self._source[segment, at], self._index[segment, at]
            for number, stored in enumerate(self._stored):
                here = np.flatnonzero(source == number)
                if here.size == at.size:
                    rows[:, a:b] = stored[segment][index]
                elif here.size:
                    rows[here, a:b] = stored[segment][index[here]]
        return rows

    def _take(self, pieces: Pieces) -> None:
        number = len(self._stored)
        assert number < _ZEROS, "a window of so many snapshots is not followed"
        for segment, marks in enumerate(pieces.marks):
            at = marks.numbers()
            self._source[segment, at], self._index[segment, at] = number, np.arange(at.size, dtype=np.int32)
        self._stored.append(pieces.rows)
