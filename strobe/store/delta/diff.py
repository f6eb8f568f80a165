"""Differences between consecutive snapshots: sorted keys (node ids, arc keys), and a window of deltas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, read_only
from strobe.ops.sparse.csr import IntArray
from strobe.store.delta.codecs import CompactMask, Mask
from strobe.store.delta.kernels import match_keys


@dataclass(frozen=True, eq=False)
class KeyDiff:
    """Difference of ascending keys, in which the n-th of equal keys matches the n-th."""

    stay: Mask  # over previous keys
    new: Mask  # over current keys

    @classmethod
    def all_new(cls, size: int) -> KeyDiff:
        """Difference to no keys."""
        return cls(np.zeros(0, np.bool_), np.ones(size, np.bool_))

    @property
    def is_empty(self) -> bool:
        """Whether the keys are unchanged."""
        return not self.new.any() and bool(self.stay.all())

    def apply(self, before: Array, inserted: Array) -> Array:
        """Values of the current keys, from previous values and those of inserted keys."""
        now: Array = np.empty((self.new.size, *before.shape[1:]), before.dtype)
        now[np.flatnonzero(~self.new)] = before[np.flatnonzero(self.stay)]  # indices are faster than masks
        now[np.flatnonzero(self.new)] = inserted
        return now

    def map_positions(self, after: IntArray) -> IntArray:
        """Map previous keys to the positions ``after`` of current keys; -1 for deleted ones."""
        positions = np.full(self.stay.size, -1, after.dtype)
        positions[np.flatnonzero(self.stay)] = after[np.flatnonzero(~self.new)]
        return positions


def diff_keys(before: IntArray, now: IntArray) -> KeyDiff:
    """Compare ascending keys."""
    stay, new = np.zeros(before.size, np.bool_), np.ones(now.size, np.bool_)
    match_keys(read_only(before), read_only(now.astype(before.dtype, copy=False)), stay, new)
    return KeyDiff(stay, new)


def merge_keys(before: IntArray, deleted: CompactMask, inserted: IntArray) -> tuple[IntArray, KeyDiff]:
    """Apply deletions and insertions: current keys and their difference. Inserted keys follow equal ones."""
    stay = ~deleted.to_mask()
    stayed = before[np.flatnonzero(stay)]
    at = np.searchsorted(stayed, inserted, side="right") + np.arange(inserted.size)
    new = np.zeros(stayed.size + inserted.size, np.bool_)
    new[at] = True
    now = np.empty(new.size, before.dtype)
    now[at], now[np.flatnonzero(~new)] = inserted, stayed
    return now, KeyDiff(stay, new)


class SnapshotDelta(Protocol):
    """Difference of a snapshot to the previous one."""

    @property
    def t(self) -> int: ...


First = TypeVar("First", bound=tuple[Any, ...])
Later = TypeVar("Later", bound=SnapshotDelta)


class DeltaWindow(ABC, Generic[First, Later]):
    """Snapshots in order of time: the first in full, as a tuple that begins with its number, then differences."""

    def __init__(self) -> None:
        self._first: First | None = None
        self._later: list[Later] = []

    @property
    def times(self) -> list[int]:
        """Snapshots in the window, ascending."""
        return [] if self._first is None else [int(self._first[0]), *(later.t for later in self._later)]

    def drop(self) -> int:
        """Remove the oldest snapshot, materialize the second, and return the number of the removed one."""
        if self._first is None:
            raise OptionError("no snapshot to drop: add one first")
        t = int(self._first[0])
        self._first = self._materialize(self._later[0].t) if self._later else None
        del self._later[:1]
        return t

    @abstractmethod
    def _materialize(self, t: int) -> First:
        """Snapshot t in full."""

    @abstractmethod
    def arrays(self) -> Iterator[Array]:
        """All allocated arrays."""

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def _check_order(self, t: int) -> None:
        if t <= self.times[-1]:
            raise InputError(f"snapshots must be added in order of time, not {t} after {self.times[-1]}")

    def _check_known(self, t: int) -> None:
        if t not in self.times:
            raise InputError(f"snapshot {t} is not in the window, which has {self.times}")
