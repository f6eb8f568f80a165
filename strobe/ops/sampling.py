"""Some of the arcs that reach cells, drawn by lot: so many of each cell's, and so on from cell to cell."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.csr import FloatArray, IntArray

ALL = -1
"""A fan-out that leaves nothing out."""

_kept = threading.local()


@dataclass(frozen=True, eq=False)
class Sample:
    """Cells of a snapshot, targets first, then the others in the order in which they were found, and arcs among them.

    ``distance`` counts arcs to the nearest target. Rows of cells at the full distance are empty; the others have arcs
    that were drawn, in the order of the whole snapshot.
    """

    position: IntArray  # [c] where each cell stands in its snapshot
    distance: npt.NDArray[np.uint8]  # [c]
    row_ptr: IntArray  # [c + 1]
    col: IntArray  # [a] into the cells found
    arc: IntArray  # [a] where each stands among the arcs of its snapshot
    degree: IntArray  # [c] arcs that reach each cell in the whole snapshot

    @cached_property
    def reader(self) -> IntArray:
        """The cell that reads, of each arc."""
        return np.repeat(np.arange(len(self.position)), np.diff(self.row_ptr))

    @cached_property
    def share(self) -> FloatArray | None:
        """For how many arcs each one stands that was drawn; None where all of every row were."""
        drawn = np.diff(self.row_ptr)
        inner = drawn > 0
        if np.array_equal(drawn[inner], self.degree[inner]):
            return None
        share: FloatArray = (self.degree[self.reader] / drawn[self.reader]).astype(np.float64)
        return share


def sample(row_ptr: IntArray, col: IntArray, nodes: IntArray, targets: IntArray, fanouts: IntArray, key: int) -> Sample:
    """What some cells of a snapshot read: of each target's arcs at most ``fanouts[0]``, of each cell's that those lead
    to at most ``fanouts[1]``, …, each as likely as any other, none twice.

    Which ones depends on ``key``, the node and its number of arcs alone, so that whoever draws for a node at the same
    distance finds the same. A cell that is near one target and far from another is drawn for once, as near.

    Args:
        row_ptr: arcs that reach each cell, as a snapshot has them.
        col: where they come from, as positions.
        nodes: the ids of the cells.
        targets: positions, each once.
        fanouts: from the nearest on; ``ALL`` takes all.
        key: 64 bits.
    """
    from strobe.ops.sampling_loops import draw  # numba takes its time to load

    place = _take_paper(len(row_ptr) - 1)
    whole = _fixed(row_ptr), _fixed(col), _fixed(nodes)
    found = draw(whole, targets.astype(np.int32), fanouts.astype(np.int64), np.uint64(key), place)
    _kept.paper = place
    return Sample(*found)


def _take_paper(num_cells: int) -> Any:
    """This thread's sheet of -1s. Whoever takes it gives it back clean; if something goes wrong meanwhile it is
    lost."""
    paper = getattr(_kept, "paper", None)
    _kept.paper = None
    return np.full(num_cells, -1, np.int32) if paper is None or len(paper) < num_cells else paper


def _fixed(array: Any) -> Any:
    """A view that cannot be written to: of arrays that can, numba would compile the same once more."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
