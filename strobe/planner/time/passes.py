"""Seconds of passes over parts of a job on this machine: forward, loss and backward, as in training.

Passes that are compared with one another are timed by the fastest stable run, on one thread by CPU time. Predictions of
epochs use the median of wall times, which includes other processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from strobe.batching import BatchSpec
from strobe.engine.forward import num_examples, window_examples, window_loss
from strobe.engine.job import Job
from strobe.engine.machine import random_state, restore_random_state
from strobe.engine.optimizer import make_optimizer
from strobe.engine.partitioned_graph import PartitionedGraph, khop_masks
from strobe.engine.progress import Progress
from strobe.engine.sources.batch_order import batch_sizes
from strobe.engine.windows import Window, window_of_batch
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CELL_LOAD
from strobe.planner.time.stages import StageSeconds, clock, is_second_backward, time_pass

MEASURE_S = 6.0
"""Default time limit of measurements."""

SAMPLES = 16
"""Number of passes of different sizes that a fit uses."""

MIN_PASSES = 5
"""Passes that are timed regardless of the time limit: a fit has 4 coefficients, one more pass gives its error."""

_MIN_S = 1e-7  # below the resolution of clocks
_TOLERANCE = 0.05  # two runs that differ by less agree
_MIN_RUNS, _MAX_RUNS, _MAX_RUN_S = 3, 12, 0.2
_FRACTIONS = (4, 16)  # of the nodes
_MOVED_ROWS, _COLUMNS = 1 << 15, 32  # rows that are gathered and scattered


@dataclass(frozen=True, kw_only=True)
class LinearCost:
    """Seconds of a pass by cells, arcs and snapshots.

    A rank steps through all snapshots of a window, however few cells it has in each: with many ranks, the cost per
    snapshot dominates models that step through time.
    """

    per_cell: float
    per_arc: float
    fixed: float
    per_snapshot: float = 0.0

    def __call__(
        self,
        cells: IntArray | FloatArray | int,
        arcs: IntArray | FloatArray | int,
        snapshots: IntArray | FloatArray | int = 0,
    ) -> FloatArray:
        """Return seconds, broadcast over the arguments."""
        counted = self.per_cell * np.asarray(cells) + self.per_arc * np.asarray(arcs)
        return np.asarray(counted + self.per_snapshot * np.asarray(snapshots) + self.fixed, np.float64)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def fit_linear_cost(
    cells: IntArray, arcs: IntArray, seconds: FloatArray, snapshots: npt.NDArray[np.integer] | None = None
) -> LinearCost:
    """Fit non-negative costs by least squares of relative errors, [M] each.

    Relative, because mispredicting a small batch spoils a schedule as much as mispredicting a large one.

    Raises:
        OptionError: no pass was timed.
    """
    from scipy.optimize import nnls  # takes a quarter of a second to load

    if not len(seconds):
        raise OptionError("no pass was timed: there is nothing to fit")
    counted = cells, arcs, np.zeros_like(cells) if snapshots is None else snapshots, np.ones(len(seconds))
    inputs = np.stack(counted, 1).astype(np.float64)
    scale = inputs.max(axis=0)
    scale[scale == 0] = 1.0
    share, _ = nnls(inputs / scale / np.maximum(seconds, _MIN_S)[:, None], np.ones(len(seconds)))
    per_cell, per_arc, per_snapshot, fixed = (share / scale).tolist()
    return LinearCost(per_cell=per_cell, per_arc=per_arc, per_snapshot=per_snapshot, fixed=fixed)


@dataclass(frozen=True, eq=False, kw_only=True)
class PassTimes:
    """Timed passes, [M] each: index of the part, sizes, seconds, and seconds of their time stages."""

    part: IntArray
    cells: IntArray
    arcs: IntArray
    snapshots: IntArray
    seconds: FloatArray
    time_stage_s: FloatArray

    def __len__(self) -> int:
        return len(self.cells)

    def select(self, which: npt.NDArray[Any]) -> PassTimes:
        """Select passes by a mask or indices."""
        return replace(self, **{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def fit(self) -> LinearCost:
        """Fit the cost of passes."""
        return fit_linear_cost(self.cells, self.arcs, self.seconds, self.snapshots)

    def fit_time_stage(self) -> LinearCost:
        """Fit the cost of time stages; 0 if the model's stages cannot be separated."""
        if not self.time_stage_s.all():
            return LinearCost(per_cell=0.0, per_arc=0.0, fixed=0.0)
        return fit_linear_cost(self.cells, np.zeros_like(self.arcs), self.time_stage_s, self.snapshots)

    @property
    def error(self) -> float:
        """Mean absolute percentage error of the fit, by leave-one-out cross-validation."""
        numbers = np.arange(len(self))
        lines = [self.select(np.delete(numbers, k)).fit() for k in numbers]
        predicted = np.array([line(self.cells[k], self.arcs[k], self.snapshots[k]) for k, line in enumerate(lines)])
        return float(np.abs(predicted / self.seconds - 1).mean())


