"""Smaller graphs with as many arcs per cell, and passes over them in place of a job's batches: their memory, and the
seconds of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from strobe.batching import BatchSpec
from strobe.comm import SingleRankComm
from strobe.engine.job import Job
from strobe.engine.sources.batch_order import batch_loads
from strobe.engine.windows import Window
from strobe.graph import DynamicGraph, Snapshot
from strobe.graph.convert import from_edges
from strobe.ops.sparse.csr import IntArray
from strobe.planner.time.passes import isolated_model, make_window, run_pass
from strobe.tasks.split import PARTS


def downsample(graph: DynamicGraph, nodes: int, *, seed: int = 0) -> DynamicGraph:
    """Sample nodes of a graph with their presence, features and labels, keeping the number of arcs per cell.

    Arcs are rewired at random among sampled cells, in proportion to the cells' degrees.
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(graph.num_nodes, min(nodes, graph.num_nodes), replace=False))
    snapshots = [_SampledSnapshot(graph[t], sample, chosen, rng) for t, sample in enumerate(graph.subset(chosen))]
    return from_edges(
        [each.edges for each in snapshots],
        weights=[each.weights for each in snapshots] if graph.weighted else None,
        num_nodes=len(chosen),
        nodes=[each.nodes for each in snapshots],
        x=None if graph.features is None else [np.asarray(each.sample.x) for each in snapshots],
        y=None if graph.labels is None else [np.asarray(each.sample.y) for each in snapshots],
        times=graph.times,
        directed=graph.directed,
    )


class _SampledSnapshot:
    """The sampled cells of a snapshot, with random arcs."""

    def __init__(self, snapshot: Snapshot, sample: Snapshot, chosen: IntArray, rng: np.random.Generator) -> None:
        self.sample = sample
        self.nodes: IntArray = np.searchsorted(chosen, sample.nodes)
        arcs = round(snapshot.num_arcs * sample.num_nodes / max(snapshot.num_nodes, 1))
        place = np.searchsorted(snapshot.nodes, sample.nodes)
        number = arcs if snapshot.directed else arcs // 2
        read = self._sample_by_degree(snapshot.out_degree[place], number, rng)
        reader = self._sample_by_degree(snapshot.row_ptr[place + 1] - snapshot.row_ptr[place], number, rng)
        self.edges = np.stack([read, reader])
        self.weights = np.ones(number, np.float32)

    def _sample_by_degree(self, degree: IntArray, number: int, rng: np.random.Generator) -> IntArray:
        """Sample ``number`` nodes with replacement, in proportion to their degree."""
        ends = np.repeat(self.nodes, degree)
        if not len(ends):
            ends = self.nodes
        return rng.choice(ends, number) if len(ends) else np.empty(0, np.int64)


@dataclass(frozen=True)
class DownsampledBatch:
    """A batch of a job on a downsampled graph: the job there, the batch's snapshots, and the batch."""

    job: Job
    times: range
    batch: BatchSpec

    def make_window(self) -> Window:
        """Build the window of the batch."""
        return make_window(self.job, self.batch)


def downsample_batch(job: Job, batch: BatchSpec, nodes: int) -> DownsampledBatch:
    """Downsample the snapshots of a batch, and as many more as the task needs to have labels for all parts."""
    whole = job.source.graph
    ahead = len(whole) - job.problem.split.test.stop  # snapshots after the last test snapshot, for its labels
    most = min(len(batch.times) + ahead + 2 * job.problem.split.gap + len(PARTS), len(whole))
    start = min(batch.times.start, len(whole) - most)
    first = batch.times.start - start
    times = range(first, first + len(batch.times))
    graph = downsample(whole[start : start + most], nodes, seed=job.settings.seed)
    problem = job.task.bind(job.plan.store.wrap(graph), seed=job.settings.seed).with_online_split(times.stop)
    thin = replace(job, problem=problem, source=replace(job.source, graph=graph))
    return DownsampledBatch(thin, times, BatchSpec(times, times, continues_state=batch.continues_state))


_TIMED_NODES = (512, 4_096)
"""Nodes of the downsampled graphs whose passes are timed."""


def estimate_run_seconds(job: Job) -> float:
    """Estimate the seconds of all epochs, from passes over two small graphs: a cost per pass and one per load."""
    batches, num_ranks = job.batches, job.comm.num_ranks
    alone = replace(job, comm=SingleRankComm())
    loads = batch_loads(job.problem.graph, batches)
    if not loads.size or not loads.max():
        return 0.0
    times, sizes = zip(*(_time_pass(alone, batches[int(loads.argmax())], nodes) for nodes in _TIMED_NODES), strict=True)
    slope = max((times[1] - times[0]) / max(sizes[1] - sizes[0], 1), 0.0)
    fixed = max(times[0] - slope * sizes[0], 0.0)
    return float(job.settings.epochs * (fixed * len(batches) + slope * loads.sum()) / num_ranks)


def _time_pass(job: Job, batch: BatchSpec, nodes: int) -> tuple[float, float]:
    """Seconds of a pass over a downsampled batch, and the batch's load."""
    small = downsample_batch(job, batch, nodes)
    with isolated_model(small.job) as (model, head), torch.enable_grad():
        window = small.make_window()
        seconds = min(run_pass(small.job, model, head, window) for _ in range(3))
    return seconds, float(batch_loads(small.job.problem.graph, [small.batch])[0])
