"""The names nodes had where they came from: integers or strings, sorted, searched without loading them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, UnknownNameError

Array = npt.NDArray[Any]


class NodeNames(Sequence["int | str"]):
    """Names of nodes 0..N-1 in ascending order, so that finding one is a binary search.

    Integers are one int64 array; strings are their UTF-8 bytes end to end with N + 1 offsets. Both stay
    memory-mapped.
    """

    def __init__(self, *, integers: Array | None = None, ptr: Array | None = None, text: Array | None = None):
        self._integers = integers
        self._ptr = ptr
        self._text = text

    @classmethod
    def of(cls, names: Iterable[int] | Iterable[str]) -> Self:
        """From names in ascending order (strings: in order of their UTF-8 bytes)."""
        listed: list[Any] = list(names)
        if all(isinstance(name, int | np.integer) for name in listed):
            _check_ascending(listed, listed)
            try:
                return cls(integers=np.asarray(listed, np.int64))
            except OverflowError as error:
                raise InputError("integer names must fit into 64 bits; give larger ones as strings") from error
        wrong = [name for name in listed if not isinstance(name, str)]
        if wrong:
            raise InputError(f"names must be all integers or all strings, {wrong[0]!r} is among others")
        try:
            encoded = [name.encode() for name in listed]
        except UnicodeEncodeError as error:
            raise InputError(f"the name {error.object!r} is not valid text") from error
        _check_ascending(encoded, listed)
        ptr = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=ptr[1:])
        return cls(ptr=ptr, text=np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        if self._integers is not None:
            return int(self._integers.size)
        assert self._ptr is not None
        return int(self._ptr.size - 1)

    def __getitem__(self, node: Any) -> Any:
        if isinstance(node, slice):
            return [self[i] for i in range(*node.indices(len(self)))]
        if not -len(self) <= node < len(self):
            raise IndexError(f"node {node} of {len(self)}")
        if self._integers is not None:
            return int(self._integers[node])
        return self._bytes(int(node) % len(self)).decode()

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[node]) for node in range(min(len(self), 5)))
        return f"NodeNames({shown}{', …' if len(self) > 5 else ''}; {len(self):,} in all)"

    def __iter__(self) -> Iterator[int | str]:
        return (self[node] for node in range(len(self)))

    def find(self, name: int | str) -> int:
        """The node that has this name. Raises UnknownNameError, with the names next to it."""
        if self._integers is not None:
            try:
                at = bisect.bisect_left(self._integers, int(str(name)))
            except ValueError:  # no integer at all
                at = 0
        else:
            at = bisect.bisect_left(range(len(self)), str(name).encode(), key=self._bytes)
        if at < len(self) and str(self[at]) == str(name):
            return at
        raise UnknownNameError("node", name, [str(n) for n in self[max(0, at - 3) : at + 3]])

    def arrays(self) -> dict[str, Array]:
        """The arrays to store, by name."""
        if self._integers is not None:
            return {"name_int": self._integers}
        assert self._ptr is not None
        assert self._text is not None
        return {"name_ptr": self._ptr, "name_text": self._text}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self | None:
        """The inverse of ``arrays``; None where a graph has no names."""
        if "name_int" in arrays:
            return cls(integers=arrays["name_int"])
        if "name_ptr" in arrays:
            return cls(ptr=arrays["name_ptr"], text=arrays["name_text"])
        return None

    def _bytes(self, node: int) -> bytes:
        assert self._ptr is not None
        assert self._text is not None
        return self._text[self._ptr[node] : self._ptr[node + 1]].tobytes()


def _check_ascending(keys: Sequence[Any], names: Sequence[Any]) -> None:
    for (before, key), (first, second) in zip(itertools.pairwise(keys), itertools.pairwise(names), strict=True):
        if before >= key:
            raise InputError(f"names must ascend and be unique, but {second!r} comes after {first!r}")
