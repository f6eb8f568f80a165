"""Predicted memory: of a job, from passes over downsampled graphs, and of single batches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from strobe.batching import BatchSpec
from strobe.batching.base import split_times
from strobe.comm import SingleRankComm
from strobe.engine.forward import detach_tree, num_examples, predict_windows, window_examples, window_loss
from strobe.engine.inputs.cached_results import task_key
from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.engine.sources.batch_order import batch_loads, batch_sizes
from strobe.engine.windows import Window
from strobe.errors import OptionError
from strobe.format import file_size
from strobe.ops.runtime.memory_trace import measure_memory, measure_peak_bytes
from strobe.ops.sparse.csr import FloatArray
from strobe.planner.downsample import downsample_batch
from strobe.planner.time.passes import isolated_model, make_window, run_pass
from strobe.view import Carry

ROUGH_NODES = 1_024
"""Nodes of the larger downsampled graph of a rough estimate, which is made on the CPU."""

ROUGH_SNAPSHOTS = 64
"""Snapshots of the longer passes of a rough estimate: passes over half as many and as many stand for longer batches. A
snapshot costs some 10 ms, however small it is."""

MIN_NODES = {"cuda": 131_072, "cpu": 8_192}
"""Least nodes of the larger downsampled graph; the smaller has a quarter of them."""

MIN_CELLS = {"cuda": 1 << 22, "cpu": 0}
"""Least cells of a pass over it: on a GPU that is not full, some allocations do not grow with the cells."""


_UNEVEN = 1.25
"""Cells of the rank that has most, and rows that it receives, over an equal share of the cells."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak device memory in bytes, by cause.

    Attributes:
        weights: parameters, optimizer state and library workspaces.
        windows: inputs cached for all windows.
        segment: inputs of the largest segment.
        working: forward and backward pass over one segment.
        scoring: evaluation of the test snapshots.
    """

    weights: int
    windows: int
    segment: int
    working: int
    scoring: int

    @property
    def resident(self) -> int:
        """Peak if all windows stay on the device."""
        return self.weights + self.windows + max(self.working, self.scoring)

    @property
    def offloaded(self) -> int:
        """Peak if only the current and the next segment are on the device."""
        return self.weights + 2 * self.segment + max(self.working, self.scoring)

    def of_rank(self, num_ranks: int) -> MemoryEstimate:
        """Peak of one of several ranks among which the cells are placed."""
        share = min(1.0, _UNEVEN / num_ranks)
        parts = (round(share * part) for part in (self.windows, self.segment, self.working, self.scoring))
        return MemoryEstimate(self.weights, *parts)


def estimate_peak_memory(job: Job, room: float) -> MemoryEstimate:
    """Estimate the peak memory of a job's ranks as exactly as the decision needs.

    Small passes on the CPU, which take a fraction of a second, tell within a factor of two. If twice their estimate
    fits into ``room`` bytes, it is returned; otherwise larger passes run on the device. Of several ranks only the rough
    estimate is made.
    """
    alone = replace(job, comm=SingleRankComm())
    rough = predict_peak_memory(replace(alone, device=torch.device("cpu")), ROUGH_NODES, ROUGH_SNAPSHOTS)
    if job.comm.num_ranks > 1:
        return rough if job.plan.per_rank_batches else rough.of_rank(job.comm.num_ranks)
    return rough if 2 * rough.resident < room else predict_peak_memory(job)


class _PassMemory(NamedTuple):
    """Cells of a pass, its peak bytes, and the bytes retained after it."""

    cells: int
    peak: int
    retained: int


def predict_peak_memory(job: Job, nodes: int | None = None, snapshots: int | None = None) -> MemoryEstimate:
    """Predict the peak memory of a job with cached windows on one rank.

    Measures passes over two downsampled graphs and extrapolates linearly in the cells; with ``snapshots`` also in the
    snapshots of longer batches, where memory may grow faster.

    Args:
        job: the job; it is not changed.
        nodes: of the larger downsampled graph; by default by device.
        snapshots: measured at most; None: all of the batch.
    """
    if nodes is None:
        nodes = _least_nodes(job)
    key = _memory_key(job, nodes, snapshots)
    found = job.results.json("memory", key, lambda: asdict(_measure_peak_memory(job, nodes, snapshots)))
    return MemoryEstimate(**found)


def _memory_key(job: Job, nodes: int, snapshots: int | None) -> dict[str, Any] | None:
    """Identify the passes; None for a model, a task or a plan of a user's own."""
    key = task_key(job.task, job.plan)
    if key is None or not job.choice.by_name:
        return None
    device = torch.cuda.get_device_name(job.device) if job.device.type == "cuda" else job.device.type
    settings, plan = job.settings.to_json(), job.plan.to_json()
    passes = {"model": job.choice.to_json(), "problem": job.problem.state(), "settings": settings, "plan": plan}
    return {**key, **passes, "nodes": nodes, "snapshots": snapshots, "device": device, "offload": job.offload}


