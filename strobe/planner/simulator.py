"""How long an epoch of a plan would take on any number of ranks, without starting one.

Computing follows from cells, arcs and snapshots, by a line that was measured here (``Calibration``); messages follow
from the rows that the plan sends and from a model of the network. In a step every rank computes and hears the others,
all wait for the slowest, then they agree. Nothing is taken to be hidden behind computing; time stages that are relayed
run slot by slot, as their groups follow each other.

Not counted: what is exchanged about pairs that are asked and about whole snapshots (moments, top rows); that pieces of
chunks compute convolutions twice; rows that a stale exchange spares; rows that are sent again where snapshots are
computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strobe.batching import Batch
from strobe.engine.job import Job
from strobe.engine.partition_shares import PlacedJob, calls_over, chosen_cells
from strobe.engine.predicted import Imagined
from strobe.engine.progress import Progress
from strobe.engine.scheduling import batch_loads
from strobe.engine.traffic import Traffic
from strobe.exchange import Relay, Shuffle
from strobe.exchange.legs import num_groups
from strobe.ops.csr import FloatArray, IntArray
from strobe.planner.calibration import Calibration
from strobe.planner.network import Network
from strobe.planner.pass_times import line_over
from strobe.planner.waves import cells_in_waves, relayed_seconds
from strobe.schedule import Costs
from strobe.view import Owners

_NUMBER_BYTES = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulated:
    """An epoch of training on so many ranks. ``computing`` are the seconds of every rank, [W]; exchanging and agreeing
    are those of the epoch that go by with it; ``alone_s`` is what one rank would compute."""

    num_ranks: int
    num_steps: int
    epoch_s: float
    computing: FloatArray
    exchanging_s: float
    agreeing_s: float
    alone_s: float

    @property
    def efficiency(self) -> float:
        """The part of the ranks' time that one rank would need, too."""
        return self.alone_s / (self.num_ranks * self.epoch_s) if self.epoch_s else 1.0

    @property
    def speedup(self) -> float:
        return self.efficiency * self.num_ranks

    @property
    def imbalance(self) -> float | None:
        """Seconds of the fullest rank for 1 of the emptiest; None where that has nothing."""
        least = float(self.computing.min())
        return float(self.computing.max()) / least if least > 0 else None

    @property
    def waiting_s(self) -> float:
        """Seconds of the epoch in which a mean rank waits for slower ones."""
        return max(self.epoch_s - self.exchanging_s - self.agreeing_s - float(self.computing.mean()), 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "ranks": self.num_ranks,
            "steps": self.num_steps,
            "epoch_s": self.epoch_s,
            "computing_s": float(self.computing.mean()),
            "waiting_s": self.waiting_s,
            "exchanging_s": self.exchanging_s,
            "agreeing_s": self.agreeing_s,
            "efficiency": self.efficiency,
            "speedup": self.speedup,
            "imbalance": self.imbalance,
        }


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A job on a cluster that need not exist."""

    job: Job
    calibration: Calibration
    network: Network
    progress: Progress

    def run(self, num_ranks: int) -> Simulated:
        """An epoch on so many ranks."""
        job = replace(self.job, comm=Imagined(0, num_ranks))
        job.plan.check(num_ranks)
        if job.plan.own_batches:
            return self._of_own_batches(job)
        return self._of_shared_batches(job)

    def agree_s(self, num_ranks: int) -> float:
        """Seconds that ranks need at the end of a step: sums of gradients and of two numbers, and the optimiser."""
        numbers = 2 * self.network.sum_s(_NUMBER_BYTES, num_ranks)
        sums = self.network.sum_s(self.calibration.weight_bytes, num_ranks) / self.job.plan.sync.steps_between
        return self.calibration.step_s + numbers + sums

    def costs(self, num_ranks: int) -> Costs:
        """What batches cost that are one rank's each."""
        return Costs(self._alone, self.agree_s(num_ranks))

    @cached_property
    def _alone(self) -> FloatArray:
        """Seconds of every batch, one rank's each, [B]."""
        return line_over(self.calibration.line, self.job)

    def _of_own_batches(self, job: Job) -> Simulated:
        num_ranks = job.comm.num_ranks
        self.progress.stage(f"scheduling for {num_ranks} ranks", 0, None)
        costs = self.costs(num_ranks)
        steps = job.plan.schedule.steps(len(costs), num_ranks, shared=False, costs=self._known(costs))
        loads = np.array([costs.loads(step) for step in steps]).reshape(-1, num_ranks)
        return Simulated(
            num_ranks=num_ranks,
            num_steps=len(steps),
            epoch_s=costs.of(steps),
            computing=loads.sum(axis=0),
            exchanging_s=0.0,
            agreeing_s=len(steps) * costs.agree_s,
            alone_s=float(costs.seconds.sum()),
        )

    def _known(self, costs: Costs) -> Costs:
        """What a schedule would know of them."""
        wants = self.job.plan.schedule.wants
        if wants == "counted":
            return Costs(batch_loads(self.job.problem.graph, self.job.batches))
        return Costs(costs.seconds) if wants == "predicted" else costs

    def _of_shared_batches(self, job: Job) -> Simulated:
        num_ranks = job.comm.num_ranks
        steps = [self._step(placed, each) for placed, each in _passes(job, self.progress)]
        agreeing = len(steps) * self.agree_s(num_ranks)
        computing = np.array([step.computing for step in steps]).reshape(-1, num_ranks)
        return Simulated(
            num_ranks=num_ranks,
            num_steps=len(steps),
            epoch_s=sum(step.seconds for step in steps) + agreeing,
            computing=computing.sum(axis=0),
            exchanging_s=sum(step.exchanging_s for step in steps),
            agreeing_s=agreeing,
            alone_s=sum(step.alone_s for step in steps),
        )

    def _step(self, job: PlacedJob, window: _Pass) -> _Step:
        traffic, line, length = window.traffic, self.calibration.line, len(window.batch.times)
        cells, arcs = traffic.cells.sum(axis=0), traffic.arcs.sum(axis=0)
        alone_s = float(line(cells.sum(), arcs.sum(), length))
        sent, messages, received = (
            _total(each, len(cells)) for each in (traffic.sent, traffic.messages, traffic.received)
        )
        moved = sent + received + window.moved_bytes * cells
        computing = line(cells, arcs, length) + self.calibration.byte_s * moved
        rows = self.network.rows_s(sent, messages, received)
        if window.in_step:
            slowest = replace(line, fixed=0.0)(traffic.cells, traffic.arcs, 1).max(axis=1, initial=0.0)
            longest = line.fixed + float(slowest.sum())  # a pass pays what is fixed once
        elif window.groups is not None and traffic.waves > 1:
            more, longest = self._relayed(job, window, computing)
            computing = computing + more
        else:
            seconds = float((computing + rows).max())
            return _Step(seconds, computing, seconds - float(computing.max()), alone_s)
        return _Step(longest + float(rows.max()), computing, float(rows.max()), alone_s)

    def _relayed(self, job: PlacedJob, window: _Pass, computing: FloatArray) -> tuple[FloatArray, float]:
        """Seconds that every rank computes longer as its cells come in groups and waves, [W], and those of a pass.

        Where ranks come in turn one kernel goes through all groups: what it costs to begin ranks pay at the same time,
        before the first waits for another. And a rank that is done with a stage goes on to the next while later ranks
        are still at the first, so that groups of all stages follow each other. Else every group and wave is a call,
        which pays what a time stage costs however few cells it has, and a stage ends before the next begins.
        """
        assert window.groups is not None
        line, length = self.calibration.time_line, len(window.batch.times)
        owners = Owners(job.graph, job.placed, window.batch.times, chosen_cells(job.graph, window.batch))
        in_waves, in_turn = cells_in_waves(owners)
        cells = in_waves.sum(axis=0)
        groups = num_groups(int(cells.sum()), window.groups, job.num_ranks)
        if in_turn:
            slots = relayed_seconds(line.per_cell * in_waves, groups * window.stages)
            return np.zeros_like(computing), float((computing - line.per_cell * cells).max()) + slots
        at_once = line(cells, 0, length)
        seconds = line.per_cell * in_waves + float(line(0, 0, length)) * groups * (in_waves > 0)
        more = np.maximum(seconds.sum(axis=0) - at_once, 0.0)
        return more, float((computing - at_once).max()) + relayed_seconds(seconds, groups)


