"""Random chunks: small dynamic graphs of the sizes and shapes that ranks compute."""

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
from strobe.graph.storage import ArrayStorage
from strobe.ops.sparse.csr import IntArray

Range = tuple[float, float]

REFERENCE_COLUMNS = 32
"""Hidden columns up to which chunks may have the maximum number of cells."""

_HUB_EXPONENT = 2.0  # arcs start at cell n u^2 of n, u uniform: a few hubs have many readers


@dataclass(frozen=True, kw_only=True)
class ChunkRanges:
    """Bounds of random chunks; each quantity is sampled log-uniformly.

    Attributes:
        cells, arcs: maxima for up to ``REFERENCE_COLUMNS`` hidden columns; wider chunks have proportionally fewer.
        length: mean number of cells per sequence.
        presence: fraction of the snapshots between its first and last cell in which a node is present.
        spread: number of snapshots relative to the span of a sequence.
    """

    cells: Range = (300, 100_000)
    arcs: float = 600_000
    arcs_per_cell: Range = (0.5, 30)
    length: Range = (1, 40)
    features: Range = (1, 64)
    hidden: Range = (16, 128)
    presence: Range = (0.7, 1)
    spread: Range = (1, 2)

    def max_sizes(self, hidden: Any) -> tuple[Any, Any]:
        """Return the maximum cells and arcs of chunks with ``hidden`` columns, a number or an array."""
        fewer = np.minimum(1.0, REFERENCE_COLUMNS / hidden)
        return np.maximum(self.cells[0], self.cells[1] * fewer), self.arcs * fewer

    def extend_to(self, features: int, hidden: int) -> ChunkRanges:
        """Extend the ranges to cover these widths."""
        return replace(self, features=_widen(self.features, features), hidden=_widen(self.hidden, hidden))

    def restrict_to(self, features: int, hidden: int) -> ChunkRanges:
        """Restrict the ranges to these widths."""
        return replace(self, features=(features, features), hidden=(hidden, hidden))

    def covers(self, features: int, hidden: int) -> bool:
        """Whether the ranges cover these widths."""
        return self.extend_to(features, hidden) == self


@dataclass(frozen=True, kw_only=True)
class RandomChunk:
    """The parameters of a random chunk, which determine its graph."""

    cells: int
    arcs: int
    length: float
    features: int
    hidden: int
    presence: float
    spread: float
    seed: int

    def graph(self, *, directed: bool = True) -> DynamicGraph:
        """Build the graph, with random features."""
        rng = np.random.default_rng(self.seed)
        present = self._presence_mask(rng)
        sizes = present.sum(1)
        cell_ptr = _pointers(sizes)
        row_ptr, col = _arcs(rng, cell_ptr, self.arcs, directed=directed)
        arc_ptr = row_ptr[cell_ptr]
        arcs = np.diff(arc_ptr)
        storage = ArrayStorage(
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

    def _presence_mask(self, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Sample the presence of nodes, [T, N]; every node is present at least once."""
        nodes = max(1, round(self.cells / self.length))
        span = self.length / self.presence
        snapshots = max(1, round(span * self.spread))
        lengths = np.clip(np.rint(rng.uniform(0.5, 1.5, nodes) * span), 1, snapshots)
        start = rng.integers(0, snapshots, nodes)
        since = (np.arange(snapshots)[:, None] - start) % snapshots
        stays = rng.random((snapshots, nodes), np.float32) < self.presence
        present: npt.NDArray[np.bool_] = (since < lengths) & (stays | (since == 0))
        return present


def sample_chunks(ranges: ChunkRanges, *, seed: int = 0, multiple_of: int = 1) -> Iterator[RandomChunk]:
    """Yield chunks endlessly, deterministic for a seed; hidden widths are multiples of ``multiple_of``.

    Parameters are quasi-random (Sobol), so any number of chunks covers the ranges evenly.
    """
    points = torch.quasirandom.SobolEngine(7, scramble=True, seed=seed)
    while True:
        cells, degree, length, features, hidden, presence, spread = points.draw(1, dtype=torch.float64)[0].tolist()
        columns = max(multiple_of, round(_log_interpolate(ranges.hidden, hidden) / multiple_of) * multiple_of)
        max_cells, max_arcs = ranges.max_sizes(columns)
        arcs_per_cell = _log_interpolate(ranges.arcs_per_cell, degree)
        max_cells = max(ranges.cells[0], min(max_cells, max_arcs / arcs_per_cell))
        count = _log_interpolate((ranges.cells[0], max_cells), cells)
        yield RandomChunk(
            cells=round(count),
            arcs=round(count * arcs_per_cell),
            length=min(_log_interpolate(ranges.length, length), count),
            features=round(_log_interpolate(ranges.features, features)),
            hidden=columns,
            presence=_log_interpolate(ranges.presence, presence),
            spread=_log_interpolate(ranges.spread, spread),
            seed=seed + int(points.num_generated),
        )


def _arcs(rng: np.random.Generator, cell_ptr: IntArray, count: int, *, directed: bool) -> tuple[IntArray, IntArray]:
    """Sample arcs: row pointers over all cells, [C + 1], and column indices within their snapshot."""
    cells = int(cell_ptr[-1])
    dst = rng.integers(0, cells, count if directed else count // 2)
    first, last = _bounds_of_cells(cell_ptr)
    src = first[dst] + ((last - first)[dst] * rng.random(dst.size) ** _HUB_EXPONENT).astype(np.int64)
    if not directed:
        keep = src != dst
        src, dst = np.concatenate([src[keep], dst[keep]]), np.concatenate([dst[keep], src[keep]])
    key = np.sort(dst * cells + src)
    dst, src = key // cells, key % cells
    return _pointers(np.bincount(dst, minlength=cells)), (src - first[dst]).astype(np.int32)


def _bounds_of_cells(cell_ptr: IntArray) -> tuple[IntArray, IntArray]:
    """First cell and end of the snapshot of each cell, [C] each."""
    sizes = np.diff(cell_ptr)
    return np.repeat(cell_ptr[:-1], sizes), np.repeat(cell_ptr[1:], sizes)


def _per_snapshot(row_ptr: IntArray, cell_ptr: IntArray) -> IntArray:
    """Convert row pointers to start at 0 in every snapshot, [C + T]."""
    parts = [row_ptr[a : b + 1] - row_ptr[a] for a, b in pairwise(cell_ptr.tolist())]
    return np.concatenate(parts).astype(np.int32)


def _pointers(counts: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _log_interpolate(bounds: Range, part: float) -> float:
    low, high = bounds
    return low * math.exp(part * math.log(high / low))


def _widen(bounds: Range, value: float) -> Range:
    return min(bounds[0], value), max(bounds[1], value)
