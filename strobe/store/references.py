"""Where each stretch of each row was last stored, for rows that are asked for again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray
from strobe.store.marks import Marks
from strobe.store.sorted_keys import Moves


class References:
    """Of every node of a snapshot and every segment: in which snapshot it is stored, and as which of the rows there.

    Memory: 5 bytes a node and segment. To pick rows each of them is copied once, whatever their number.
    """

    def __init__(self, first: Array, cuts: Sequence[tuple[int, int]]) -> None:
        self._cuts, self._dtype, self._width = cuts, first.dtype, first.shape[1]
        self._stored: list[list[Array]] = [[first[:, a:b] for a, b in cuts]]
        self._source: npt.NDArray[np.uint8] = np.zeros((len(cuts), len(first)), np.uint8)
        self._index: npt.NDArray[np.int32] = np.tile(np.arange(len(first), dtype=np.int32), (len(cuts), 1))

    def follow(self, how: Moves, changed: Sequence[Marks], rows: Sequence[Array]) -> None:
        """On to the next snapshot."""
        source = np.zeros((len(self._cuts), how.new.size), np.uint8)
        index = np.zeros((len(self._cuts), how.new.size), np.int32)
        source[:, ~how.new], index[:, ~how.new] = self._source[:, how.stay], self._index[:, how.stay]
        for segment, marks in enumerate(changed):
            at = marks.numbers()
            source[segment, at], index[segment, at] = len(self._stored), np.arange(at.size, dtype=np.int32)
        self._source, self._index = source, index
        self._stored.append(list(rows))

    def pick(self, at: IntArray) -> Array:
        """The rows of some nodes, by their positions, in any order."""
        rows: Array = np.empty((at.size, self._width), self._dtype)
        for segment, (a, b) in enumerate(self._cuts):
            source, index = self._source[segment, at], self._index[segment, at]
            for number, stored in enumerate(self._stored):
                here = np.flatnonzero(source == number)
                if here.size == at.size:
                    rows[:, a:b] = stored[segment][index]
                elif here.size:
                    rows[here, a:b] = stored[segment][index[here]]
        return rows
