"""What ranks keep of the last snapshots, in bytes: a row where a node comes, what changed of it while it stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.arriving import NOWHERE

NUMBER = 4
"""Bytes of a feature, a float32."""


@dataclass(frozen=True)
class RowBytes:
    """Bytes that a rank keeps for a cell: ``full`` where its node was not on the rank in the snapshot before, else
    ``change``, what is taken to change of a row."""

    full: int
    change: int

    @classmethod
    def of(cls, snapshot: Snapshot, segments: int) -> RowBytes:
        """A row has the columns of the features, without features 1; one of its segments changes, the longest."""
        columns = max(1, snapshot.features.shape[0]) if snapshot.features is not None else 1
        return cls(NUMBER * columns, NUMBER * -(-columns // segments))

    def of_new(self, window: int) -> IntArray:
        """What a cell takes if its node is new on a rank and then stays there: in its own snapshot and in each of the
        next, as long as it is kept, [window]."""
        return self.full + self.change * np.arange(window)

    def of_staying(self, window: int) -> IntArray:
        """The same if its node was there before: when only this one is left, its row is full."""
        taken = self.change * np.arange(1, window + 1)
        taken[-1] += self.full - self.change
        return taken


class Kept:
    """How many cells every rank has of each snapshot of a window, and how many of them were there before.

    Bytes follow from that: in the first snapshot of a window all rows are full, since what they were changed from is
    no longer there; in later ones, rows of nodes that came.
    """

    def __init__(self, window: int, num_ranks: int) -> None:
        self._window = window
        self._cells = np.zeros((0, num_ranks), np.int64)  # [m, W], the latest snapshot last
        self._stayed = np.zeros((0, num_ranks), np.int64)

    def add(self, owner: IntArray, last: IntArray) -> None:
        """Another snapshot with these owners, [n], whose nodes were on ranks ``last`` in the one before."""
        num_ranks = self._cells.shape[1]
        cells = np.bincount(owner, minlength=num_ranks)[None]
        stayed = np.bincount(owner[owner == last], minlength=num_ranks)[None]
        self._cells = np.concatenate((self._cells, cells))[-self._window :]
        self._stayed = np.concatenate((self._stayed, stayed))[-self._window :]

    def ahead(self, rows: RowBytes, *, placed: bool) -> IntArray:
        """Bytes of every rank now and in each of the next snapshots, of what there is, [window, W]. ``placed``: the
        latest snapshot is now; else now is the one that comes after it."""
        left = self._window + placed - 1 - np.arange(self._window)
        return np.stack([self.of_last(number, rows) for number in left.tolist()])

    def of_last(self, number: int, rows: RowBytes) -> IntArray:
        """Bytes of every rank, [W], when only so many of the latest snapshots are left."""
        latest = slice(max(0, len(self._cells) - number), None)
        cells, stayed = self._cells[latest], self._stayed[latest]
        taken = rows.full * cells.sum(0) - (rows.full - rows.change) * stayed[1:].sum(0)
        return np.asarray(taken, np.int64)

    def remembered(self) -> dict[str, Any]:
        return {"cells": self._cells.copy(), "stayed": self._stayed.copy()}

    def recall(self, found: dict[str, Any]) -> None:
        self._cells, self._stayed = (np.array(found[name], np.int64) for name in ("cells", "stayed"))


def enough(ahead: IntArray, last: IntArray, rows: RowBytes, slack: float = 1.0) -> int:
    """Bytes of every rank with which nodes that were on ranks ``last``, [n], can surely be placed.

    ``ahead``: what ranks will hold of what they have, now and in each of the next snapshots, [window, W]. All nodes
    could stay where they are; and those that are new find room, as ranks have ``slack`` times an even share of what
    all take together, if they stay, when that is most, and a row more.
    """
    window, num_ranks = ahead.shape
    staying = np.bincount(last[last != NOWHERE], minlength=num_ranks)
    num_new = len(last) - int(staying.sum())
    level = ahead[0] + rows.of_staying(window)[0] * staying
    total = ahead.sum(1) + rows.of_staying(window) * staying.sum() + rows.of_new(window) * num_new
    return max(int(level.max()), int(np.ceil(slack * (int(total.max()) / num_ranks))) + rows.full)