@dataclass(frozen=True, eq=False)
class _Step:
    seconds: float
    computing: FloatArray
    exchanging_s: float
    alone_s: float


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pass:
    """A batch that ranks share. ``groups`` follow each other through its time stages, where ``stages`` of those are
    relayed; ``in_step``: all ranks go from snapshot to snapshot together. ``moved_bytes`` of a cell are picked out and
    put elsewhere whether they travel or not: where cells are shuffled, those that stay are put in order, too."""

    batch: Batch
    traffic: Traffic
    groups: int | None
    stages: int
    in_step: bool
    moved_bytes: int


def _passes(job: Job, progress: Progress) -> Iterator[tuple[PlacedJob, _Pass]]:
    placed = PlacedJob(job, progress)
    for number, (batch, traffic) in enumerate(placed.traffic()):
        progress.stage(f"counting rows of {job.comm.num_ranks} ranks", number, len(job.batches))
        calls = calls_over(placed.seen, len(batch.times))
        relays = [job.plan.exchange.time.fitting(call) for call in calls if call.what == "over_time"]  # type: ignore[arg-type]
        groups = [each.groups for each in relays if isinstance(each, Relay)]
        shuffled = [
            call.columns + call.out_columns
            for call in calls
            if call.what == "over_time" and isinstance(job.plan.exchange.time.fitting(call), Shuffle)  # type: ignore[arg-type]
        ]
        both_ways = 2 * job.settings.dtype.itemsize
        yield (
            placed,
            _Pass(
                batch=batch,
                traffic=traffic,
                groups=min(groups, default=None),
                stages=len(groups),
                in_step=any(call.what == "recall" for call in calls),
                moved_bytes=0 if placed.placed.whole_sequences else both_ways * sum(shuffled),
            ),
        )


def _total(kinds: dict[str, IntArray], num_ranks: int) -> IntArray:
    """Of all kinds together, [W]."""
    return sum(kinds.values(), np.zeros(num_ranks, np.int64))


def doubling(first: int, last: int) -> Sequence[int]:
    """Numbers of ranks from one to another, twice as many each time."""
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found
