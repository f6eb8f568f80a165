"""How long random chunks take, both stages, forward and backward, measured on this machine.

Three things keep the neighbours of this process out of the figures. On one thread the processor's time is counted,
not the clock's. A pass is repeated until its two fastest runs agree, and the fastest counts. And a *yardstick*, a small
chunk that is always the same, runs beside every other: what a chunk took is divided by how much longer than at its
best the yardstick took just then.
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
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.work import Sizes
from strobe.planner.chunks import COLUMNS, Chunk, Ranges
from strobe.planner.stages import Seconds, timed_pass, whole_pass
from strobe.view import Cells

LONGEST_PASS_S = 0.06
"""Chunks are kept so small that about all passes are shorter: what larger ones take follows from them."""

FEWEST = 60
"""Chunks that are measured however long it takes: from fewer nothing can be learned."""

_AGREE = 0.05  # two runs that differ by less say the same
_FEWEST_RUNS, _MOST_RUNS, _RUNNING_S = 3, 5, 0.25
_USUAL = Chunk(cells=4_000, arcs=32_000, length=8, features=16, hidden=32, presence=0.9, spread=1.5, seed=0)

Maker = Callable[[int, int], nn.Module]
"""A model for so many features and hidden columns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Times:
    """Measured chunks: their sizes and widths, and the seconds of both stages, [M] each.

    ``time`` is 0 throughout for a model whose stages cannot be told apart: all it does is structure.
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
    def sizes(self) -> Sizes:
        return Sizes(self.cells, self.arcs, self.sequences)

    @property
    def whole(self) -> FloatArray:
        return self.structure + self.time

    def take(self, which: npt.NDArray[Any]) -> Times:
        """Some of them."""
        return replace(self, **{name: array[which] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where chunks run, the way a rank would run them: with torch's threads as they are."""

    make: Maker
    directed: bool = True
    device: torch.device
    dtype: torch.dtype = torch.float32

    def ready(self, chunk: Chunk) -> Ready:
        """A chunk with its model, warmed up: all that is made once and kept has been made."""
        cells = Cells(chunk.graph(directed=self.directed), dtype=self.dtype, device=self.device)
        model = self.make(chunk.features, chunk.hidden).to(self.device, self.dtype).train()
        width = model.width
        assert isinstance(width, int)
        ready = Ready(chunk, cells, model, cells.x.new_ones(cells.num_cells, width))
        ready.run()
        return ready


@dataclass
class Ready:
    """A chunk that can run again and again."""

    chunk: Chunk
    cells: Cells
    model: nn.Module
    gradient: Tensor
    in_one: bool = False

    def run(self) -> Seconds:
        """One pass. A model that cannot be cut into stages, as two of them share what they read, runs in one."""
        if not self.in_one:
            try:
                return timed_pass(self.model, self.cells, self.gradient)
            except RuntimeError as error:
                if "a second time" not in str(error):  # what autograd says of a history that was used up
                    raise
                self.in_one = True
        return whole_pass(self.model, self.cells, self.gradient)


class _Measured(NamedTuple):
    sizes: tuple[int, int, int, int, int]
    took: Seconds
    yardstick_s: float


def affordable(bench: Bench, ranges: Ranges, like: Chunk) -> Ranges:
    """The same ranges, without chunks so large that this machine needs more than a moment for them."""
    usual = bench.ready(replace(_USUAL, features=like.features, hidden=like.hidden))
    once = min(sum(usual.run()) for _ in range(3))
    cells = LONGEST_PASS_S / once * usual.cells.num_cells * max(1.0, like.hidden / COLUMNS)
    low, high = ranges.cells
    high = min(high, max(cells, 10 * low))
    return replace(ranges, cells=(low, high), arcs=min(ranges.arcs, 8 * high))


def measure(
    bench: Bench,
    chunks: Iterable[Chunk],
    *,
    seconds: float = math.inf,
    fewest: int = FEWEST,
    on_stage: OnStage | None = None,
) -> Times:
    """The chunks, or as many as there is time for. Random numbers of the caller's go on as if nothing had run."""
    devices = [bench.device] if bench.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad():
        measured = list(_measured(bench, list(chunks), seconds, fewest, on_stage))
    cells, arcs, sequences, features, hidden = np.array([each.sizes for each in measured]).T
    structure, time_ = np.array([each.took for each in measured]).T
    slow = np.array([each.yardstick_s for each in measured])
    slow /= slow.min()
    return Times(
        cells=cells,
        arcs=arcs,
        sequences=sequences,
        features=features,
        hidden=hidden,
        structure=structure / slow,
        time=time_ / slow,
    )


def _measured(
    bench: Bench, chunks: list[Chunk], seconds: float, fewest: int, on_stage: OnStage | None
) -> Iterator[_Measured]:
    started = time.perf_counter()
    yardstick = _yardstick(bench, chunks)
    for done, chunk in enumerate(chunks):
        spent = time.perf_counter() - started
        if on_stage is not None:
            on_stage("measuring how long chunks take, s", round(min(spent, seconds)), _whole(seconds))
        if done >= fewest and spent > seconds:
            return
        yield _fastest(bench.ready(chunk), yardstick)


def _fastest(ready: Ready, yardstick: Ready) -> _Measured:
    """The fastest of some runs of a chunk, and of the yardstick between them."""
    runs: list[Seconds] = []
    beside: list[float] = []
    started = time.perf_counter()
    while not _enough([sum(run) for run in runs], time.perf_counter() - started):
        runs.append(ready.run())
        beside.append(sum(yardstick.run()))
    graph, chunk = ready.cells.graph, ready.chunk
    sequences = len(np.unique(np.concatenate([snapshot.nodes for snapshot in graph])))
    sizes = graph.num_cells, graph.num_arcs, sequences, chunk.features, chunk.hidden
    took = Seconds(min(run.structure for run in runs), min(run.time for run in runs))
    return _Measured(sizes, took, min(beside))


def _enough(seconds: list[float], spent: float) -> bool:
    """Whether the fastest run is to be believed, or there is no more time for it."""
    if len(seconds) < _FEWEST_RUNS:
        return False
    first, second = sorted(seconds)[:2]
    return second <= (1 + _AGREE) * first or len(seconds) >= _MOST_RUNS or spent > _RUNNING_S


def _yardstick(bench: Bench, chunks: list[Chunk]) -> Ready:
    """A chunk that takes a few milliseconds: as narrow as the narrowest."""
    like = min(chunks, key=lambda chunk: chunk.hidden)
    return bench.ready(replace(_USUAL, cells=1_000, arcs=8_000, features=like.features, hidden=like.hidden))


def _whole(seconds: float) -> int | None:
    return round(seconds) if math.isfinite(seconds) else None
