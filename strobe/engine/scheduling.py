"""Which batches run in which step: in order while nothing is known of them, then as the schedule has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from strobe.batching import Batch
from strobe.comm.ledger import AGREEING, Ran
from strobe.engine.checkpoint import restoring
from strobe.engine.gantt import gantt_svg, planned
from strobe.engine.job import Job
from strobe.engine.nest import is_like
from strobe.engine.summary import duration
from strobe.errors import FormatError
from strobe.graph import DynamicGraph
from strobe.numbers import number_of
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.work import Sizes, counted
from strobe.schedule import Costs, InOrder, Steps


class Scheduling:
    """The order of a run's batches, and what it was made from. Rank 0 decides, all are told.

    Where batches are timed, their order is in part a matter of chance. It is remembered, so that a run that goes on
    in other processes keeps it; on another number of ranks it is made anew from the same seconds.
    """

    def __init__(self, job: Job, remembered: dict[str, Any] | None = None) -> None:
        self._job = job
        self._schedule = job.plan.schedule
        self.shared = not job.plan.own_batches
        self._epochs: list[list[float]] = []
        self._agreed: list[float] = []
        self.costs: Costs | None = None
        self.steps = self._in_order(self._schedule.steps)
        if not self.shared:
            with job.comm.rank_0_alone("schedule"):
                if job.comm.rank == 0:
                    from strobe.planner.batch_memory import check_memory  # planners know engines: not before

                    check_memory(job)
        if remembered is not None:
            with restoring("the checkpoint's schedule"):
                self._recall(remembered)
        elif self._wants in ("counted", "predicted"):
            self._decide(self._known)

    @property
    def _wants(self) -> str | None:
        return None if self.shared else self._schedule.wants

    @property
    def watches(self) -> bool:
        """Whether batches are being timed."""
        return self._wants == "measured" and self.costs is None

    @property
    def counts(self) -> bool:
        """Whether costs are cells and arcs that were counted, no seconds."""
        return self._wants == "counted"

    def epoch_ends(self, ran: Sequence[Sequence[Ran]]) -> bool:
        """An epoch is over; on rank 0 ``ran`` tells what every rank did when. Says whether the order has changed."""
        if not self.watches:
            return False
        seconds, agreed = timed(ran, len(self._job.batches)) if self._job.comm.rank == 0 else ([], 0.0)
        self._epochs.append(seconds)
        self._agreed.append(agreed)
        if len(self._epochs) < self._schedule.watches:
            return False
        self._decide(partial(robust, self._epochs, self._agreed))
        return True

    def remembered(self) -> dict[str, Any] | None:
        """All of it as plain values, on rank 0; None where the order is always the same."""
        if self._wants is None:
            return None
        known = None if self.costs is None else [self.costs.seconds.tolist(), self.costs.agree_s]
        return {"epochs": self._epochs, "agreed": self._agreed, "costs": known, "steps": self.steps}

    def told(self) -> dict[str, Any]:
        """What the order was made from, and what came of it, as JSON."""
        assert self.costs is not None
        return {"seconds": self.costs.seconds.tolist(), "agree_s": self.costs.agree_s, "steps": self.steps}

    def _recall(self, found: dict[str, Any]) -> None:
        fresh = {"epochs": [[0.0]], "agreed": [0.0], "costs": None, "steps": [[[0]]]}
        batches = sorted(batch for step in found["steps"] for ran in step for batch in ran)
        if not is_like(found, fresh) or batches != list(range(len(self._job.batches))):
            raise FormatError("the checkpoint's schedule is damaged: it is not one of this run's batches")
        self._epochs, self._agreed = list(found["epochs"]), list(found["agreed"])
        if found["costs"] is None:
            return
        costs = Costs(np.array(found["costs"][0]), found["costs"][1])
        if all(len(step) == self._job.comm.num_ranks for step in found["steps"][:1]):
            self.costs, self.steps = costs, found["steps"]
        else:
            self._decide(lambda: costs)

    def _decide(self, find: Callable[[], Costs]) -> None:
        """Rank 0 finds the costs of batches and an order for them."""
        comm, job = self._job.comm, self._job
        told = None
        with comm.rank_0_alone("schedule"):
            if comm.rank == 0:
                costs = find()
                told = self._schedule.steps(len(job.batches), comm.num_ranks, shared=False, costs=costs), costs
                if not self.counts:
                    job.watch.note(self._said(*told))
        self.steps, self.costs = comm.share(told, kind="setup")

    def _known(self) -> Costs:
        """What is known of batches before any has run."""
        if self.counts:
            return Costs(batch_loads(self._job.problem.graph, self._job.batches))
        from strobe.planner.pass_times import predicted_seconds

        return Costs(predicted_seconds(self._job))

    def _in_order(self, steps: Any) -> Steps:
        found: Steps = steps(len(self._job.batches), self._job.comm.num_ranks, shared=self.shared)
        return found

    def _said(self, steps: Steps, costs: Costs) -> str:
        """What came of it, for people."""
        in_order = costs.of(self._in_order(InOrder().steps))
        return (
            f"{self._schedule.name}: {number_of(len(costs), 'batch')} in {number_of(len(steps), 'step')}, "
            f"{duration(costs.of(steps))} an epoch expected; in order it would be {duration(in_order)}, with ranks "
            f"that never wait {duration(float(costs.seconds.sum()) / self._job.comm.num_ranks)}"
        )


def steps_svg(job: Job, order: Scheduling, ran: list[list[Ran]], names: Sequence[str] = ()) -> str | None:
    """The last epoch as a picture, as it was planned and as it was; None where all ranks work on the same batches.
    ``names`` of batches that are drawn."""
    if order.shared or job.comm.rank:
        return None
    rows = {} if order.costs is None or order.counts else {"planned": planned(order.steps, order.costs)}

    def name(batch: int) -> str:
        if not job.batches:
            return names[batch]
        times = job.batches[batch].times
        first, last = (str(job.problem.graph.times[t]) for t in (times.start, times.stop - 1))
        return f"snapshots {first} to {last}"

    if not job.batches:
        return gantt_svg({"measured": ran}, names=name, colours="sizes of batches")
    return gantt_svg(rows | {"measured": ran}, names=name)


def batch_sizes(graph: DynamicGraph, batches: Sequence[Batch]) -> tuple[IntArray, IntArray]:
    """Cells and arcs of every batch of whole snapshots, [B] each."""
    arcs = np.concatenate(([0], np.cumsum([snapshot.num_arcs for snapshot in graph], dtype=np.int64)))
    bounds = np.array([(batch.times.start, batch.times.stop) for batch in batches], np.int64).reshape(-1, 2)
    first, last = bounds.T
    return graph.cell_ptr[last] - graph.cell_ptr[first], arcs[last] - arcs[first]


def batch_loads(graph: DynamicGraph, batches: Sequence[Batch]) -> FloatArray:
    """What every batch of whole snapshots costs, counted in arcs, [B]."""
    cells, arcs = batch_sizes(graph, batches)
    return counted(Sizes(cells, arcs, sequences=cells))


def timed(ran: Sequence[Sequence[Ran]], num_batches: int) -> tuple[list[float], float]:
    """Seconds of every batch in an epoch, and those that it took to agree at the end of a step.

    Who comes last waits for nobody: of all ranks the one that agreed fastest tells what agreeing takes.
    """
    seconds = [0.0] * num_batches
    fastest: dict[int, float] = {}
    for rank in ran:
        agreeing: dict[int, float] = defaultdict(float)
        for step, batch, began, ended in rank:
            if batch == AGREEING:
                agreeing[step] += ended - began
            else:
                seconds[batch] += ended - began
        for step, took in agreeing.items():
            fastest[step] = min(took, fastest.get(step, took))
    return seconds, median(fastest.values()) if fastest else 0.0


def robust(epochs: Sequence[Sequence[float]], agreed: Sequence[float]) -> Costs:
    """What batches take, from the epochs in which they were timed: the first warms up and does not count, of the
    others the fastest does, for whatever disturbs a batch makes it slower."""
    last = slice(1 if len(epochs) > 1 else 0, None)
    seconds: FloatArray = np.array(epochs[last], np.float64).min(axis=0)
    return Costs(seconds, min(agreed[last]))
