"""Window of snapshots stored as deltas: compact masks, merged keys, and the base class of windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.diff import KeyDiff, Mask
from strobe.ops.sparse.csr import IntArray, index_dtype


@dataclass(frozen=True, eq=False)
class CompactMask:
    """A mask as packed bits or as indices, whichever is smaller."""

    size: int
    data: npt.NDArray[Any]  # uint8: packed bits; else indices

    @classmethod
    def of(cls, mask: Mask) -> CompactMask:
        dtype = np.dtype(index_dtype(mask.size))
        if int(np.count_nonzero(mask)) * dtype.itemsize < -(-mask.size // 8):
            return cls(mask.size, np.flatnonzero(mask).astype(dtype))
        return cls(mask.size, np.packbits(mask))

    def to_mask(self) -> Mask:
        """Boolean mask, [size]."""
        if self.data.dtype == np.uint8:
            return np.unpackbits(self.data, count=self.size).view(np.bool_)
        mask = np.zeros(self.size, np.bool_)
        mask[self.data] = True
        return mask

    def indices(self) -> IntArray:
        """Ascending indices of True."""
        return np.flatnonzero(self.to_mask()) if self.data.dtype == np.uint8 else self.data


def merge_keys(before: IntArray, deleted: CompactMask, inserted: IntArray) -> tuple[IntArray, KeyDiff]:
    """Apply deletions and insertions: current keys and their difference. Inserted keys follow equal ones."""
    stay = ~deleted.to_mask()
    stayed = before[np.flatnonzero(stay)]
    at = np.searchsorted(stayed, inserted, side="right") + np.arange(inserted.size)
    new = np.zeros(stayed.size + inserted.size, np.bool_)
    new[at] = True
    diff = KeyDiff(stay, new)
    return diff.apply(before, inserted), diff


class SnapshotDelta(Protocol):
    """Difference of a snapshot to the previous one."""

    @property
    def t(self) -> int: ...


First = TypeVar("First", bound=tuple[Any, ...])
Start = TypeVar("Start", bound=tuple[Any, ...])
Later = TypeVar("Later", bound=SnapshotDelta)


class DeltaWindow(ABC, Generic[First, Start, Later]):
    """Snapshots in order of time: the first in full, as a tuple that begins with its number, then differences.

    ``First`` is the first snapshot as stored, ``Start`` a snapshot as others are rebuilt from it.
    """

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

    def arrays(self) -> Iterator[Array]:
        """All allocated arrays."""
        return _arrays((self._first, self._later))

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    @abstractmethod
    def _unpack_first(self) -> Start:
        """The first snapshot as a start for rebuilding others."""

    def _rebuild_path(self, t: int, start_from: Start | None) -> tuple[Start, list[Later]]:
        """Snapshot from which t is rebuilt, ``start_from`` if it is in the window and not after t, and the deltas."""
        end = self._index(t)
        if start_from is None or start_from[0] not in self.times or start_from[0] > t:
            start_from = self._unpack_first()
        return start_from, self._later[self._index(start_from[0]) : end]

    def _index(self, t: int) -> int:
        if t not in self.times:
            raise InputError(f"snapshot {t} is not in the window, which has {self.times}")
        return self.times.index(t)

    def _check_order(self, t: int) -> None:
        if t <= self.times[-1]:
            raise InputError(f"snapshots must be added in order of time, not {t} after {self.times[-1]}")


def _arrays(value: object) -> Iterator[Array]:
    """Arrays in nested tuples, lists and dataclasses."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _arrays(each)
    elif is_dataclass(value):
        yield from _arrays(tuple(vars(value).values()))
