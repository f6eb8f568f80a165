"""Calibration of a simulation: costs of computing and of messages within a host, measured on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from strobe.comm import Comm
from strobe.comm.launch.launcher import run_ranks
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.launch.processes import save_for_ranks
from strobe.engine.progress import Progress
from strobe.planner.comm.network import Network
from strobe.planner.time.passes import (
    MEASURE_S,
    MIN_PASSES,
    LinearCost,
    PassTimes,
    isolated_model,
    measure,
    measure_byte_seconds,
    measure_optimizer_step,
    sample_parts,
)

_SMALL_ROWS, _LARGE_ROWS, _COLUMNS = 1, 1 << 14, 32  # of messages that measure latency and bandwidth
_SMALL_REPEATS, _LARGE_REPEATS = 60, 12


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measured costs of a job.

    Attributes:
        pass_cost: seconds of a forward and backward pass.
        time_stage_cost: seconds of its time stages.
        step_s: seconds of an optimizer step.
        error: leave-one-out error of ``pass_cost``; None if fewer than ``MIN_PASSES`` passes were timed.
        weight_bytes: bytes of the gradients of a step.
        byte_s: seconds to gather or scatter a byte of rows.
        passes: number of timed passes.
    """

    pass_cost: LinearCost
    time_stage_cost: LinearCost
    step_s: float
    error: float | None
    weight_bytes: int
    byte_s: float = 0.0
    passes: int = 0

    @classmethod
    def from_times(cls, times: PassTimes, job: Job, step_s: float, byte_s: float) -> Calibration:
        return cls(
            pass_cost=times.fit(),
            time_stage_cost=times.fit_time_stage(),
            step_s=step_s,
            error=times.error if len(times) >= MIN_PASSES else None,
            weight_bytes=_weight_bytes(job),
            byte_s=byte_s,
            passes=len(times),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def calibrate(job: Job, *, seconds: float = MEASURE_S, progress: Progress | None = None) -> Calibration:
    """Measure a job in this process alone."""
    times = measure(job, sample_parts(job), seconds=seconds, typical=True, progress=progress)
    return Calibration.from_times(times, job, measure_optimizer_step(job), measure_byte_seconds(job))


def calibrate_concurrently(
    request: TrainRequest, ranks: int, *, seconds: float = MEASURE_S, progress: Progress | None = None
) -> tuple[Calibration, Network]:
    """Measure a job in ``ranks`` concurrent processes on this machine, and the messages between them."""
    progress = Progress() if progress is None else progress
    job = resolve(request, None, progress)
    with ExitStack() as stack:
        request = replace(request, graph=save_for_ranks(job, stack), problem=job.problem.state())
        progress.stage(f"starting {ranks} ranks to time them", 0, None)

        def on_event(rank: int, event: Any) -> None:
            if rank == 0:
                progress.stage(*event)

        threads, device = job.settings.threads, job.device.type
        results = run_ranks(
            _make_rank_timer(request, seconds), ranks, threads=threads, on_event=on_event, device=device
        )
    common = set.intersection(*(set(each["times"].part.tolist()) for each in results))  # parts that every rank timed
    every = [each["times"].select(np.isin(each["times"].part, sorted(common))) for each in results]
    medians = {name: np.median([getattr(each, name) for each in every], axis=0) for name in ("seconds", "time_stage_s")}
    step_s, byte_s = (median(each[name] for each in results) for name in ("step_s", "byte_s"))
    calibration = Calibration.from_times(replace(every[0], **medians), job, step_s, byte_s)
    return calibration, results[0]["network"]


def _make_rank_timer(request: TrainRequest, seconds: float) -> Callable[[Comm, Callable[[Any], None]], dict[str, Any]]:
    def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Any]:
        job = resolve(request, None, Progress())
        comm.all_reduce_scalars([0.0])  # all ranks start together
        measured = {
            "times": measure(job, sample_parts(job), seconds=seconds, typical=True, progress=_RemoteProgress(tell)),
            "step_s": measure_optimizer_step(job),
            "byte_s": measure_byte_seconds(job),
        }
        comm.all_reduce_scalars([0.0])
        return measured | {"network": _measure_network(comm, job.device)}

    return work


class _RemoteProgress(Progress):
    def __init__(self, send: Callable[[Any], None]) -> None:
        self._tell = send

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._tell((what, done, total))


def _measure_network(comm: Comm, device: torch.device) -> Network:
    """Measure latency and bandwidth between ranks of one host, from small and large messages in a ring."""
    few, many = (
        _ring_shift_s(comm, *each, device) for each in ((_SMALL_ROWS, _SMALL_REPEATS), (_LARGE_ROWS, _LARGE_REPEATS))
    )
    few = min(few, many / 2)  # more is a disturbance, not latency
    inside = (_LARGE_ROWS - _SMALL_ROWS) * _COLUMNS * 4 / (many - few)
    return Network(ranks_per_host=comm.num_ranks, inside=inside, inside_latency_s=few)


def _ring_shift_s(comm: Comm, num_rows: int, repeats: int, device: torch.device) -> float:
    """Measure the median seconds in which every rank sends rows to the next rank and receives those of the previous."""
    rows, took = torch.zeros(num_rows, _COLUMNS, device=device), []
    after, before = (comm.rank + 1) % comm.num_ranks, (comm.rank - 1) % comm.num_ranks
    for _ in range(repeats):
        began = perf_counter()
        comm.all_to_all_rows({after: rows}, {before: num_rows}, rows, kind="setup")
        comm.wait_sends()
        took.append(perf_counter() - began)
    return median(took)


def _weight_bytes(job: Job) -> int:
    with isolated_model(job) as parts:
        return sum(p.numel() * p.element_size() for part in parts for p in part.parameters() if p.requires_grad)
