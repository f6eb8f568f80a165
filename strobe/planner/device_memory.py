"""What training takes of a device's memory, known before anything is there.

A pass over the largest window is run on graphs of the same proportions, of two sizes that fit anywhere. All that
tensors take grows with the graph, so a line through both tells what the pass over the window itself will take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from strobe.batching import Batch
from strobe.batching.base import pieces
from strobe.engine.job import Job
from strobe.engine.passes import ask, count, detached, window_loss
from strobe.engine.scheduling import batch_loads
from strobe.engine.windows import Window
from strobe.ops.allocation import Bytes, bytes_of
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
    made once for ``kept`` windows, all of them, and for the largest of their ``segment``s; what a pass takes beside."""

    weights: int
    kept: int
    segment: int
    working: int

    @property
    def resident(self) -> int:
        """The most at a time where all windows stay on the device."""
        return self.weights + self.kept + self.working

    @property
    def streamed(self) -> int:
        """The most where only the segment that is computed and the next are on it."""
        return self.weights + 2 * self.segment + self.working


def foretold(job: Job, nodes: int | None = None) -> Foretold:
    """What a job that keeps its windows will take, as one rank with its settings. ``nodes`` of the larger graph."""
    batches, split = job.batches, job.problem.split
    loads = batch_loads(job.problem.graph, batches)
    largest = batches[int(loads.argmax())]
    if nodes is None:
        nodes = max(NODES[job.device.type], CELLS[job.device.type] // len(largest.times))
    for_good = _left_for_good(job, largest, nodes)
    taken = _largest(job, largest, nodes)
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
    )


def _left_for_good(job: Job, batch: Batch, nodes: int) -> int:
    """What libraries keep on a GPU once they have run there: of a first pass all else is gone."""
    if job.device.type != "cuda":
        return 0
    return bytes_of(lambda: _thin(job, batch, max(nodes // 4, 1)), job.device).left


def _largest(job: Job, batch: Batch, nodes: int) -> Bytes:
    """What a pass over a batch takes, along the line through two smaller ones."""
    graph = job.problem.graph
    cells = int(graph.cell_ptr[batch.times.stop] - graph.cell_ptr[batch.times.start])
    nodes = min(nodes, graph.num_nodes)
    small, large = (_thin(job, batch, max(number, 1)) for number in (nodes // 4, nodes))
    slope = (cells - small[0]) / max(large[0] - small[0], 1)
    return Bytes(*(round(a + (b - a) * slope) for a, b in zip(small[1], large[1], strict=True)))


def _thin(job: Job, batch: Batch, nodes: int) -> tuple[int, Bytes]:
    """Cells of the batch in a thinned graph, and what a pass over them takes."""
    whole = job.source.graph
    ahead = len(whole) - job.problem.split.test.stop  # snapshots after the last that is asked about, for its answers
    most = min(len(batch.times) + ahead + len(PARTS), len(whole))
    start = min(batch.times.start, len(whole) - most)
    first = batch.times.start - start
    times = range(first, first + len(batch.times))
    graph = thinned(whole[start : start + most], nodes, seed=job.settings.seed)
    problem = job.task.bind(job.plan.store.keep(graph), seed=job.settings.seed).at(times.stop)
    thin = replace(job, problem=problem, source=replace(job.source, graph=graph))
    window = window_over(thin, Batch(times, times, carries=batch.carries))
    with apart(thin) as (model, head), torch.enable_grad():
        taken = bytes_of(lambda: _run(thin, model, head, window, len(job.batches)), job.device)
    return int(np.diff(problem.graph.cell_ptr[[times.start, times.stop]])[0]), taken


def _run(job: Job, model: nn.Module, head: nn.Module, window: Window, most: int) -> None:
    """Passes over a window, each with the state that the one before left, as long as that grows."""
    carry: Carry | None = None
    carried = -1
    for _ in range(most):
        questions = ask(job.problem, window, 0)
        loss, carry = window_loss(model, head, job.problem, window, carry, questions)
        carry = detached(carry)
        (loss / max(count(questions), 1)).backward()
        carried, before = sum(each.nbytes for each in pytree.tree_leaves(carry) if isinstance(each, Tensor)), carried
        if carried == before:
            break
