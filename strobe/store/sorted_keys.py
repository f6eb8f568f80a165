"""Ascending numbers that change from one snapshot to the next: ids of nodes, keys of arcs.

A number may be there several times, as parallel edges are. The n-th of some equal ones is then the n-th of before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.graph.arrays import Array, read_only
from strobe.ops.csr import IntArray
from strobe.store.marks import Marks, Mask


@dataclass(frozen=True, eq=False)
class Moves:
    """Where numbers come from: those of before that stay, in their order, and which of now are new."""

    stay: Mask  # over before
    new: Mask  # over now

    @classmethod
    def all_new(cls, size: int) -> Moves:
        """Nothing was there before."""
        return cls(np.zeros(0, np.bool_), np.ones(size, np.bool_))

    @property
    def nothing(self) -> bool:
        """Whether all numbers are those of before."""
        return not self.new.any() and bool(self.stay.all())

    def carried(self, before: Array, arrived: Array) -> Array:
        """What goes with the numbers: that of those that stay, and what new ones brought."""
        now: Array = np.empty((self.new.size, *before.shape[1:]), before.dtype)
        now[np.flatnonzero(~self.new)] = before[np.flatnonzero(self.stay)]  # numbers are faster than masks
        now[np.flatnonzero(self.new)] = arrived
        return now

    def places(self, after: IntArray) -> IntArray:
        """Where numbers of before are, given where those of now are; -1 for those that are gone."""
        places = np.full(self.stay.size, -1, after.dtype)
        places[np.flatnonzero(self.stay)] = after[np.flatnonzero(~self.new)]
        return places


def moves(before: IntArray, now: IntArray) -> Moves:
    """What stays and what is new."""
    from strobe.store.loops import match  # numba takes its time to load

    stay, new = np.zeros(before.size, np.bool_), np.ones(now.size, np.bool_)
    match(read_only(before), read_only(now.astype(before.dtype, copy=False)), stay, new)
    return Moves(stay, new)


def merged(before: IntArray, gone: Marks, arrived: IntArray) -> tuple[IntArray, Moves]:
    """The numbers now, and how they came about. New ones stand behind equal ones that stayed."""
    stay = ~gone.mask()
    stayed = before[np.flatnonzero(stay)]
    at = np.searchsorted(stayed, arrived, side="right") + np.arange(arrived.size)
    new = np.zeros(stayed.size + arrived.size, np.bool_)
    new[at] = True
    now = np.empty(new.size, before.dtype)
    now[at], now[np.flatnonzero(~new)] = arrived, stayed
    return now, Moves(stay, new)
