"""How long passes over snapshots of a job take on this machine: forward, loss and backward, as training runs them.

Where passes are compared with each other, each runs until the fastest is to be believed, and on one thread the
processor's time is counted. Where epochs are to be foretold, what a pass usually takes counts, by the clock: others
will be in the way then, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from strobe.batching import Batch
from strobe.engine.job import Job
from strobe.engine.machine import random_state, restore_random_state
from strobe.engine.optimiser import make_optimiser
from strobe.engine.passes import ask, count, window_loss
from strobe.engine.progress import Progress
from strobe.engine.scheduling import batch_sizes
from strobe.engine.sharing import Sharing, around
from strobe.engine.windows import Window, window_of
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.allocation import peak_bytes_of
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.work import CELL_LOAD
from strobe.planner.linear import Linear, fit_linear
from strobe.planner.stages import Seconds, clock, timed_pass

MEASURE_S = 6.0
"""Seconds to measure in."""

SAMPLES = 16
"""Passes of different sizes that are enough for a line."""

FEWEST_PASSES = 5
"""Passes that are timed in any case, where there are as many parts. A line has 4 numbers: 1 more, and its error is
known."""

_AGREE = 0.05  # two runs that differ by less say the same
_FEWEST_RUNS, _MOST_RUNS, _RUNNING_S = 3, 12, 0.2
_FRACTIONS = (4, 16)  # of the nodes
_MOVED, _COLUMNS = 1 << 15, 32  # rows that are picked out and put back


@dataclass(frozen=True, eq=False, kw_only=True)
class PassTimes:
    """Passes that were timed, [M] each: their sizes, their seconds, and how many of those are the time stage's."""

    cells: IntArray
    arcs: IntArray
    snapshots: IntArray
    seconds: FloatArray
    in_time: FloatArray

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, which: npt.NDArray[Any]) -> PassTimes:
        """Some of them."""
        return replace(self, **{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def line(self) -> Linear:
        """What passes cost."""
        return fit_linear(self.cells, self.arcs, self.seconds, self.snapshots)

    def time_line(self) -> Linear:
        """What their time stages cost; nothing where a model has none that can be told apart."""
        if not self.in_time.all():
            return Linear(per_cell=0.0, per_arc=0.0, fixed=0.0)
        return fit_linear(self.cells, np.zeros_like(self.arcs), self.in_time, self.snapshots)

    @property
    def error(self) -> float:
        """The mean absolute percentage error of lines about passes they have not seen: each pass is left out once."""
        numbers = np.arange(len(self))
        lines = [self.take(np.delete(numbers, k)).line() for k in numbers]
        said = np.array([line(self.cells[k], self.arcs[k], self.snapshots[k]) for k, line in enumerate(lines)])
        return float(np.abs(said / self.seconds - 1).mean())


def spread(job: Job, most: int = SAMPLES) -> list[Batch]:
    """Parts of a job from small to large. Where batches are one rank's each, some of them; else stretches of the
    training snapshots, for a rank has some cells of a batch, and how many depends on the number of ranks.

    Of stretches some have only a part of the nodes: fewer cells a snapshot and fewer arcs a cell, or nothing could
    tell what each of them costs.
    """
    parts = job.batches if job.plan.own_batches else _stretches(job)
    sizes = [_size(job.problem.graph, part) for part in parts]
    order = [k for k in np.argsort(sizes, kind="stable") if sizes[k]]
    chosen = np.unique(np.linspace(0, max(len(order) - 1, 0), min(most, len(order))).round().astype(np.int64))
    return [parts[order[k]] for k in chosen]


def _stretches(job: Job) -> list[Batch]:
    graph, train = job.problem.graph, job.problem.split.train
    lengths = sorted({max(1, len(train) >> k) for k in range(len(train).bit_length())})
    times = [train[at : at + n] for n in lengths for at in sorted({0, len(train) - n})]
    order = np.random.default_rng(job.settings.seed).permutation(graph.num_nodes)
    some = [np.sort(order[: len(order) // k]) for k in _FRACTIONS]
    # The other end of a pair may be in no part of the nodes.
    nodes = [None] if job.problem.asks_pairs else [None, *some]
    return [Batch(each, each, some, carries=False) for each in times for some in nodes]


def _size(graph: DynamicGraph, part: Batch) -> int:
    """About how large a part is; 0 where it has no cells."""
    cells, arcs, _ = part_sizes(graph, part)
    return CELL_LOAD * cells + arcs


def part_sizes(graph: DynamicGraph, part: Batch) -> tuple[int, int, int]:
    """Cells, arcs among them, and snapshots of a part of a graph."""
    if part.targets is None:
        cells, arcs = (int(each[0]) for each in batch_sizes(graph, [part]))
        return cells, arcs, len(part.times)
    cells = arcs = 0
    for t, inside in zip(part.times, around(graph, part.times, part.targets, part.hops), strict=True):
        source, destination = graph[t].arcs()
        cells, arcs = cells + int(inside.sum()), arcs + int((inside[source] & inside[destination]).sum())
    return cells, arcs, len(part.times)


def measure(
    job: Job,
    parts: Sequence[Batch],
    *,
    seconds: float = MEASURE_S,
    stages: bool = True,
    usual: bool = False,
    progress: Progress | None = None,
) -> PassTimes:
    """Times passes over parts of a job, given from small to large; those that there is no time for are left out, but
    for the smallest ``FEWEST_PASSES``.

    Neither the job nor the random numbers of the caller notice. Without ``stages`` it does not look what time stages
    take, which needs as many passes again. ``usual`` tells what passes usually take, not at best.
    """
    return measure_numbered(job, parts, seconds=seconds, stages=stages, usual=usual, progress=progress)[1]


def measure_numbered(
    job: Job,
    parts: Sequence[Batch],
    *,
    seconds: float = MEASURE_S,
    stages: bool = True,
    usual: bool = False,
    progress: Progress | None = None,
) -> tuple[list[int], PassTimes]:
    """The same, with the numbers of the parts that were timed."""
    if not parts:
        raise OptionError("no snapshot to train on has a node: there is nothing to time")
    found: dict[int, tuple[Window, float, float]] = {}
    sizes = np.array([part_sizes(job.problem.graph, part) for part in parts])
    load = CELL_LOAD * sizes[:, 0] + sizes[:, 1]
    with apart(job) as (model, head), torch.enable_grad():
        run = partial(one_pass, job, model, head)
        run(window_over(job, replace(parts[0], carries=False)))  # what is compiled or allocated once counts nowhere
        began = perf_counter()

        def fits(number: int) -> bool:
            nearest = max((k for k in found if k < number), default=None)
            if nearest is None:
                return not found
            expected = found[nearest][1] * load[number] / load[nearest]
            return bool(perf_counter() - began + 2 * _FEWEST_RUNS * expected < seconds)

        def time_part(number: int) -> None:
            if progress is not None:
                progress.stage("timing passes", len(found), len(parts))
            window = window_over(job, replace(parts[number], carries=False))
            whole = steady(partial(run, window))
            found[number] = window, whole, _in_time(model, window, whole) if stages else 0.0

        for number in _in_strides(len(parts)):
            if fits(number):
                time_part(number)
        for number in range(len(parts)):
            if len(found) < FEWEST_PASSES and number not in found:
                time_part(number)
        numbers = sorted(found)
        windows, fastest, in_time = (list(each) for each in zip(*(found[k] for k in numbers), strict=True))
        took = _in_turns(run, windows, seconds / 2) if usual else fastest
    cells, arcs, snapshots = sizes[numbers].T
    stage = np.array(in_time) * np.array(took) / np.array(fastest)
    return numbers, PassTimes(cells=cells, arcs=arcs, snapshots=snapshots, seconds=np.array(took), in_time=stage)


def _in_strides(num_parts: int) -> list[int]:
    """Numbers of parts: from the smallest to the largest in a few strides, then those between. A line through small
    parts only says little of large ones."""
    first = np.unique(np.linspace(0, num_parts - 1, FEWEST_PASSES).round().astype(np.int64)).tolist()
    return [*first, *(number for number in range(num_parts) if number not in first)]


def _in_turns(run: Callable[[Window], object], windows: Sequence[Window], seconds: float) -> list[float]:
    """What a pass over each window usually takes, by the clock. As in an epoch others come between two passes over the
    same window, and what was in cache is gone."""
    took: list[list[float]] = []
    began = perf_counter()
    while len(took) < _FEWEST_RUNS or (len(took) < _MOST_RUNS and perf_counter() - began < seconds):
        took.append([_by_the_clock(partial(run, window)) for window in windows])
    return [median(each) for each in zip(*took, strict=True)]


def predicted_seconds(job: Job) -> FloatArray:
    """Seconds of every batch of a job whose batches are one rank's each, from some of them that are timed now."""
    return line_over(measure(job, spread(job), stages=False, progress=job.watch).line(), job)


def line_over(line: Linear, job: Job) -> FloatArray:
    """What a line says of every batch of a job whose batches are one rank's each, [B]."""
    snapshots = np.array([len(batch.times) for batch in job.batches], np.int64)
    return line(*batch_sizes(job.problem.graph, job.batches), snapshots)


def pass_bytes(job: Job, part: Batch) -> int:
    """The most bytes that tensors of a pass over a part have at a time."""
    with apart(job) as (model, head), torch.enable_grad():
        window = window_over(job, replace(part, carries=False))
        return peak_bytes_of(lambda: one_pass(job, model, head, window), job.device)


def steady(run: Callable[[], float]) -> float:
    """Seconds of the fastest run, once another took about as long; the first warms up. Whatever disturbs a run makes
    it slower."""
    run()
    took = [run() for _ in range(_FEWEST_RUNS)]
    while len(took) < _MOST_RUNS and sum(took) < _RUNNING_S and sorted(took)[1] > (1 + _AGREE) * min(took):
        took.append(run())
    return min(took)


def _by_the_clock(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def window_over(job: Job, part: Batch) -> Window:
    """The window of a part, as one rank that has all of it would run it."""
    sharing = Sharing(job.problem.graph, device=job.device, dtype=job.settings.row_dtype)
    return window_of(sharing, part, job.settings.recompute)


def one_pass(job: Job, model: nn.Module, head: nn.Module, window: Window) -> float:
    """Seconds of a pass, there and back."""
    began = clock(job.device)
    questions = ask(job.problem, window, 0)
    loss, _ = window_loss(model, head, job.problem, window, None, questions)
    (loss / max(count(questions), 1)).backward()
    return clock(job.device) - began


def _in_time(model: nn.Module, window: Window, whole: float) -> float:
    """Seconds of time stages in a pass; 0 where stages cannot be told apart."""
    cuts = [segment.cells for segment in window]
    gradients = [cells.x.new_ones(cells.num_cells, model.width) for cells in cuts]  # type: ignore[call-overload]
    found: list[Seconds] = []

    def run() -> float:
        each = [timed_pass(model, cells, gradient) for cells, gradient in zip(cuts, gradients, strict=True)]
        found.append(Seconds(*(sum(part) for part in zip(*each, strict=True))))
        return found[-1].time

    try:
        fastest = steady(run)
    except RuntimeError as error:
        if "a second time" not in str(error):  # what autograd says of a history that was used up
            raise
        return 0.0
    if len(window) > 1:  # segments are computed again on the way back, both stages alike
        return whole * median(each.time / sum(each) for each in found)
    return min(fastest, whole)


@contextmanager
def apart(job: Job) -> Iterator[tuple[nn.Module, nn.Module]]:
    """A model of its own; a module that was given is copied, and random numbers go on as if nothing had been."""
    before = random_state()
    choice = replace(job.choice, make=lambda features: copy.deepcopy(job.choice.make(features)))
    try:
        model, head = replace(job, choice=choice).make()
        yield model.train(), head.train()
    finally:
        restore_random_state(before)


def step_seconds(job: Job) -> float:
    """Seconds of a step of the optimiser."""
    with apart(job) as (model, head):
        weights = [*model.parameters(), *head.parameters()]
        optimiser = make_optimiser(weights, job)

        def run() -> float:
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            began = clock(job.device)
            optimiser.step()
            optimiser.zero_grad()
            return clock(job.device) - began

        return steady(run)


def byte_seconds(job: Job) -> float:
    """Seconds to pick a byte of rows out, or to put one where it belongs: half of what both take."""
    rows = torch.zeros(4 * _MOVED, _COLUMNS, dtype=job.settings.dtype, device=job.device)
    where = torch.from_numpy(np.random.default_rng(0).permutation(len(rows))[:_MOVED].copy()).to(job.device)

    def run() -> float:
        began = clock(job.device)
        rows.index_add_(0, where, rows[where])
        return clock(job.device) - began

    return steady(run) / (2 * _MOVED * _COLUMNS * rows.element_size())
