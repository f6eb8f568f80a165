"""Plans on clusters of many sizes: what is measured here, simulated there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from strobe.engine.choice import ModelLike
from strobe.engine.job import Given, Job, choose
from strobe.engine.progress import Progress
from strobe.engine.source import GraphLike
from strobe.errors import OptionError
from strobe.plan import Plan
from strobe.planner.calibration import Calibration, calibrated, calibrated_together
from strobe.planner.network import Network
from strobe.planner.pass_times import MEASURE_S
from strobe.planner.simulator import Simulated, Simulator
from strobe.tasks import Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """What some plans would take on clusters of some sizes; of those that do not fit on all of them, ``reasons`` says
    why."""

    graph: str
    model: str
    network: Network
    calibrations: dict[str, Calibration]
    found: dict[str, list[Simulated]]
    reasons: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "model": self.model,
            "network": self.network.to_json(),
            "calibrations": {name: each.to_json() for name, each in self.calibrations.items()},
            "plans": {name: [each.to_json() for each in rows] for name, rows in self.found.items()},
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
    """Epochs of plans on so many ranks, each from passes that are timed on this machine.

    Args:
        plans: by a name of your choice.
        ranks: how many there would be, one simulation for each number.
        network: how they would be connected. Where hosts have several ranks, as many processes are timed at once as
            they have, up to this machine's cores. None: all ranks on this machine, and its own messages are timed.
        seconds: to time passes in, for each plan whose batches are others.
        settings: fields of ``Settings``: window, seed, device, ….
    """
    watch = Progress() if progress is None else progress
    _check(plans, ranks, network)
    together = _together(ranks, network)
    known: dict[tuple[range, ...] | None, tuple[Calibration, Network | None]] = {}
    calibrations, found, reasons = {}, {}, {}
    for name, plan in plans.items():
        given = Given(graph, model, task, model_options, None, settings, data_dir, plan)
        job = choose(given, None, watch)
        conflicts = {count: job.plan.conflicts(count) for count in ranks}
        fitting = [count for count in ranks if not conflicts[count]]
        if len(fitting) < len(ranks):
            reasons[name] = "\n".join(str(each) for each in next(filter(None, conflicts.values())))
        if job.plan.batching.drawing is not None:
            reasons[name] = "its batches are drawn while it trains: there are none to time before"
            continue
        if job.plan.batching.decay is not None:
            reasons[name] = "its windows slide and are thinner in the past: only whole snapshots are timed"
            continue
        if job.plan.batching.sampling is not None:
            reasons[name] = "its cells are drawn while it trains: only whole snapshots are timed"
            continue
        if not fitting:
            continue
        key = _passes(job)
        if key not in known:
            known[key] = (
                (calibrated(job, seconds=seconds, progress=watch), None)
                if together == 1
                else calibrated_together(given, together, seconds=seconds, progress=watch)
            )
        calibration, measured = known[key]
        network = network or measured or Network()
        simulator = Simulator(job=job, calibration=calibration, network=network, progress=watch)
        calibrations[name], found[name] = calibration, [simulator.run(count) for count in fitting]
    return Simulation(
        graph=job.source.name,
        model=job.choice.name,
        network=network or Network(),
        calibrations=calibrations,
        found=found,
        reasons=reasons,
    )


def _passes(job: Job) -> tuple[range, ...] | None:
    """The same for jobs whose passes are timed on the same parts."""
    return tuple(batch.times for batch in job.batches) if job.plan.own_batches else None


def _together(ranks: Sequence[int], network: Network | None) -> int:
    """How many processes are timed at once."""
    wanted = max(ranks) if network is None else network.ranks_per_host
    return min(wanted, len(os.sched_getaffinity(0)))


def _check(plans: Mapping[str, Plan], ranks: Sequence[int], network: Network | None) -> None:
    if not plans:
        raise OptionError("say which plans to simulate")
    if not ranks or min(ranks) < 1:
        raise OptionError(f"there is at least 1 rank, not {min(ranks, default=0)}")
    cores = len(os.sched_getaffinity(0))
    if network is None and max(ranks) > cores:
        raise OptionError(
            f"{max(ranks)} ranks on this machine, which has {cores} cores, would only wait for each other: say how "
            "the hosts of a cluster are connected (network)"
        )
