"""Random chunks: small dynamic graphs of every size and shape that a rank may be given cells of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from strobe.graph import DynamicGraph
from strobe.graph.features import PerCell
from strobe.graph.storage import Storage
from strobe.ops.csr import IntArray

Range = tuple[float, float]

COLUMNS = 32
"""Hidden columns up to which chunks have the most cells."""

_HUBS = 2.0  # of n cells number n u^2 is read, u uniform: a few are read by many, as in most real graphs


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Between which bounds chunks are drawn, each evenly on a logarithmic scale.

    ``cells`` and ``arcs`` (their most) are for up to ``COLUMNS`` columns; wider chunks have fewer of both, or one
    would take as long as many. ``length`` is the mean number of cells of a sequence, ``presence`` the part of the
    snapshots from its first to its last cell in which a node is there, ``spread`` how many snapshots there are for
    each of those.
    """

    cells: Range = (300, 100_000)
    arcs: float = 600_000
    arcs_per_cell: Range = (0.5, 30)
    length: Range = (1, 40)
    features: Range = (1, 64)
    hidden: Range = (16, 128)
    presence: Range = (0.7, 1)
    spread: Range = (1, 2)

    def most(self, hidden: Any) -> tuple[Any, Any]:
        """The most cells and the most arcs of chunks of so many columns, a number or an array of them."""
        fewer = np.minimum(1.0, COLUMNS / hidden)
        return np.maximum(self.cells[0], self.cells[1] * fewer), self.arcs * fewer

    def with_widths(self, features: int, hidden: int) -> Ranges:
        """The same, or as much wider as it takes to have these widths inside."""
        return replace(self, features=_around(self.features, features), hidden=_around(self.hidden, hidden))

    def only(self, features: int, hidden: int) -> Ranges:
        """The same for these widths alone."""
        return replace(self, features=(features, features), hidden=(hidden, hidden))

    def cover(self, features: int, hidden: int) -> bool:
        """Whether these widths lie inside."""
        return self.with_widths(features, hidden) == self


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk as it was drawn; its graph is the same whenever it is made."""

    cells: int
    arcs: int
    length: float
    features: int
    hidden: int
    presence: float
    spread: float
    seed: int

    def graph(self, *, directed: bool = True) -> DynamicGraph:
        """About so many cells and arcs, with random features."""
        rng = np.random.default_rng(self.seed)
        present = self._present(rng)
        sizes = present.sum(1)
        cell_ptr = _pointers(sizes)
        row_ptr, col = _arcs(rng, cell_ptr, self.arcs, directed=directed)
        arc_ptr = row_ptr[cell_ptr]
        arcs = np.diff(arc_ptr)
        storage = Storage(
            num_nodes=present.shape[1],
            directed=directed,
            times=tuple(range(len(sizes))),
            cell_ptr=cell_ptr,
            arc_ptr=arc_ptr,
            edge_count=arcs if directed else arcs // 2,
            node=np.nonzero(present)[1].astype(np.int32),
            row_ptr=_per_snapshot(row_ptr, cell_ptr),
            col=col,
            weight=None,
        )
        return DynamicGraph(storage, features=PerCell(rng.standard_normal((cell_ptr[-1], self.features), np.float32)))

    def _present(self, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Who is there when, [T, N]; nobody is never there."""
        nodes = max(1, round(self.cells / self.length))
        span = self.length / self.presence
        snapshots = max(1, round(span * self.spread))
        lengths = np.clip(np.rint(rng.uniform(0.5, 1.5, nodes) * span), 1, snapshots)
        start = rng.integers(0, snapshots, nodes)
        since = (np.arange(snapshots)[:, None] - start) % snapshots
        stays = rng.random((snapshots, nodes), np.float32) < self.presence
        present: npt.NDArray[np.bool_] = (since < lengths) & (stays | (since == 0))
        return present


def draw(ranges: Ranges, *, seed: int = 0, multiple_of: int = 1) -> Iterator[Chunk]:
    """Chunks without end, the same for the same seed; hidden widths are multiples, so that heads can share them.

    Quasi-random (Sobol): however many are taken, they lie evenly between the bounds.
    """
    points = torch.quasirandom.SobolEngine(7, scramble=True, seed=seed)
    while True:
        cells, degree, length, features, hidden, presence, spread = points.draw(1, dtype=torch.float64)[0].tolist()
        columns = max(multiple_of, round(_between(ranges.hidden, hidden) / multiple_of) * multiple_of)
        most_cells, most_arcs = ranges.most(columns)
        arcs_per_cell = _between(ranges.arcs_per_cell, degree)
        most = max(ranges.cells[0], min(most_cells, most_arcs / arcs_per_cell))
        count = _between((ranges.cells[0], most), cells)
        yield Chunk(
            cells=round(count),
            arcs=round(count * arcs_per_cell),
            length=min(_between(ranges.length, length), count),
            features=round(_between(ranges.features, features)),
            hidden=columns,
            presence=_between(ranges.presence, presence),
            spread=_between(ranges.spread, spread),
            seed=seed + int(points.num_generated),
        )


def _arcs(rng: np.random.Generator, cell_ptr: IntArray, count: int, *, directed: bool) -> tuple[IntArray, IntArray]:
    """Row pointers over all cells, [C + 1], and columns counted within their snapshot."""
    cells = int(cell_ptr[-1])
    dst = rng.integers(0, cells, count if directed else count // 2)
    first, last = _bounds_of_cells(cell_ptr)
    src = first[dst] + ((last - first)[dst] * rng.random(dst.size) ** _HUBS).astype(np.int64)
    if not directed:
        apart = src != dst
        src, dst = np.concatenate([src[apart], dst[apart]]), np.concatenate([dst[apart], src[apart]])
    key = np.sort(dst * cells + src)
    dst, src = key // cells, key % cells
    return _pointers(np.bincount(dst, minlength=cells)), (src - first[dst]).astype(np.int32)


def _bounds_of_cells(cell_ptr: IntArray) -> tuple[IntArray, IntArray]:
    """Where the snapshot of each cell begins and ends, [C] each."""
    sizes = np.diff(cell_ptr)
    return np.repeat(cell_ptr[:-1], sizes), np.repeat(cell_ptr[1:], sizes)


def _per_snapshot(row_ptr: IntArray, cell_ptr: IntArray) -> IntArray:
    """Row pointers that begin at 0 in every snapshot, [C + T]."""
    parts = [row_ptr[a : b + 1] - row_ptr[a] for a, b in pairwise(cell_ptr.tolist())]
    return np.concatenate(parts).astype(np.int32)


def _pointers(counts: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _between(bounds: Range, part: float) -> float:
    low, high = bounds
    return low * math.exp(part * math.log(high / low))


def _around(bounds: Range, value: float) -> Range:
    return min(bounds[0], value), max(bounds[1], value)
