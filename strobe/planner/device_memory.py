"""What training takes of a device's memory, known before anything is there.

A pass over the largest window is run on graphs of the same proportions, of two sizes that fit anywhere. All that
tensors take grows with the graph, so a line through both tells what the pass over the window itself will take; and so
with scoring, since the last snapshots of a graph that grows are its largest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from strobe.batching import Batch
from strobe.batching.base import pieces
from strobe.engine.job import Job
from strobe.engine.passes import answers, ask, count, detached, window_loss
from strobe.engine.scheduling import batch_loads
from strobe.engine.windows import Window
from strobe.ops.allocation import bytes_of
from strobe.planner.pass_times import apart, window_over
from strobe.planner.thinned import thinned
from strobe.tasks.split import PARTS
from strobe.view import Carry

NODES = {"cuda": 131_072, "cpu": 8_192}
"""Nodes of the larger of both graphs, at least; the smaller has a quarter of them."""

CELLS = {"cuda": 1 << 22, "cpu": 0}
"""Cells of a pass over it, at least. With fewer, kernels would not fill a GPU, and some of what they take does not grow
any more once they do."""


@dataclass(frozen=True)
class Foretold:
    """Bytes on the device: weights and what the optimiser keeps of them, with what libraries keep for good; what is
    made once for ``kept`` windows, all of them, and for the largest of their ``segment``s; what a pass takes beside,
    there and back; what scoring test snapshots does, which are made for that alone."""

    weights: int
    kept: int
    segment: int
    working: int
    scoring: int

    @property
    def resident(self) -> int:
        """The most at a time where all windows stay on the device."""
        return self.weights + self.kept + max(self.working, self.scoring)

    @property
    def streamed(self) -> int:
        """The most where only the segment that is computed and the next are on it."""
        return self.weights + 2 * self.segment + max(self.working, self.scoring)


class _Taken(NamedTuple):
    """Cells that are computed together, the most bytes that takes, and what is left of them."""

    cells: int
    most: int
    left: int


def foretold(job: Job, nodes: int | None = None) -> Foretold:
    """What a job that keeps its windows will take, as one rank with its settings. ``nodes`` of the larger graph."""
    batches, split = job.batches, job.problem.split
    loads = batch_loads(job.problem.graph, batches)
    largest = batches[int(loads.argmax())]
    if nodes is None:
        nodes = max(NODES[job.device.type], CELLS[job.device.type] // len(largest.times))
    for_good = _left_for_good(job, largest, nodes)
    nodes = min(nodes, job.problem.graph.num_nodes)
    learnt, scored = zip(*(_thin(job, largest, max(number, 1)) for number in (nodes // 4, nodes)), strict=True)
    taken = _at(_cells(job, largest.times), *learnt)
    kept = [Batch(part, part) for part in (split.train, split.validation)]
    share = batch_loads(job.problem.graph, kept).sum() / loads.max()
    segments = len(list(pieces(largest.times, job.settings.recompute)))
    with apart(job) as (model, head):
        sizes = [weight.numel() * weight.element_size() for weight in (*model.parameters(), *head.parameters())]
    states = 2 if job.settings.optimiser == "adam" else 0
    return Foretold(
        weights=sum(sizes) * (1 + states) + for_good,
        kept=round(taken.left * share),
        segment=-(-taken.left // segments),
        working=taken.most - taken.left,
        scoring=_at(_most_scored(job), *scored).most,
    )


def _left_for_good(job: Job, batch: Batch, nodes: int) -> int:
    """What libraries keep on a GPU once they have run there: of a first pass all else is gone."""
    if job.device.type != "cuda":
        return 0
    return bytes_of(lambda: _thin(job, batch, max(nodes // 4, 1)), job.device).left


def _most_scored(job: Job) -> int:
    """Cells of the largest segment of test snapshots."""
    return max(_largest_segment(job, window) for window in pieces(job.problem.split.test, job.plan.batching.window))


def _largest_segment(job: Job, window: range) -> int:
    return max(_cells(job, part) for part in pieces(window, job.settings.recompute))


def _cells(job: Job, times: range) -> int:
    ptr = job.problem.graph.cell_ptr
    return int(ptr[times.stop] - ptr[times.start])


def _at(cells: int, small: _Taken, large: _Taken) -> _Taken:
    """What as many cells take, along the line through two numbers of them."""
    slope = (cells - small.cells) / max(large.cells - small.cells, 1)
    return _Taken(*(round(a + (b - a) * slope) for a, b in zip(small, large, strict=True)))


def _thin(job: Job, batch: Batch, nodes: int) -> tuple[_Taken, _Taken]:
    """What passes over a batch take in a thinned graph: those that learn, and those that score."""
    whole = job.source.graph
    ahead = len(whole) - job.problem.split.test.stop  # snapshots after the last that is asked about, for its answers
    most = min(len(batch.times) + ahead + 2 * job.problem.split.gap + len(PARTS), len(whole))
    start = min(batch.times.start, len(whole) - most)
    first = batch.times.start - start
    times = range(first, first + len(batch.times))
    graph = thinned(whole[start : start + most], nodes, seed=job.settings.seed)
    problem = job.task.bind(job.plan.store.keep(graph), seed=job.settings.seed).at(times.stop)
    thin = replace(job, problem=problem, source=replace(job.source, graph=graph))
    part = Batch(times, times, carries=batch.carries)
    window, passes = window_over(thin, part), 0

    def learn() -> None:
        nonlocal passes
        passes = _run(thin, model, head, window, len(job.batches))

    def judge() -> None:
        for _ in answers(model.eval(), head.eval(), problem, passes * [window_over(thin, part)], times):
            pass

    with apart(thin) as (model, head), torch.enable_grad():
        learnt, scored = bytes_of(learn, job.device), bytes_of(judge, job.device)
    return _Taken(_cells(thin, times), *learnt), _Taken(_largest_segment(thin, times), *scored)


def _run(job: Job, model: nn.Module, head: nn.Module, window: Window, most: int) -> int:
    """Passes over a window, each with the state that the one before left, as long as that grows; their number."""
    carry: Carry | None = None
    carried = -1
    for number in range(most):
        questions = ask(job.problem, window, 0)
        loss, carry = window_loss(model, head, job.problem, window, carry, questions)
        carry = detached(carry)
        (loss / max(count(questions), 1)).backward()
        carried, before = sum(each.nbytes for each in pytree.tree_leaves(carry) if isinstance(each, Tensor)), carried
        if carried == before:
            return number + 1
    return most