def _least_nodes(job: Job) -> int:
    largest = _largest_batch(job)
    return max(MIN_NODES[job.device.type], MIN_CELLS[job.device.type] // len(largest.times))


def _largest_batch(job: Job) -> BatchSpec:
    return job.batches[int(batch_loads(job.problem.graph, job.batches).argmax())]


def _measure_peak_memory(job: Job, nodes: int, snapshots: int | None) -> MemoryEstimate:
    split = job.problem.split
    loads = batch_loads(job.problem.graph, job.batches)
    largest = _largest_batch(job)
    library_bytes = _library_bytes(job, largest, nodes)
    nodes = min(nodes, job.problem.graph.num_nodes)
    length = len(largest.times)
    if snapshots is None or length <= snapshots:
        largest_pass, scored_pass = _predict_passes(job, largest, nodes, length)
    else:
        halves, wholes = (_predict_passes(job, largest, nodes, number) for number in (snapshots // 2, snapshots))
        largest_pass, scored_pass = (
            _extrapolate_in_time(length, snapshots, half, whole) for half, whole in zip(halves, wholes, strict=True)
        )
    cached = [BatchSpec(part, part) for part in (split.train, split.validation)]
    share = batch_loads(job.problem.graph, cached).sum() / loads.max()
    segments = len(list(split_times(largest.times, job.settings.recompute)))
    with isolated_model(job) as (model, head):
        sizes = [weight.numel() * weight.element_size() for weight in (*model.parameters(), *head.parameters())]
    states = 2 if job.settings.optimizer == "adam" else 0
    return MemoryEstimate(
        weights=sum(sizes) * (1 + states) + library_bytes,
        windows=round(largest_pass.retained * share),
        segment=-(-largest_pass.retained // segments),
        working=largest_pass.peak - largest_pass.retained,
        scoring=scored_pass.peak,
    )


def _predict_passes(job: Job, batch: BatchSpec, nodes: int, length: int) -> tuple[_PassMemory, _PassMemory]:
    """Predict a pass over the first ``length`` snapshots of a batch, with their share of its cells, and a pass that
    scores the largest segment of test snapshots, with the same share of its cells."""
    times = batch.times[:length]
    piece = batch if length == len(batch.times) else BatchSpec(times, times, continues_state=batch.continues_state)
    trained, scored = zip(
        *(_measure_downsampled(job, piece, max(number, 1)) for number in (nodes // 4, nodes)), strict=True
    )
    cells = (_cells(job, batch.times), _max_scored_cells(job))
    share = length / len(batch.times)
    return _extrapolate(round(share * cells[0]), *trained), _extrapolate(round(share * cells[1]), *scored)


def _extrapolate_in_time(length: int, measured: int, half: _PassMemory, whole: _PassMemory) -> _PassMemory:
    """Extrapolate passes over ``measured // 2`` and ``measured`` snapshots to ``length``: bytes per snapshot grow on
    as they did, and never shrink."""

    def total(small: int, large: int) -> int:
        first, second = small / (measured // 2), large / measured
        growth = max(second - first, 0.0) / (measured - measured // 2)
        return round((second + growth * (length - measured)) * length)

    return _PassMemory(whole.cells, total(half.peak, whole.peak), total(half.retained, whole.retained))


def _library_bytes(job: Job, batch: BatchSpec, nodes: int) -> int:
    """Measure what libraries retain on a GPU after their first pass."""
    if job.device.type != "cuda":
        return 0
    return measure_memory(lambda: _measure_downsampled(job, batch, max(nodes // 4, 1)), job.device).retained_bytes


def _max_scored_cells(job: Job) -> int:
    """Count the cells of the largest segment of test snapshots."""
    return max(
        _largest_segment(job, window) for window in split_times(job.problem.split.test, job.plan.batching.window)
    )


def _largest_segment(job: Job, window: range) -> int:
    return max(_cells(job, part) for part in split_times(window, job.settings.recompute))


def _cells(job: Job, times: range) -> int:
    ptr = job.problem.graph.cell_ptr
    return int(ptr[times.stop] - ptr[times.start])


def _extrapolate(cells: int, small: _PassMemory, large: _PassMemory) -> _PassMemory:
    """Extrapolate linearly from two measured passes."""
    slope = (cells - small.cells) / max(large.cells - small.cells, 1)
    return _PassMemory(*(round(a + (b - a) * slope) for a, b in zip(small, large, strict=True)))


def _measure_downsampled(job: Job, batch: BatchSpec, nodes: int) -> tuple[_PassMemory, _PassMemory]:
    """Measure training and scoring passes over a batch of a downsampled graph."""
    small = downsample_batch(job, batch, nodes)
    thin, times = small.job, small.times
    window, passes = small.make_window(), 0

    def train() -> None:
        nonlocal passes
        passes = _run_passes(thin, model, head, window, len(job.batches))

    def score() -> None:
        for _ in predict_windows(model.eval(), head.eval(), thin.problem, passes * [small.make_window()], times):
            pass

    with isolated_model(thin) as (model, head), torch.enable_grad():
        trained, scored = measure_memory(train, job.device), measure_memory(score, job.device)
    return _PassMemory(_cells(thin, times), *trained), _PassMemory(_largest_segment(thin, times), *scored)


def _run_passes(job: Job, model: nn.Module, head: nn.Module, window: Window, max_passes: int) -> int:
    """Run passes over a window, carrying state, until its size stops growing; return their number."""
    carry: Carry | None = None
    carried = -1
    for number in range(max_passes):
        examples = window_examples(job.problem, window, 0)
        loss, carry = window_loss(model, head, job.problem, window, carry, examples)
        carry = detach_tree(carry)
        (loss / max(num_examples(examples), 1)).backward()
        carried, before = sum(each.nbytes for each in pytree.tree_leaves(carry) if isinstance(each, Tensor)), carried
        if carried == before:
            return number + 1
    return max_passes


_CELL_BYTES, _ARC_BYTES = 512, 64
"""Upper bounds of any model, per column of a cell and per arc."""

_MIN_COLUMNS = 32


def check_memory(job: Job) -> None:
    """Check that every batch fits into the memory of the rank that computes it.

    Raises:
        OptionError: names a batch that does not fit.
    """
    if not job.plan.per_rank_batches or not job.batches:
        return
    room = free_bytes(job.device)
    if upper_bound_bytes(job).max() < room / 2:
        return
    needed = predict_batch_bytes(job)
    largest = int(needed.argmax())
    if needed[largest] > room:
        times = job.batches[largest].times
        first, last = (job.problem.graph.times[t] for t in (times.start, times.stop - 1))
        raise OptionError(
            f"the batch of snapshots {first} to {last} needs about {file_size(needed[largest])} on one rank, which has "
            f"{file_size(room)}: use fewer snapshots per batch (--window {max(1, len(times) // 2)}), recompute "
            "activations (--recompute 1), or divide snapshots among ranks (--plan relay)"
        )


def upper_bound_bytes(job: Job) -> FloatArray:
    """Return an upper bound of the bytes of a pass over every batch, [B], without running one."""
    with isolated_model(job) as (model, _):
        columns = max(int(model.width), _MIN_COLUMNS)  # type: ignore[arg-type]
    cells, arcs = batch_sizes(job.problem.graph, job.batches)
    return (cells * columns * _CELL_BYTES + arcs * _ARC_BYTES).astype(np.float64)


def predict_batch_bytes(job: Job) -> FloatArray:
    """Predict the bytes of a pass over every batch, [B], linearly from the smallest and the median batch.

    Both have the most snapshots of any batch, so that bytes per snapshot are not attributed to cells.
    """
    loads = batch_loads(job.problem.graph, job.batches)
    lengths = np.array([len(batch.times) for batch in job.batches])
    longest = np.flatnonzero(lengths == lengths.max())
    order = longest[np.argsort(loads[longest], kind="stable")]
    small, median = int(order[0]), int(order[(len(order) - 1) // 2])
    high = measure_pass_bytes(job, job.batches[median])
    between = loads[median] - loads[small]
    if between > 0:
        slope = max((high - measure_pass_bytes(job, job.batches[small])) / between, 0.0)
    else:
        slope = high / max(loads[median], 1.0)
    return np.asarray(high + slope * (loads - loads[median]), np.float64)


def measure_pass_bytes(job: Job, part: BatchSpec) -> int:
    """Measure the peak bytes of tensors in a pass over a part."""
    with isolated_model(job) as (model, head), torch.enable_grad():
        window = make_window(job, replace(part, continues_state=False))
        return measure_peak_bytes(lambda: run_pass(job, model, head, window), job.device)
