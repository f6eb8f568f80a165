"""Random chunks, small dynamic graphs of the sizes and shapes that ranks compute, and their seconds on this machine.

Both stages are timed, forward and backward. Disturbances by other processes are reduced in three ways: one thread is
timed by CPU time; a pass is repeated until its two fastest runs agree, and the fastest counts; a *yardstick*, a small
fixed chunk, runs between the runs of every chunk, and seconds are divided by its slowdown relative to its best time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.graph.features import PerCell
from strobe.graph.progress import OnStage
from strobe.graph.storage import ArrayStorage
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CellSetSizes
from strobe.planner.time.stages import StageSeconds, is_second_backward, time_pass, time_unsplit_pass
from strobe.view import WindowData

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


MAX_PASS_S = 0.06
"""Chunks are so small that nearly all passes are shorter; larger ones are extrapolated."""

MIN_CHUNKS = 60
"""Chunks that are measured regardless of the time limit."""

_TOLERANCE = 0.05  # two runs that differ by less agree
_MIN_RUNS, _MAX_RUNS, _MAX_RUN_S = 3, 5, 0.25
_TYPICAL = RandomChunk(cells=4_000, arcs=32_000, length=8, features=16, hidden=32, presence=0.9, spread=1.5, seed=0)

ModelFactory = Callable[[int, int], nn.Module]
"""Makes a model from the number of features and of hidden columns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChunkTimes:
    """Measured chunks: sizes, widths, and seconds of both stages, [M] each.

    ``time`` is 0 for a model whose stages cannot be separated.
    """

    cells: IntArray
    arcs: IntArray
    sequences: IntArray
    features: IntArray
    hidden: IntArray
    structure: FloatArray
    time: FloatArray

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def sizes(self) -> CellSetSizes:
        return CellSetSizes(self.cells, self.arcs, self.sequences)

    @property
    def total(self) -> FloatArray:
        return self.structure + self.time

    def select(self, which: npt.NDArray[Any]) -> ChunkTimes:
        """Select chunks by a mask or indices."""
        return replace(self, **{name: array[which] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class ChunkBenchmark:
    """Runs chunks as a rank would, with the current number of threads."""

    make: ModelFactory
    directed: bool = True
    device: torch.device
    dtype: torch.dtype = torch.float32

    def prepare(self, chunk: RandomChunk) -> PreparedChunk:
        """Build a chunk and its model, and run a pass to fill caches."""
        cells = WindowData(chunk.graph(directed=self.directed), dtype=self.dtype, device=self.device)
        model = self.make(chunk.features, chunk.hidden).to(self.device, self.dtype).train()
        width = model.width
        assert isinstance(width, int)
        ready = PreparedChunk(chunk, cells, model, cells.x.new_ones(cells.num_cells, width))
        ready.run()
        return ready


@dataclass
class PreparedChunk:
    """A chunk with its model and data."""

    chunk: RandomChunk
    cells: WindowData
    model: nn.Module
    gradient: Tensor
    unsplit: bool = False

    def run(self) -> StageSeconds:
        """Time a pass. A model that cannot be split into stages, because they share inputs, is timed as a whole."""
        if not self.unsplit:
            try:
                return time_pass(self.model, self.cells, self.gradient)
            except RuntimeError as error:
                if not is_second_backward(error):
                    raise
                self.unsplit = True
        return time_unsplit_pass(self.model, self.cells, self.gradient)


class _Measurement(NamedTuple):
    sizes: tuple[int, int, int, int, int]
    took: StageSeconds
    yardstick_s: float


def cap_ranges(bench: ChunkBenchmark, ranges: ChunkRanges, like: RandomChunk) -> ChunkRanges:
    """Limit the cells and arcs of ranges so that a pass on this machine takes about ``MAX_PASS_S``."""
    typical = bench.prepare(replace(_TYPICAL, features=like.features, hidden=like.hidden))
    once = min(sum(typical.run()) for _ in range(3))
    cells = MAX_PASS_S / once * typical.cells.num_cells * max(1.0, like.hidden / REFERENCE_COLUMNS)
    low, high = ranges.cells
    high = min(high, max(cells, 10 * low))
    return replace(ranges, cells=(low, high), arcs=min(ranges.arcs, 8 * high))


def measure(
    bench: ChunkBenchmark,
    chunks: Iterable[RandomChunk],
    *,
    seconds: float = math.inf,
    min_chunks: int = MIN_CHUNKS,
    on_stage: OnStage | None = None,
) -> ChunkTimes:
    """Measure chunks for at most ``seconds``, but at least ``min_chunks``. Preserves the random state."""
    devices = [bench.device] if bench.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad():
        measured = list(_measure_each(bench, list(chunks), seconds, min_chunks, on_stage))
    cells, arcs, sequences, features, hidden = np.array([each.sizes for each in measured]).T
    structure, time_ = np.array([each.took for each in measured]).T
    slowdown = np.array([each.yardstick_s for each in measured])
    slowdown /= slowdown.min()
    return ChunkTimes(
        cells=cells,
        arcs=arcs,
        sequences=sequences,
        features=features,
        hidden=hidden,
        structure=structure / slowdown,
        time=time_ / slowdown,
    )


def _measure_each(
    bench: ChunkBenchmark, chunks: list[RandomChunk], seconds: float, min_chunks: int, on_stage: OnStage | None
) -> Iterator[_Measurement]:
    started = time.perf_counter()
    yardstick = _yardstick(bench, chunks)
    for done, chunk in enumerate(chunks):
        spent = time.perf_counter() - started
        if on_stage is not None:
            on_stage("measuring how long chunks take, s", round(min(spent, seconds)), _round_if_finite(seconds))
        if done >= min_chunks and spent > seconds:
            return
        yield _measure_fastest(bench.prepare(chunk), yardstick)


def _measure_fastest(ready: PreparedChunk, yardstick: PreparedChunk) -> _Measurement:
    """Measure the fastest of several runs of a chunk, and of the yardstick between them."""
    runs: list[StageSeconds] = []
    yardstick_runs: list[float] = []
    started = time.perf_counter()
    while not _is_stable([sum(run) for run in runs], time.perf_counter() - started):
        runs.append(ready.run())
        yardstick_runs.append(sum(yardstick.run()))
    graph, chunk = ready.cells.graph, ready.chunk
    sequences = len(np.unique(np.concatenate([snapshot.nodes for snapshot in graph])))
    sizes = graph.num_cells, graph.num_arcs, sequences, chunk.features, chunk.hidden
    took = StageSeconds(min(run.structure for run in runs), min(run.time for run in runs))
    return _Measurement(sizes, took, min(yardstick_runs))


def _is_stable(seconds: list[float], spent: float) -> bool:
    """Whether the two fastest runs agree, or the limit of runs or seconds is reached."""
    if len(seconds) < _MIN_RUNS:
        return False
    first, second = sorted(seconds)[:2]
    return second <= (1 + _TOLERANCE) * first or len(seconds) >= _MAX_RUNS or spent > _MAX_RUN_S


def _yardstick(bench: ChunkBenchmark, chunks: list[RandomChunk]) -> PreparedChunk:
    """Prepare a chunk of a few milliseconds, as narrow as the narrowest."""
    like = min(chunks, key=lambda chunk: chunk.hidden)
    return bench.prepare(replace(_TYPICAL, cells=1_000, arcs=8_000, features=like.features, hidden=like.hidden))


def _round_if_finite(seconds: float) -> int | None:
    return round(seconds) if math.isfinite(seconds) else None
