"""Whether batches that one rank computes alone fit into its memory, asked before the first one runs."""

from __future__ import annotations

import numpy as np

from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.engine.scheduling import batch_loads, batch_sizes
from strobe.errors import OptionError
from strobe.numbers import file_size
from strobe.ops.csr import FloatArray
from strobe.planner.pass_times import apart, pass_bytes

_CELL_BYTES, _ARC_BYTES = 512, 64
"""More than any model takes, for each column of a cell and for an arc. Batches that fit even so need not be looked at
closer."""

_FEWEST_COLUMNS = 32


def check_memory(job: Job) -> None:
    """Refuses a job with a batch that does not fit into what a rank has, naming the batch."""
    if not job.plan.own_batches or not job.batches:
        return
    room = free_bytes(job.device)
    if at_most(job).max() < room / 2:
        return
    needed = predicted_bytes(job)
    largest = int(needed.argmax())
    if needed[largest] > room:
        times = job.batches[largest].times
        first, last = (job.problem.graph.times[t] for t in (times.start, times.stop - 1))
        raise OptionError(
            f"snapshots {first} to {last} are one batch, which one rank computes alone: that takes about "
            f"{file_size(needed[largest])}, and a rank has {file_size(room)}. Take fewer snapshots at a time "
            f"(--window {max(1, len(times) // 2)}), compute some of them again (--recompute 1), or share snapshots "
            "among ranks (--plan relay)"
        )


def at_most(job: Job) -> FloatArray:
    """More bytes than a pass over every batch takes, [B], without running one."""
    with apart(job) as (model, _):
        columns = max(int(model.width), _FEWEST_COLUMNS)  # type: ignore[arg-type]
    cells, arcs = batch_sizes(job.problem.graph, job.batches)
    return (cells * columns * _CELL_BYTES + arcs * _ARC_BYTES).astype(np.float64)


def predicted_bytes(job: Job) -> FloatArray:
    """Bytes of a pass over every batch, [B], along a line through what the smallest and a middling one take.

    Both have as many snapshots as a batch can have: what is kept of each of them would else be taken for the cells'.
    """
    loads = batch_loads(job.problem.graph, job.batches)
    lengths = np.array([len(batch.times) for batch in job.batches])
    longest = np.flatnonzero(lengths == lengths.max())
    order = longest[np.argsort(loads[longest], kind="stable")]
    small, middling = int(order[0]), int(order[(len(order) - 1) // 2])
    high = pass_bytes(job, job.batches[middling])
    between = loads[middling] - loads[small]
    if between > 0:
        slope = max((high - pass_bytes(job, job.batches[small])) / between, 0.0)
    else:
        slope = high / max(loads[middling], 1.0)
    return np.asarray(high + slope * (loads - loads[middling]), np.float64)