def sample_parts(job: Job, max_parts: int = SAMPLES) -> list[BatchSpec]:
    """Sample parts of a job to time, from small to large.

    Samples batches if one rank computes each. Otherwise ranks share batches, so the parts are ranges of training
    snapshots, some with a fraction of the nodes: they vary cells per snapshot and arcs per cell independently.
    """
    parts = job.batches if job.plan.per_rank_batches else _time_ranges(job)
    sizes = [_part_load(job.problem.graph, part) for part in parts]
    order = [k for k in np.argsort(sizes, kind="stable") if sizes[k]]
    chosen = np.unique(np.linspace(0, max(len(order) - 1, 0), min(max_parts, len(order))).round().astype(np.int64))
    return [parts[order[k]] for k in chosen]


def _time_ranges(job: Job) -> list[BatchSpec]:
    graph, train = job.problem.graph, job.problem.split.train
    lengths = sorted({max(1, len(train) >> k) for k in range(len(train).bit_length())})
    times = [train[at : at + n] for n in lengths for at in sorted({0, len(train) - n})]
    order = np.random.default_rng(job.settings.seed).permutation(graph.num_nodes)
    some = [np.sort(order[: len(order) // k]) for k in _FRACTIONS]
    # Pairs may have an end outside a fraction of the nodes.
    nodes = [None] if job.problem.is_edge_level else [None, *some]
    return [BatchSpec(each, each, some, continues_state=False) for each in times for some in nodes]


def _part_load(graph: DynamicGraph, part: BatchSpec) -> int:
    """Load of a part; 0 without cells."""
    cells, arcs, _ = part_sizes(graph, part)
    return CELL_LOAD * cells + arcs


def part_sizes(graph: DynamicGraph, part: BatchSpec) -> tuple[int, int, int]:
    """Count the cells, the arcs among them, and the snapshots of a part."""
    if part.seed_nodes is None:
        cells, arcs = (int(each[0]) for each in batch_sizes(graph, [part]))
        return cells, arcs, len(part.times)
    cells = arcs = 0
    for t, inside in zip(part.times, khop_masks(graph, part.times, part.seed_nodes, part.hops), strict=True):
        source, destination = graph[t].arcs()
        cells, arcs = cells + int(inside.sum()), arcs + int((inside[source] & inside[destination]).sum())
    return cells, arcs, len(part.times)


def measure(
    job: Job,
    parts: Sequence[BatchSpec],
    *,
    seconds: float = MEASURE_S,
    stages: bool = True,
    typical: bool = False,
    progress: Progress | None = None,
) -> PassTimes:
    """Time passes over parts of a job, without changing the job or the random state.

    Args:
        parts: from small to large. Parts beyond the time limit are skipped, but at least ``MIN_PASSES`` are timed.
        seconds: the time limit.
        stages: whether to time the time stages separately, which needs as many passes again.
        typical: use the median of wall times instead of the fastest run.

    Raises:
        OptionError: there are no parts.
    """
    if not parts:
        raise OptionError("no training snapshot has a node: there is nothing to time")
    timed: dict[int, tuple[Window, float, float]] = {}
    sizes = np.array([part_sizes(job.problem.graph, part) for part in parts])
    load = CELL_LOAD * sizes[:, 0] + sizes[:, 1]
    with isolated_model(job) as (model, head), torch.enable_grad():
        run = partial(run_pass, job, model, head)
        run(make_window(job, replace(parts[0], continues_state=False)))  # warm up
        began = perf_counter()

        def fits(number: int) -> bool:
            nearest = max((k for k in timed if k < number), default=None)
            if nearest is None:
                return not timed
            expected = timed[nearest][1] * load[number] / load[nearest]
            return bool(perf_counter() - began + 2 * _MIN_RUNS * expected < seconds)

        def time_part(number: int) -> None:
            if progress is not None:
                progress.stage("timing passes", len(timed), len(parts))
            window = make_window(job, replace(parts[number], continues_state=False))
            pass_s = fastest_stable(partial(run, window))
            timed[number] = window, pass_s, _time_stage_seconds(model, window, pass_s) if stages else 0.0

        for number in _coarse_to_fine(len(parts)):
            if fits(number):
                time_part(number)
        for number in range(len(parts)):
            if len(timed) < MIN_PASSES and number not in timed:
                time_part(number)
        numbers = sorted(timed)
        windows, fastest, in_time = (list(each) for each in zip(*(timed[k] for k in numbers), strict=True))
        took = _measure_in_turns(run, windows, seconds / 2) if typical else fastest
    cells, arcs, snapshots = sizes[numbers].T
    stage = np.array(in_time) * np.array(took) / np.array(fastest)
    return PassTimes(
        part=np.array(numbers), cells=cells, arcs=arcs, snapshots=snapshots, seconds=np.array(took), time_stage_s=stage
    )


def _coarse_to_fine(num_parts: int) -> list[int]:
    """Order part indices: first a few from the smallest to the largest, which a fit needs, then the rest."""
    first = np.unique(np.linspace(0, num_parts - 1, MIN_PASSES).round().astype(np.int64)).tolist()
    return [*first, *(number for number in range(num_parts) if number not in first)]


def _measure_in_turns(run: Callable[[Window], object], windows: Sequence[Window], seconds: float) -> list[float]:
    """Measure the median wall time of a pass over each window, in turns, so that caches are cold as in an epoch."""
    took: list[list[float]] = []
    began = perf_counter()
    while len(took) < _MIN_RUNS or (len(took) < _MAX_RUNS and perf_counter() - began < seconds):
        took.append([_wall_seconds(partial(run, window)) for window in windows])
    return [median(each) for each in zip(*took, strict=True)]


def predict_batch_seconds(job: Job) -> FloatArray:
    """Predict the seconds of every batch, [B], of a job whose ranks have their own batches, from timed samples."""
    return apply_linear_cost(measure(job, sample_parts(job), stages=False, progress=job.progress).fit(), job)


def apply_linear_cost(cost: LinearCost, job: Job) -> FloatArray:
    """Apply a cost to every batch of a job whose ranks have their own batches, [B]."""
    snapshots = np.array([len(batch.times) for batch in job.batches], np.int64)
    return cost(*batch_sizes(job.problem.graph, job.batches), snapshots)


def fastest_stable(run: Callable[[], float]) -> float:
    """Return the seconds of the fastest run once a second run agrees with it; the first run warms up."""
    run()
    took = [run() for _ in range(_MIN_RUNS)]
    while len(took) < _MAX_RUNS and sum(took) < _MAX_RUN_S and sorted(took)[1] > (1 + _TOLERANCE) * min(took):
        took.append(run())
    return min(took)


def _wall_seconds(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def make_window(job: Job, part: BatchSpec) -> Window:
    """Build the window of a part as a single rank would."""
    sharing = PartitionedGraph(job.problem.graph, device=job.device, dtype=job.settings.row_dtype)
    return window_of_batch(sharing, part, job.settings.recompute)


def run_pass(job: Job, model: nn.Module, head: nn.Module, window: Window) -> float:
    """Time a forward and backward pass."""
    began = clock(job.device)
    examples = window_examples(job.problem, window, 0)
    loss, _ = window_loss(model, head, job.problem, window, None, examples)
    (loss / max(num_examples(examples), 1)).backward()
    return clock(job.device) - began


def _time_stage_seconds(model: nn.Module, window: Window, pass_s: float) -> float:
    """Time the time stages of a pass; 0 if stages cannot be separated."""
    segments = [segment.data for segment in window]
    gradients = [cells.x.new_ones(cells.num_cells, model.width) for cells in segments]  # type: ignore[call-overload]
    runs: list[StageSeconds] = []

    def run() -> float:
        each = [time_pass(model, cells, gradient) for cells, gradient in zip(segments, gradients, strict=True)]
        runs.append(StageSeconds(*(sum(part) for part in zip(*each, strict=True))))
        return runs[-1].time

    try:
        fastest = fastest_stable(run)
    except RuntimeError as error:
        if not is_second_backward(error):
            raise
        return 0.0
    if len(window) > 1:  # the backward pass recomputes both stages of segments
        return pass_s * median(each.time / sum(each) for each in runs)
    return min(fastest, pass_s)


@contextmanager
def isolated_model(job: Job) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Make a model and head for measurements; copies a user's module and restores the random state."""
    before = random_state()
    choice = replace(job.choice, make=lambda features: copy.deepcopy(job.choice.make(features)))
    try:
        model, head = replace(job, choice=choice).make_model()
        yield model.train(), head.train()
    finally:
        restore_random_state(before)


def measure_optimizer_step(job: Job) -> float:
    """Time an optimizer step."""
    with isolated_model(job) as (model, head):
        weights = [*model.parameters(), *head.parameters()]
        optimizer = make_optimizer(weights, job)

        def run() -> float:
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            began = clock(job.device)
            optimizer.step()
            optimizer.zero_grad()
            return clock(job.device) - began

        return fastest_stable(run)


def measure_byte_seconds(job: Job) -> float:
    """Time gathering or scattering a byte of rows: half of both together."""
    rows = torch.zeros(4 * _MOVED_ROWS, _COLUMNS, dtype=job.settings.dtype, device=job.device)
    where = torch.from_numpy(np.random.default_rng(0).permutation(len(rows))[:_MOVED_ROWS].copy()).to(job.device)

    def run() -> float:
        began = clock(job.device)
        rows.index_add_(0, where, rows[where])
        return clock(job.device) - began

    return fastest_stable(run) / (2 * _MOVED_ROWS * _COLUMNS * rows.element_size())
