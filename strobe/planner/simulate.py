"""Simulated epochs of plans on clusters of any size, calibrated on this machine, without starting ranks.

Computing time is linear in cells, arcs and snapshots (``Calibration``); message time follows from the rows that the
plan sends and from a model of the network. In a step every rank computes and receives, waits for the slowest rank, and
synchronizes. No communication overlaps with computing; time stages whose ranks wait for one another run slot by slot.

Not counted: exchanges for sampled pairs and for whole snapshots (normalization, top-k rows), convolutions that pieces
of chunks compute twice, rows that a stale exchange suppresses, and rows sent again by recomputation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from strobe.comm.ledger_stats import imbalance
from strobe.engine.inputs.graph_source import GraphLike
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.engine.sources.batch_order import batch_loads
from strobe.errors import OptionError
from strobe.exchange.dry_run import FakeComm
from strobe.exchange.traffic import Pipeline
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.plan import Plan
from strobe.planner.comm.network import Network
from strobe.planner.comm.volume import PassVolume
from strobe.planner.partition import PartitionedJob
from strobe.planner.services import with_planner
from strobe.planner.time.calibration import Calibration, calibrate, calibrate_concurrently
from strobe.planner.time.passes import MEASURE_S, apply_linear_cost
from strobe.schedule import Costs
from strobe.tasks import Task

_NUMBER_BYTES = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedEpoch:
    """A simulated epoch. ``compute_s`` is per rank, [W]; ``exchange_s`` and ``sync_s`` are the seconds of exchanges and
    of the ends of steps; ``single_rank_s`` is the computing time of one rank."""

    num_ranks: int
    num_steps: int
    epoch_s: float
    compute_s: FloatArray
    exchange_s: float
    sync_s: float
    single_rank_s: float

    @property
    def efficiency(self) -> float:
        """Computing time of one rank, as a fraction of the time of all ranks."""
        return self.single_rank_s / (self.num_ranks * self.epoch_s) if self.epoch_s else 1.0

    @property
    def speedup(self) -> float:
        return self.efficiency * self.num_ranks

    @property
    def imbalance(self) -> float | None:
        """Computing time of the slowest rank relative to the fastest; None if that has none."""
        return imbalance(self.compute_s.tolist())

    @property
    def straggler_wait_s(self) -> float:
        """Seconds of the epoch that ranks wait for slower ones, on average."""
        return max(self.epoch_s - self.exchange_s - self.sync_s - float(self.compute_s.mean()), 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "ranks": self.num_ranks,
            "steps": self.num_steps,
            "epoch_s": self.epoch_s,
            "compute_s": float(self.compute_s.mean()),
            "straggler_wait_s": self.straggler_wait_s,
            "exchange_s": self.exchange_s,
            "sync_s": self.sync_s,
            "efficiency": self.efficiency,
            "speedup": self.speedup,
            "imbalance": self.imbalance,
        }


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Simulates a job on a cluster."""

    job: Job
    calibration: Calibration
    network: Network
    progress: Progress

    def run(self, num_ranks: int) -> SimulatedEpoch:
        """Simulate an epoch on ``num_ranks`` ranks."""
        job = replace(self.job, comm=FakeComm(0, num_ranks))
        job.plan.check(num_ranks)
        if job.plan.per_rank_batches:
            return self._run_own_batches(job)
        return self._run_shared_batches(job)

    def sync_s(self, num_ranks: int) -> float:
        """Seconds at the end of a step: all-reduce of gradients and of two scalars, and the optimizer."""
        numbers = 2 * self.network.all_reduce_s(_NUMBER_BYTES, num_ranks)
        sums = self.network.all_reduce_s(self.calibration.weight_bytes, num_ranks) / self.job.plan.sync.steps_per_sync
        return self.calibration.step_s + numbers + sums

    def costs(self, num_ranks: int) -> Costs:
        """Costs of batches that one rank computes each."""
        return Costs(self._batch_seconds, self.sync_s(num_ranks))

    @cached_property
    def _batch_seconds(self) -> FloatArray:
        """Seconds of every batch on one rank, [B]."""
        return apply_linear_cost(self.calibration.pass_cost, self.job)

    def _run_own_batches(self, job: Job) -> SimulatedEpoch:
        num_ranks = job.comm.num_ranks
        self.progress.stage(f"scheduling for {num_ranks} ranks", 0, None)
        costs = self.costs(num_ranks)
        steps = job.plan.schedule.steps(len(costs), num_ranks, shared=False, costs=self._schedule_costs(costs))
        loads = np.array([costs.loads(step) for step in steps]).reshape(-1, num_ranks)
        return SimulatedEpoch(
            num_ranks=num_ranks,
            num_steps=len(steps),
            epoch_s=costs.epoch_seconds(steps),
            compute_s=loads.sum(axis=0),
            exchange_s=0.0,
            sync_s=len(steps) * costs.sync_s,
            single_rank_s=float(costs.seconds.sum()),
        )

    def _schedule_costs(self, costs: Costs) -> Costs:
        """Costs as the schedule knows them in training."""
        source = self.job.plan.schedule.cost_source
        if source == "counted":
            return Costs(batch_loads(self.job.problem.graph, self.job.batches))
        return Costs(costs.seconds) if source == "predicted" else costs

    def _run_shared_batches(self, job: Job) -> SimulatedEpoch:
        num_ranks = job.comm.num_ranks
        partitioned, steps = PartitionedJob(job, self.progress), []
        lockstep = any(call.what == "gather_state" for call in partitioned.view_calls)
        for number, (_, volume) in enumerate(partitioned.comm_volumes()):
            self.progress.stage(f"counting rows of {num_ranks} ranks", number, len(job.batches))
            steps.append(self._step(volume, lockstep=lockstep))
        sync_s = len(steps) * self.sync_s(num_ranks)
        return SimulatedEpoch(
            num_ranks=num_ranks,
            num_steps=len(steps),
            epoch_s=sum(step.seconds for step in steps) + sync_s,
            compute_s=np.array([step.compute_s for step in steps]).reshape(-1, num_ranks).sum(axis=0),
            exchange_s=sum(step.exchange_s for step in steps),
            sync_s=sync_s,
            single_rank_s=sum(step.single_rank_s for step in steps),
        )

    def _step(self, volume: PassVolume, *, lockstep: bool) -> _Step:
        """Simulate a pass over a batch that ranks share; ``lockstep``: they proceed snapshot by snapshot together."""
        line, length, traffic = self.calibration.pass_cost, len(volume.cells), volume.traffic
        cells, arcs = volume.cells.sum(axis=0), volume.arcs.sum(axis=0)
        single_rank_s = float(line(cells.sum(), arcs.sum(), length))
        sent, messages, received = (
            _total(each, len(cells)) for each in (traffic.sent, traffic.messages, traffic.received)
        )
        moved = sent + received + traffic.moved_bytes * cells
        computing = line(cells, arcs, length) + self.calibration.byte_s * moved
        rows = self.network.exchange_s(sent, messages, received)
        if lockstep:
            slowest = replace(line, fixed=0.0)(volume.cells, volume.arcs, 1).max(axis=1, initial=0.0)
            longest = line.fixed + float(slowest.sum())  # fixed costs once per pass
        elif traffic.pipeline is not None:
            more, longest = self._pipeline_seconds(traffic.pipeline, length, computing)
            computing = computing + more
        else:
            seconds = float((computing + rows).max())
            return _Step(seconds, computing, seconds - float(computing.max()), single_rank_s)
        return _Step(longest + float(rows.max()), computing, float(rows.max()), single_rank_s)

    def _pipeline_seconds(self, pipeline: Pipeline, length: int, computing: FloatArray) -> tuple[FloatArray, float]:
        """Return the additional computing time of every rank due to groups and waves, [W], and the time of the pass.

        If sequences visit ranks in one order, one kernel processes all groups: ranks pay its fixed cost at the same
        time, and a rank proceeds to the next stage while later ranks are in the first, so stages are pipelined.
        Otherwise every group and wave is a call with the fixed cost of a time stage, and stages run one by one.
        """
        line, in_waves, groups = self.calibration.time_stage_cost, pipeline.cells, pipeline.groups
        cells = in_waves.sum(axis=0)
        if pipeline.in_turn:
            slots = slot_seconds(line.per_cell * in_waves, groups * pipeline.num_stages)
            return np.zeros_like(computing), float((computing - line.per_cell * cells).max()) + slots
        at_once = line(cells, 0, length)
        seconds = line.per_cell * in_waves + float(line(0, 0, length)) * groups * (in_waves > 0)
        more = np.maximum(seconds.sum(axis=0) - at_once, 0.0)
        return more, float((computing - at_once).max()) + slot_seconds(seconds, groups)


