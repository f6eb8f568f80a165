"""Which batches run in which step: in order while nothing is known of them, then as the schedule has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from strobe.batching import BatchSpec
from strobe.comm.ledger import STEP_SYNC, BatchSpan
from strobe.engine.checkpoint.serialization import same_structure
from strobe.engine.checkpoint.store import loading
from strobe.engine.job import Job
from strobe.errors import FormatError
from strobe.format import duration, pluralize
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CellSetSizes, count_load
from strobe.schedule import Costs, InOrder, Steps


class BatchOrder:
    """The order of a run's batches and the costs it was computed from. Rank 0 decides and broadcasts it.

    An order from measured seconds depends on chance: it is part of the checkpoint. On another number of ranks it is
    computed again from the same seconds.
    """

    def __init__(self, job: Job, state: dict[str, Any] | None = None) -> None:
        self._job = job
        self._schedule = job.plan.schedule
        self.ranks_share_batches = not job.plan.per_rank_batches
        self._epoch_seconds: list[list[float]] = []
        self._sync_seconds: list[float] = []
        self.costs: Costs | None = None
        self.steps = self._in_order(self._schedule.steps)
        if not self.ranks_share_batches:
            with job.comm.rank_0_alone("schedule"):
                if job.comm.rank == 0:
                    job.services.check_batch_memory(job)
        if state is not None:
            with loading("the checkpoint's schedule"):
                self._load_state_dict(state)
        elif self._cost_source in ("counted", "predicted"):
            self._decide(self._estimate_costs)

    @property
    def _cost_source(self) -> str | None:
        return None if self.ranks_share_batches else self._schedule.cost_source

    @property
    def is_profiling(self) -> bool:
        """Whether batches are being timed."""
        return self._cost_source == "measured" and self.costs is None

    @property
    def counts(self) -> bool:
        """Whether costs are cells and arcs that were counted, no seconds."""
        return self._cost_source == "counted"

    def end_epoch(self, ran: Sequence[Sequence[BatchSpan]]) -> bool:
        """End an epoch; ``ran`` has the spans of all ranks' batches, on rank 0. Whether the order has changed."""
        if not self.is_profiling:
            return False
        seconds, agreed = batch_seconds(ran, len(self._job.batches)) if self._job.comm.rank == 0 else ([], 0.0)
        self._epoch_seconds.append(seconds)
        self._sync_seconds.append(agreed)
        if len(self._epoch_seconds) < self._schedule.profile_epochs:
            return False
        self._decide(partial(robust_costs, self._epoch_seconds, self._sync_seconds))
        return True

    def state_dict(self) -> dict[str, Any] | None:
        """All of it as plain values, on rank 0; None where the order is always the same."""
        if self._cost_source is None:
            return None
        known = None if self.costs is None else [self.costs.seconds.tolist(), self.costs.sync_s]
        return {"epochs": self._epoch_seconds, "agreed": self._sync_seconds, "costs": known, "steps": self.steps}

    def to_json(self) -> dict[str, Any]:
        """What the order was made from, and what came of it, as JSON."""
        assert self.costs is not None
        return {"seconds": self.costs.seconds.tolist(), "sync_s": self.costs.sync_s, "steps": self.steps}

    def _load_state_dict(self, found: dict[str, Any]) -> None:
        fresh = {"epochs": [[0.0]], "agreed": [0.0], "costs": None, "steps": [[[0]]]}
        batches = sorted(batch for step in found["steps"] for ran in step for batch in ran)
        if not same_structure(found, fresh) or batches != list(range(len(self._job.batches))):
            raise FormatError("the checkpoint's schedule is damaged: it is not one of this run's batches")
        self._epoch_seconds, self._sync_seconds = list(found["epochs"]), list(found["agreed"])
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
        decided = None
        with comm.rank_0_alone("schedule"):
            if comm.rank == 0:
                costs = find()
                decided = self._schedule.steps(len(job.batches), comm.num_ranks, shared=False, costs=costs), costs
                if not self.counts:
                    job.progress.note(self._describe(*decided))
        self.steps, self.costs = comm.broadcast_object(decided, kind="setup")

    def _estimate_costs(self) -> Costs:
        """What is known of batches before any has run."""
        if self.counts:
            return Costs(batch_loads(self._job.problem.graph, self._job.batches))
        return Costs(self._job.services.predict_batch_seconds(self._job))

    def _in_order(self, steps: Any) -> Steps:
        found: Steps = steps(len(self._job.batches), self._job.comm.num_ranks, shared=self.ranks_share_batches)
        return found

    def _describe(self, steps: Steps, costs: Costs) -> str:
        """What came of it, for people."""
        in_order = costs.epoch_seconds(self._in_order(InOrder().steps))
        return (
            f"{self._schedule.name}: {pluralize(len(costs), 'batch')} in {pluralize(len(steps), 'step')}, "
            f"{duration(costs.epoch_seconds(steps))} an epoch expected; in order {duration(in_order)}, with ranks that "
            f"never wait {duration(float(costs.seconds.sum()) / self._job.comm.num_ranks)}"
        )


def batch_sizes(graph: DynamicGraph, batches: Sequence[BatchSpec]) -> tuple[IntArray, IntArray]:
    """Cells and arcs of every batch of whole snapshots, [B] each."""
    arcs = np.concatenate(([0], np.cumsum([snapshot.num_arcs for snapshot in graph], dtype=np.int64)))
    bounds = np.array([(batch.times.start, batch.times.stop) for batch in batches], np.int64).reshape(-1, 2)
    first, last = bounds.T
    return graph.cell_ptr[last] - graph.cell_ptr[first], arcs[last] - arcs[first]


def batch_loads(graph: DynamicGraph, batches: Sequence[BatchSpec]) -> FloatArray:
    """What every batch of whole snapshots costs, counted in arcs, [B]."""
    cells, arcs = batch_sizes(graph, batches)
    return count_load(CellSetSizes(cells, arcs, sequences=cells))


def batch_seconds(ran: Sequence[Sequence[BatchSpan]], num_batches: int) -> tuple[list[float], float]:
    """Seconds of every batch in an epoch, and of the synchronization at the end of a step: that of the fastest rank,
    which arrived last and waited for none."""
    seconds = [0.0] * num_batches
    fastest: dict[int, float] = {}
    for rank in ran:
        agreeing: dict[int, float] = defaultdict(float)
        for step, batch, began, ended in rank:
            if batch == STEP_SYNC:
                agreeing[step] += ended - began
            else:
                seconds[batch] += ended - began
        for step, took in agreeing.items():
            fastest[step] = min(took, fastest.get(step, took))
    return seconds, median(fastest.values()) if fastest else 0.0


def robust_costs(epochs: Sequence[Sequence[float]], agreed: Sequence[float]) -> Costs:
    """Costs from profiled epochs: the first is a warm-up, of the others the fastest counts."""
    last = slice(1 if len(epochs) > 1 else 0, None)
    seconds: FloatArray = np.array(epochs[last], np.float64).min(axis=0)
    return Costs(seconds, min(agreed[last]))
