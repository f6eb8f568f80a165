"""Simulated epochs of a plan on any number of ranks, without starting them.

Computing time is linear in cells, arcs and snapshots (``Calibration``); message time follows from the rows that the
plan sends and from a model of the network. In a step every rank computes and receives, waits for the slowest rank, and
synchronizes. No communication overlaps with computing; relayed time stages run slot by slot.

Not counted: exchanges for sampled pairs and for whole snapshots (normalization, top-k rows), convolutions that pieces
of chunks compute twice, rows that a stale exchange suppresses, and rows sent again by recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strobe.batching import BatchSpec
from strobe.comm.ledger_stats import imbalance
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.engine.sources.batch_order import batch_loads
from strobe.exchange import Relay, Shuffle
from strobe.exchange.relay.legs import num_groups
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.planner.comm.flows import cells_in_waves, relay_seconds
from strobe.planner.comm.network import Network
from strobe.planner.comm.volume import FakeComm, PassVolume
from strobe.planner.rank_costs import PartitionedJob, cell_masks, repeat_calls
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.passes import apply_linear_cost
from strobe.schedule import Costs
from strobe.view import Owners

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
        steps = [self._step(partitioned, each) for partitioned, each in _passes(job, self.progress)]
        sync_s = len(steps) * self.sync_s(num_ranks)
        compute_s = np.array([step.compute_s for step in steps]).reshape(-1, num_ranks)
        return SimulatedEpoch(
            num_ranks=num_ranks,
            num_steps=len(steps),
            epoch_s=sum(step.seconds for step in steps) + sync_s,
            compute_s=compute_s.sum(axis=0),
            exchange_s=sum(step.exchange_s for step in steps),
            sync_s=sync_s,
            single_rank_s=sum(step.single_rank_s for step in steps),
        )

    def _step(self, job: PartitionedJob, window: _Pass) -> _Step:
        volume, line, length = window.volume, self.calibration.pass_cost, len(window.batch.times)
        cells, arcs = volume.cells.sum(axis=0), volume.arcs.sum(axis=0)
        single_rank_s = float(line(cells.sum(), arcs.sum(), length))
        sent, messages, received = (
            _total(each, len(cells)) for each in (volume.sent, volume.messages, volume.received)
        )
        moved = sent + received + window.moved_bytes * cells
        computing = line(cells, arcs, length) + self.calibration.byte_s * moved
        rows = self.network.exchange_s(sent, messages, received)
        if window.lockstep:
            slowest = replace(line, fixed=0.0)(volume.cells, volume.arcs, 1).max(axis=1, initial=0.0)
            longest = line.fixed + float(slowest.sum())  # fixed costs once per pass
        elif window.groups is not None and volume.waves > 1:
            more, longest = self._relay_seconds(job, window, computing)
            computing = computing + more
        else:
            seconds = float((computing + rows).max())
            return _Step(seconds, computing, seconds - float(computing.max()), single_rank_s)
        return _Step(longest + float(rows.max()), computing, float(rows.max()), single_rank_s)

    def _relay_seconds(self, job: PartitionedJob, window: _Pass, computing: FloatArray) -> tuple[FloatArray, float]:
        """Return the additional computing time of every rank due to groups and waves, [W], and the time of the pass.

        If sequences visit ranks in one order, one kernel processes all groups: ranks pay its fixed cost at the same
        time, and a rank proceeds to the next stage while later ranks are in the first, so stages are pipelined.
        Otherwise every group and wave is a call with the fixed cost of a time stage, and stages run one by one.
        """
        assert window.groups is not None
        line, length = self.calibration.time_stage_cost, len(window.batch.times)
        owners = Owners(job.graph, job.partition, window.batch.times, cell_masks(job.graph, window.batch))
        in_waves, in_turn = cells_in_waves(owners)
        cells = in_waves.sum(axis=0)
        groups = num_groups(int(cells.sum()), window.groups, job.num_ranks)
        if in_turn:
            slots = relay_seconds(line.per_cell * in_waves, groups * window.stages)
            return np.zeros_like(computing), float((computing - line.per_cell * cells).max()) + slots
        at_once = line(cells, 0, length)
        seconds = line.per_cell * in_waves + float(line(0, 0, length)) * groups * (in_waves > 0)
        more = np.maximum(seconds.sum(axis=0) - at_once, 0.0)
        return more, float((computing - at_once).max()) + relay_seconds(seconds, groups)


@dataclass(frozen=True, eq=False)
class _Step:
    seconds: float
    compute_s: FloatArray
    exchange_s: float
    single_rank_s: float


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pass:
    """A pass over a batch that ranks share.

    Attributes:
        groups: pipeline groups of relayed time stages; None without a relay.
        stages: number of relayed time stages.
        lockstep: whether ranks proceed from snapshot to snapshot together.
        moved_bytes: bytes gathered and scattered per cell, sent or not: a shuffle reorders local cells, too.
    """

    batch: BatchSpec
    volume: PassVolume
    groups: int | None
    stages: int
    lockstep: bool
    moved_bytes: int


def _passes(job: Job, progress: Progress) -> Iterator[tuple[PartitionedJob, _Pass]]:
    partitioned = PartitionedJob(job, progress)
    for number, (batch, volume) in enumerate(partitioned.comm_volumes()):
        progress.stage(f"counting rows of {job.comm.num_ranks} ranks", number, len(job.batches))
        calls = repeat_calls(partitioned.view_calls, len(batch.times))
        relays = [job.plan.exchange.time.for_encoder(call) for call in calls if call.what == "over_time"]  # type: ignore[arg-type]
        groups = [each.pipeline_groups for each in relays if isinstance(each, Relay)]
        shuffled = [
            call.columns + call.out_columns
            for call in calls
            if call.what == "over_time" and isinstance(job.plan.exchange.time.for_encoder(call), Shuffle)  # type: ignore[arg-type]
        ]
        both_ways = 2 * job.settings.dtype.itemsize
        yield (
            partitioned,
            _Pass(
                batch=batch,
                volume=volume,
                groups=min(groups, default=None),
                stages=len(groups),
                lockstep=any(call.what == "recall" for call in calls),
                moved_bytes=0 if partitioned.partition.whole_sequences else both_ways * sum(shuffled),
            ),
        )


def _total(kinds: dict[str, IntArray], num_ranks: int) -> IntArray:
    """Sum over all kinds, [W]."""
    return sum(kinds.values(), np.zeros(num_ranks, np.int64))


def double_range(first: int, last: int) -> Sequence[int]:
    """Return numbers of ranks from ``first`` to at most ``last``, doubling."""
    numbers = [first]
    while numbers[-1] * 2 <= last:
        numbers.append(numbers[-1] * 2)
    return numbers
