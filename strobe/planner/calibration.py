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
from strobe.planner.pass_times import (
    FEWEST_PASSES,
    MEASURE_S,
    PassTimes,
    apart,
    byte_seconds,
    measure,
    measure_numbered,
    spread,
    step_seconds,
)

_FEW, _MANY, _COLUMNS = 1, 1 << 14, 32  # rows of messages that are timed: for the latency, and for the bandwidth
_FEW_OFTEN, _MANY_OFTEN = 60, 12


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Seconds of passes by cells and arcs, those of their time stages, and those of a step of the optimiser.

    ``error`` is that of the line about passes it has not seen, None where fewer than ``FEWEST_PASSES`` were timed: it
    is not known then. ``weight_bytes`` is what ranks agree on in a step. ``byte_s`` is what it takes to pick a byte of
    rows out for others, or to put one that came where it belongs. ``passes`` are those that were timed.
    """

    line: Linear
    time_line: Linear
    step_s: float
    error: float | None
    weight_bytes: int
    byte_s: float = 0.0
    passes: int = 0

    @classmethod
    def of(cls, times: PassTimes, job: Job, step_s: float, byte_s: float) -> Calibration:
        return cls(
            line=times.line(),
            time_line=times.time_line(),
            step_s=step_s,
            error=times.error if len(times) >= FEWEST_PASSES else None,
            weight_bytes=_weight_bytes(job),
            byte_s=byte_s,
            passes=len(times),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "line": self.line.to_json(),
            "time_line": self.time_line.to_json(),
            "step_s": self.step_s,
            "error": self.error,
            "weight_bytes": self.weight_bytes,
            "byte_s": self.byte_s,
            "passes": self.passes,
        }


def calibrated(job: Job, *, seconds: float = MEASURE_S, progress: Progress | None = None) -> Calibration:
    """As this process computes when it is alone."""
    times = measure(job, spread(job), seconds=seconds, usual=True, progress=progress)
    return Calibration.of(times, job, step_seconds(job), byte_seconds(job))


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
    common = set.intersection(*(set(each["numbers"]) for each in told))  # parts that every rank had time for
    every = [each["times"].take(np.isin(each["numbers"], sorted(common))) for each in told]
    middle = {name: np.median([getattr(each, name) for each in every], axis=0) for name in ("seconds", "in_time")}
    step_s, byte_s = (median(each[name] for each in told) for name in ("step_s", "byte_s"))
    found = Calibration.of(replace(every[0], **middle), job, step_s, byte_s)
    return found, told[0]["network"]


def _timing(given: Given, seconds: float) -> Callable[[Comm, Callable[[Any], None]], dict[str, Any]]:
    def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Any]:
        job = choose(given, None, Progress())
        comm.agree([0.0])  # all begin together
        numbers, times = measure_numbered(job, spread(job), seconds=seconds, usual=True, progress=_Telling(tell))
        told = {"numbers": numbers, "times": times, "step_s": step_seconds(job), "byte_s": byte_seconds(job)}
        comm.agree([0.0])
        return told | {"network": _network(comm, job.device)}

    return work


class _Telling(Progress):
    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._tell((what, done, total))


def _network(comm: Comm, device: torch.device) -> Network:
    """All ranks on one host: what a message and a byte take, from few and many rows that all pass on at once."""
    few, many = (_pass_on_s(comm, *each, device) for each in ((_FEW, _FEW_OFTEN), (_MANY, _MANY_OFTEN)))
    few = min(few, many / 2)  # more than that was somebody else in the way, not the message
    inside = (_MANY - _FEW) * _COLUMNS * 4 / (many - few)
    return Network(ranks_per_host=comm.num_ranks, inside=inside, inside_latency_s=few)


def _pass_on_s(comm: Comm, num_rows: int, often: int, device: torch.device) -> float:
    """Seconds in which every rank sends rows to the next and has those of the one before."""
    rows, took = torch.zeros(num_rows, _COLUMNS, device=device), []
    after, before = (comm.rank + 1) % comm.num_ranks, (comm.rank - 1) % comm.num_ranks
    for _ in range(often):
        began = perf_counter()
        comm.swap({after: rows}, {before: num_rows}, rows, kind="setup")
        comm.settle()
        took.append(perf_counter() - began)
    return median(took)


def _weight_bytes(job: Job) -> int:
    with apart(job) as parts:
        return sum(p.numel() * p.element_size() for part in parts for p in part.parameters() if p.requires_grad)