@dataclass(frozen=True, eq=False)
class _Step:
    seconds: float
    compute_s: FloatArray
    exchange_s: float
    single_rank_s: float


def _total(kinds: Mapping[str, IntArray], num_ranks: int) -> IntArray:
    """Sum over all kinds, [W]."""
    return sum(kinds.values(), np.zeros(num_ranks, np.int64))


def slot_seconds(in_waves: FloatArray, groups: int) -> float:
    """Return the seconds of a pipelined stage from those of every wave and rank, [V, W].

    Group g runs wave w in slot g + w, and in reverse in the backward pass. A slot lasts as long as its slowest rank; V
    consecutive ranks of equal load take (G + V - 1) / G of the computing time of one.
    """
    waves, ranks = in_waves.shape
    slots = np.zeros((groups + waves - 1, ranks))
    for wave in range(waves):
        slots[wave : wave + groups] += in_waves[wave] / groups
    return float(slots.max(axis=1, initial=0.0).sum())


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
    calibrations, results = dict[str, Calibration](), dict[str, list[SimulatedEpoch]]()
    reasons = dict[str, str]()
    for name, plan in plans.items():
        request = with_planner(TrainRequest(graph, model, task, model_options, None, settings, data_dir, plan))
        job = resolve(request, None, progress)
        fitting, reason = _fitting_ranks(job, ranks)
        reasons |= {name: reason} if reason else {}
        if not fitting:
            continue
        key = _calibration_key(job)
        if key not in measured:
            measured[key] = _calibrate(request, job, concurrent, seconds, progress)
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


def _calibrate(
    request: TrainRequest, job: Job, processes: int, seconds: float, progress: Progress
) -> tuple[Calibration, Network | None]:
    """Measure a job, in several concurrent processes with the network between them."""
    if processes == 1:
        return calibrate(job, seconds=seconds, progress=progress), None
    return calibrate_concurrently(request, processes, seconds=seconds, progress=progress)


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


def double_range(first: int, last: int) -> Sequence[int]:
    """Return numbers of ranks from ``first`` to at most ``last``, doubling."""
    numbers = [first]
    while numbers[-1] * 2 <= last:
        numbers.append(numbers[-1] * 2)
    return numbers
