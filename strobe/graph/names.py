"""Original names of nodes, integers or strings, searched without loading them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from strobe.errors import InputError, UnknownNameError
from strobe.graph.arrays import Array
from strobe.graph.disk.metadata import NAME_ARRAYS

_LOWEST = -(2**63)


class NodeNames(Sequence["int | str"]):
    """Names of nodes 0..N-1, found by binary search.

    Integers are one int64 array; strings are concatenated UTF-8 bytes with N + 1 offsets. If names do not ascend
    (strings: by their bytes), ``order`` lists the nodes by ascending name. All arrays stay memory-mapped.
    """

    def __init__(self, **arrays: Array) -> None:
        self._arrays = arrays  # name_int; or name_ptr and name_text; name_order

    @classmethod
    def from_names(cls, names: Iterable[int] | Iterable[str], *, in_any_order: bool = False) -> Self:
        """Make names from a sequence in ascending order (strings: of UTF-8 bytes) or in any order."""
        listed: list[Any] = list(names)
        if all(isinstance(name, int | np.integer) for name in listed):
            order = _order(listed, listed, in_any_order)
            try:
                return cls(name_int=np.asarray(listed, np.int64), **order)
            except OverflowError as error:
                raise InputError("integer names must fit into 64 bits; give larger ones as strings") from error
        wrong = [name for name in listed if not isinstance(name, str)]
        if wrong:
            raise InputError(f"names must be all integers or all strings, {wrong[0]!r} is among others")
        try:
            encoded = [name.encode() for name in listed]
        except UnicodeEncodeError as error:
            raise InputError(f"the name {error.object!r} is not valid text") from error
        order = _order(encoded, listed, in_any_order)
        ptr = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=ptr[1:])
        return cls(name_ptr=ptr, name_text=np.frombuffer(b"".join(encoded), np.uint8), **order)

    def arrays(self) -> Mapping[str, Array]:
        """Return the arrays to store, by name."""
        return self._arrays

    def __len__(self) -> int:
        arrays = self.arrays()
        return int(arrays["name_int"].size if "name_int" in arrays else arrays["name_ptr"].size - 1)

    def __getitem__(self, node: Any) -> Any:
        if isinstance(node, slice):
            return [self[i] for i in range(*node.indices(len(self)))]
        if not -len(self) <= node < len(self):
            raise IndexError(f"node {node} of {len(self)}")
        name = self._key(int(node) % len(self))
        return name if isinstance(name, int) else name.decode()

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[node]) for node in range(min(len(self), 5)))
        return f"NodeNames({shown}{', …' if len(self) > 5 else ''}; {len(self):,} in all)"

    def find(self, name: int | str) -> int:
        """Return the node with this name.

        Raises:
            UnknownNameError: no node has it; the message lists its neighbors in order.
        """
        wanted: Any = str(name).encode()
        if "name_int" in self.arrays():
            try:
                wanted = int(str(name))
            except ValueError:  # not an integer
                wanted = _LOWEST
        at = bisect.bisect_left(range(len(self)), wanted, key=lambda rank: self._key(self._node_at_rank(rank)))
        if at < len(self) and str(self[node := self._node_at_rank(at)]) == str(name):
            return node
        near = range(max(0, at - 3), min(at + 3, len(self)))
        raise UnknownNameError("node", name, [str(self[self._node_at_rank(rank)]) for rank in near])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self | None:
        """Make names from the result of ``arrays``; None if the graph has no names."""
        if "name_int" not in arrays and "name_ptr" not in arrays:
            return None
        return cls(**{name: arrays[name] for name in NAME_ARRAYS if name in arrays})

    def _key(self, node: int) -> Any:
        """Return the sort key of a name: an integer, or bytes."""
        arrays = self.arrays()
        if "name_int" in arrays:
            return int(arrays["name_int"][node])
        ptr = arrays["name_ptr"]
        return arrays["name_text"][ptr[node] : ptr[node + 1]].tobytes()

    def _node_at_rank(self, rank: int) -> int:
        """Return the node at this place in ascending order of names."""
        order = self.arrays().get("name_order")
        return rank if order is None else int(order[rank])


def _order(keys: Sequence[Any], names: Sequence[Any], in_any_order: bool) -> dict[str, Array]:
    """Return the array of nodes by ascending key; nothing if keys already ascend."""
    order = sorted(range(len(keys)), key=keys.__getitem__) if in_any_order else range(len(keys))
    for first, second in itertools.pairwise(order):
        if keys[first] >= keys[second]:
            if in_any_order:
                raise InputError(f"names must be unique, but two nodes are named {names[first]!r}")
            raise InputError(f"names must ascend and be unique, but {names[second]!r} comes after {names[first]!r}")
    ascend = all(node == rank for rank, node in enumerate(order))
    return {} if ascend else {"name_order": np.array(order, np.int64)}
