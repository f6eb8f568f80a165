"""Some of the arcs that reach cells, drawn by lot: so many of each cell's, and so on from cell to cell."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strobe.ops.csr import FloatArray, IntArray, fixed

ALL = -1
"""A fan-out that leaves nothing out."""

_ALL_BITS = (1 << 64) - 1
_NEXT = 0xD1B54A32D192ED03
"""What makes the key of a hop another one."""

_kept = threading.local()


@dataclass(frozen=True, eq=False)
class Drawn:
    """Arcs that were drawn for the first cells of a sample, by rows, in the order of the whole snapshot."""

    row_ptr: IntArray  # [r + 1]
    col: IntArray  # [a] into the cells found
    arc: IntArray  # [a] where each stands among the arcs of its snapshot
    degree: IntArray  # [r] arcs that reach each cell in the whole snapshot

    @cached_property
    def reader(self) -> IntArray:
        """The cell that reads, of each arc."""
        return np.repeat(np.arange(len(self.degree)), np.diff(self.row_ptr))

    @cached_property
    def share(self) -> FloatArray | None:
        """For how many arcs each one stands that was drawn; None where all were."""
        drawn = np.diff(self.row_ptr)
        if np.array_equal(drawn, self.degree):
            return None
        share: FloatArray = (self.degree[self.reader] / drawn[self.reader]).astype(np.float64)
        return share


@dataclass(frozen=True, eq=False)
class Sample:
    """Cells of a snapshot: targets, what was drawn for them, what was drawn for all of these, …

    ``hops[j]`` are arcs that were drawn for the first ``sizes[j]`` cells; they lead to the first ``sizes[j + 1]``.
    """

    position: IntArray  # [c] where each cell stands in its snapshot
    sizes: tuple[int, ...]
    hops: tuple[Drawn, ...]

    @property
    def num_arcs(self) -> int:
        return sum(len(drawn.arc) for drawn in self.hops)


def sample(
    row_ptr: IntArray, col: IntArray, nodes: IntArray, targets: IntArray, fanouts: Sequence[int], key: int
) -> Sample:
    """What some cells of a snapshot read: of each target's arcs at most ``fanouts[0]``; of the arcs of each target and
    of each cell that those led to at most ``fanouts[1]``; and so on: each arc as likely as any other, none twice.

    Which ones depends on ``key``, the node, its number of arcs and the hop alone, so that whoever draws for a node
    finds the same, whatever else it draws for.

    Args:
        row_ptr: arcs that reach each cell, as a snapshot has them.
        col: where they come from, as positions.
        nodes: the ids of the cells.
        targets: positions, each once.
        fanouts: from the nearest hop on; ``ALL`` takes all.
        key: 64 bits.
    """
    from strobe.ops.sampling_loops import clear, draw, mark  # numba takes its time to load

    place = _take_paper(len(row_ptr) - 1)
    whole = fixed(row_ptr), fixed(col), fixed(nodes)
    found: IntArray = targets.astype(np.int32)
    mark(found, place)
    sizes, hops = [len(found)], []
    for hop, fanout in enumerate(fanouts):
        found, *arrays = draw(whole, found, fanout, np.uint64((key + hop * _NEXT) & _ALL_BITS), place)
        sizes.append(len(found))
        hops.append(Drawn(*arrays))
    clear(found, place)
    _kept.paper = place
    return Sample(found, tuple(sizes), tuple(hops))


def _take_paper(num_cells: int) -> Any:
    """This thread's sheet of -1s. Whoever takes it gives it back clean; if something goes wrong meanwhile it is
    lost."""
    paper = getattr(_kept, "paper", None)
    _kept.paper = None
    return np.full(num_cells, -1, np.int32) if paper is None or len(paper) < num_cells else paper
