"""Nodes by name, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from strobe.ops.csr import IntArray


class Known:
    """Which node has a name. All names are in memory, at some hundred bytes each."""

    def __init__(self, names: Iterable[int | str]) -> None:
        self._nodes = {name: node for node, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._nodes)

    def find(self, names: Iterable[int | str]) -> IntArray:
        """The nodes of these names, -1 where a name is new."""
        return np.array([self._nodes.get(name, -1) for name in names], np.int64)

    def add(self, names: Iterable[int | str]) -> None:
        """Numbers new names from here on."""
        for name in names:
            self._nodes[name] = len(self._nodes)
