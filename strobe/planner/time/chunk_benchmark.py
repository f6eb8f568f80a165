"""Seconds of random chunks, both stages, forward and backward, measured on this machine.

Disturbances by other processes are reduced in three ways: one thread is timed by CPU time; a pass is repeated until its
two fastest runs agree, and the fastest counts; a *yardstick*, a small fixed chunk, runs between the runs of every
chunk, and seconds are divided by its slowdown relative to its best time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.graph.progress import OnStage
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CellSetSizes
from strobe.planner.time.random_chunks import REFERENCE_COLUMNS, ChunkRanges, RandomChunk
from strobe.planner.time.stages import StageSeconds, is_second_backward, time_pass, time_unsplit_pass
from strobe.view import WindowData

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
