"""What computing, and talking within a host, cost on this machine: all that a simulation of larger clusters needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from strobe.comm import Comm
from strobe.comm.launch import run_ranks
from strobe.engine.job import Given, Job, choose
from strobe.engine.launch import found_by_all
from strobe.engine.progress import Progress
from strobe.planner.linear import Linear
from strobe.planner.network import Network
from strobe.planner.pass_times import MEASURE_S, PassTimes, apart, measure, spread, step_seconds

_SMALL, _LARGE = 8, 1 << 22  # bytes of sums that are timed: one for the latency, one for the bandwidth
_SMALL_SUMS, _LARGE_SUMS = 60, 6
_FEWEST = 4  # as many passes as a line has numbers


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Seconds of passes by cells and arcs, those of their time stages, and those of a step of the optimiser.

    ``error`` is that of the line about passes it has not seen, 0 where there are too few to tell. ``weight_bytes`` is
    what ranks agree on in a step.
    """

    line: Linear
    time_line: Linear
    step_s: float
    error: float
    weight_bytes: int

    @classmethod
    def of(cls, times: PassTimes, job: Job, step_s: float) -> Calibration:
        return cls(
            line=times.line(),
            time_line=times.time_line(),
            step_s=step_s,
            error=times.error if len(times) > _FEWEST else 0.0,
            weight_bytes=_weight_bytes(job),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "line": self.line.to_json(),
            "time_line": self.time_line.to_json(),
            "step_s": self.step_s,
            "error": self.error,
            "weight_bytes": self.weight_bytes,
        }


def calibrated(job: Job, *, seconds: float = MEASURE_S, progress: Progress | None = None) -> Calibration:
    """As this process computes when it is alone."""
    return Calibration.of(measure(job, spread(job), seconds=seconds, progress=progress), job, step_seconds(job))


def calibrated_together(
    given: Given, ranks: int, *, seconds: float = MEASURE_S, progress: Progress | None = None
) -> tuple[Calibration, Network]:
    """As ranks compute that share this machine, all at the same time, and as they talk to each other."""
    watch = Progress() if progress is None else progress
    job = choose(given, None, watch)
    with ExitStack() as stack:
        given = replace(given, graph=found_by_all(job, stack), problem=job.problem.state())
        watch.stage(f"starting {ranks} ranks to time them", 0, None)

        def heard(rank: int, event: Any) -> None:
            if rank == 0:
                watch.stage(*event)

        threads, device = job.settings.threads, job.device.type
        told = run_ranks(_timing(given, seconds), ranks, threads=threads, on_event=heard, device=device)
    fewest = min(len(each["times"]) for each in told)
    first = np.arange(fewest)
    every = [each["times"].take(first) for each in told]
    middle = {name: np.median([getattr(each, name) for each in every], axis=0) for name in ("seconds", "in_time")}
    found = Calibration.of(replace(every[0], **middle), job, median(each["step_s"] for each in told))
    return found, told[0]["network"]


def _timing(given: Given, seconds: float) -> Callable[[Comm, Callable[[Any], None]], dict[str, Any]]:
    def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Any]:
        job = choose(given, None, Progress())
        comm.agree([0.0])  # all begin together
        times = measure(job, spread(job), seconds=seconds, progress=_Telling(tell))
        step_s = step_seconds(job)
        comm.agree([0.0])
        return {"times": times, "step_s": step_s, "network": _network(comm)}

    return work


class _Telling(Progress):
    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._tell((what, done, total))


def _network(comm: Comm) -> Network:
    """All ranks on one host: what a latency and a byte take, from sums of few and of many bytes."""
    small, large = (_sum_s(comm, size, often) for size, often in ((_SMALL, _SMALL_SUMS), (_LARGE, _LARGE_SUMS)))
    rounds = 2 * (comm.num_ranks - 1)
    inside = rounds * _LARGE / comm.num_ranks / max(large - small, 1e-9)
    return Network(ranks_per_host=comm.num_ranks, inside=inside, inside_latency_s=small / rounds)


def _sum_s(comm: Comm, num_bytes: int, often: int) -> float:
    values, took = torch.zeros(num_bytes // 4), []
    for _ in range(often):
        began = perf_counter()
        comm.sum(values, kind="setup")
        took.append(perf_counter() - began)
    return median(took)


def _weight_bytes(job: Job) -> int:
    with apart(job) as parts:
        return sum(p.numel() * p.element_size() for part in parts for p in part.parameters() if p.requires_grad)
