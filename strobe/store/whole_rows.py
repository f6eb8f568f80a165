"""What one server keeps of features: whole rows of every snapshot."""

from __future__ import annotations

from strobe.errors import OptionError
from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray


class WholeRows:
    """Nodes and their rows of features in the snapshots of a window, on one server, each snapshot by itself."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[IntArray, Array]] = {}

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """The next snapshot: ids, ascending, and their rows, [n, F]."""
        self._held[t] = nodes, x

    def drop(self) -> int:
        """Takes the oldest snapshot out; which one it was."""
        if not self._held:
            raise OptionError("there is no snapshot to drop: add one first")
        t = next(iter(self._held))
        del self._held[t]
        return t

    def pick(self, t: int, at: IntArray) -> Array:
        """The rows of some nodes of snapshot t, by their positions in what was added, in any order."""
        rows: Array = self._held[t][1][at]
        return rows
