"""Simulation of plans on clusters of many sizes, calibrated on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from strobe.engine.inputs.graph_source import GraphLike
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.errors import OptionError
from strobe.plan import Plan
from strobe.planner.comm.network import Network
from strobe.planner.services import PlannerServices
from strobe.planner.simulator import SimulatedEpoch, Simulator
from strobe.planner.time.calibration import Calibration, calibrate, calibrate_concurrently
from strobe.planner.time.passes import MEASURE_S
from strobe.tasks import Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """Simulated epochs of plans; ``reasons`` tells why a plan was not simulated on all numbers of ranks."""

    graph: str
    model: str
    network: Network
    calibrations: dict[str, Calibration]
    results: dict[str, list[SimulatedEpoch]]
    reasons: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "model": self.model,
            "network": self.network.to_json(),
            "calibrations": {name: each.to_json() for name, each in self.calibrations.items()},
            "plans": {name: [each.to_json() for each in rows] for name, rows in self.results.items()},
            "reasons": self.reasons,
        }


def simulate(
    graph: GraphLike,
    model: ModelLike = "tgcn",
    task: str | Task | None = None,
    *,
    plans: Mapping[str, Plan],
    ranks: Sequence[int],
    network: Network | None = None,
    seconds: float = MEASURE_S,
    model_options: Mapping[str, Any] | None = None,
    data_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Simulation:
    """Simulate epochs of plans on several numbers of ranks, from passes that are timed on this machine.

    Args:
        graph, model, task, model_options, data_dir: as for ``train``.
        plans: plans by name.
        ranks: numbers of ranks.
        network: the network. If hosts have several ranks, as many concurrent processes are timed, up to the number of
            cores. None: all ranks are on this machine, and messages between them are timed.
        seconds: time limit for the passes of each plan with other batches.
        settings: fields of ``Settings``: window, seed, device, ….

    Raises:
        OptionError: no plans, no ranks, or more ranks than cores without a network.
    """
    progress = Progress() if progress is None else progress
    _check(plans, ranks, network)
    concurrent = _num_concurrent(ranks, network)
    measured: dict[tuple[range, ...] | None, tuple[Calibration, Network | None]] = {}
    calibrations, results, reasons = {}, {}, {}
    for name, plan in plans.items():
        request = TrainRequest(
            graph, model, task, model_options, None, settings, data_dir, plan, services=PlannerServices()
        )
        job = resolve(request, None, progress)
        fitting, reason = _fitting_ranks(job, ranks)
        if reason:
            reasons[name] = reason
        if not fitting:
            continue
        key = _calibration_key(job)
        if key not in measured:
            measured[key] = (
                (calibrate(job, seconds=seconds, progress=progress), None)
                if concurrent == 1
                else calibrate_concurrently(request, concurrent, seconds=seconds, progress=progress)
            )
        calibration, local_network = measured[key]
        network = network or local_network or Network()
        simulator = Simulator(job=job, calibration=calibration, network=network, progress=progress)
        calibrations[name], results[name] = calibration, [simulator.run(count) for count in fitting]
    return Simulation(
        graph=job.source.name,
        model=job.choice.name,
        network=network or Network(),
        calibrations=calibrations,
        results=results,
        reasons=reasons,
    )


def _fitting_ranks(job: Job, ranks: Sequence[int]) -> tuple[list[int], str]:
    """Return the numbers of ranks that a plan can be simulated on, and why not on all of them."""
    if job.plan.batching.not_simulated is not None:
        return [], job.plan.batching.not_simulated
    conflicts = {count: job.plan.conflicts(count) for count in ranks}
    reason = next(filter(None, conflicts.values()), [])
    return [count for count in ranks if not conflicts[count]], "\n".join(map(str, reason))


def _calibration_key(job: Job) -> tuple[range, ...] | None:
    """Equal for jobs whose passes are timed on the same parts."""
    return tuple(batch.times for batch in job.batches) if job.plan.per_rank_batches else None


def _num_concurrent(ranks: Sequence[int], network: Network | None) -> int:
    """Number of processes that are timed concurrently."""
    wanted = max(ranks) if network is None else network.ranks_per_host
    return min(wanted, len(os.sched_getaffinity(0)))


def _check(plans: Mapping[str, Plan], ranks: Sequence[int], network: Network | None) -> None:
    if not plans:
        raise OptionError("no plans to simulate: give at least one")
    if not ranks or min(ranks) < 1:
        raise OptionError(f"there is at least 1 rank, not {min(ranks, default=0)}")
    cores = len(os.sched_getaffinity(0))
    if network is None and max(ranks) > cores:
        raise OptionError(
            f"{max(ranks)} ranks do not fit on this machine with {cores} cores: describe the network of a cluster "
            "(network)"
        )
