"""What the training loop works on: one run on one rank, and the exchanges that last as long as it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from strobe.batching.base import EpochPolicy, EpochResult, StepSource
from strobe.comm import Comm
from strobe.comm.ledger import Ledger
from strobe.engine.checkpoint.serialization import copy_tree
from strobe.engine.checkpoint.store import TrainState, loading
from strobe.engine.evaluation.evaluate import Evaluator, make_evaluator
from strobe.engine.job import Job
from strobe.engine.machine import peak_bytes, random_state
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import RunRecord
from strobe.engine.records.timing import EpochTrace, gather_ledgers
from strobe.engine.settings import Settings
from strobe.engine.sources.context import load_source_state, source_state
from strobe.schedule.base import Pacer
from strobe.sync import GradientSync
from strobe.tasks import Problem
from strobe.view import LocalPartition


class ExchangeSession:
    """All row exchanges of this rank's training windows, which ``partitions`` gives, each once."""

    def __init__(self, comm: Comm, partitions: Callable[[], Sequence[LocalPartition]]) -> None:
        self._comm, self._partitions = comm, partitions

    def begin_epoch(self, losses: Sequence[float]) -> None:
        """Tell all exchanges the first and the last epoch's loss: thresholds may follow it."""
        first, last = (losses[0], losses[-1]) if losses else (None, None)
        for partition in self._partitions():
            for exchange in partition.row_exchanges.values():
                exchange.begin_epoch(first, last)

    def state_dict(self) -> dict[str, Any] | None:
        """The state of the exchanges of all ranks, on rank 0; None where they have none."""
        partitions = self._partitions()
        states = [{stage: each.state_dict() for stage, each in part.row_exchanges.items()} for part in partitions]
        if not any(any(stages.values()) for stages in states):
            return None  # on all ranks: they went through the same exchanges
        ranks = self._comm.gather_object(copy_tree(states, "cpu"), kind="setup")
        return {"where": _digest(partitions), "ranks": ranks}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from a saved state. With another number of ranks, other owners or other segments it no longer
        holds, and the first pass sends every row."""
        partitions = self._partitions()
        if state is None or not partitions:
            return
        with loading("the checkpoint's exchange"):
            if len(state["ranks"]) != self._comm.num_ranks or state["where"] != _digest(partitions):
                return
            for partition, stages in zip(partitions, state["ranks"][self._comm.rank], strict=True):
                for stage, exchange in partition.row_exchanges.items():
                    exchange.load_state_dict(stages[stage])


@dataclass
class RunContext:
    """A run on one rank: what stays the same (``job``), what changes (``state``), and a session of each axis."""

    job: Job
    state: TrainState
    source: StepSource
    sync: GradientSync
    pacer: Pacer
    exchange: ExchangeSession
    evaluator: Evaluator
    record: RunRecord
    progress: Progress
    policy: EpochPolicy = field(default_factory=EpochPolicy)
    trace: EpochTrace = field(default_factory=EpochTrace)
    """When batches ran in the last epoch, on rank 0."""

    @classmethod
    def start(
        cls, job: Job, state: TrainState, source: StepSource, record: RunRecord, progress: Progress
    ) -> RunContext:
        """Start the sessions of a run, from the state of a run that is resumed if there is one."""
        parts, state.parts = state.parts, {}
        weights = state.optimizer.param_groups[0]["params"]
        sync = job.plan.sync.start(weights, job.comm, state.optimizer, free_running=not job.plan.schedule.lockstep)
        exchange = ExchangeSession(job.comm, source.local_partitions)
        exchange.load_state_dict(parts.get("exchange"))
        evaluator = make_evaluator(job, state, source)
        pacer = job.plan.schedule.pacer(job.comm, sync)
        if job.device.type == "cuda" and job.plan.schedule.cost_source is not None:
            job.comm.ledger.synchronize = partial(torch.cuda.synchronize, job.device)
        run = cls(job, state, source, sync, pacer, exchange, evaluator, record, progress)
        run.policy = source.policy(run)
        if parts.get("policy") is not None:
            run.policy.load_state_dict(parts["policy"])
        load_source_state(source, parts.get("source"), job.comm)
        return run

    @cached_property
    def settings(self) -> Settings:
        return self.job.settings

    @cached_property
    def problem(self) -> Problem:
        return self.job.problem

    @cached_property
    def comm(self) -> Comm:
        return self.job.comm

    @cached_property
    def ledger(self) -> Ledger:
        return self.job.comm.ledger

    def announce(self) -> None:
        """Tell the user how many steps an epoch has."""
        steps, metric = self.source.steps_per_epoch, self.problem.metric
        begin = {"epochs": self.settings.epochs, "epoch": self.state.epoch, "steps": steps, "metric": metric}
        self.progress.begin(begin)

    def new_line(self, result: EpochResult) -> dict[str, Any]:
        """The first fields of an epoch's line of the record."""
        before = self.state.history[-1]["step"] if self.state.history else 0
        return {"epoch": self.state.epoch, "step": before + result.num_steps, "loss": result.loss}

    def end_epoch(self, line: dict[str, Any], *, train_s: float, evaluate_s: float) -> None:
        """Complete the epoch's line, log it, and save a checkpoint if it is time for one."""
        state = self.state
        line |= {"best": state.best, "best_epoch": state.best_epoch, "lr": self.settings.lr}
        line |= self.policy.log()
        line |= {"train_s": round(train_s, 6), "evaluate_s": round(evaluate_s, 6)} | peak_bytes(self.job.device)
        ledgers, self.trace = gather_ledgers(self.job)
        line |= ledgers | self.source.log()
        state.history.append(line)
        changes = self.source.end_epoch(self.trace.batch_spans)
        self.record.epoch(line)
        self.save()
        self.progress.epoch(line)
        for event in (*self.policy.events(), *changes):
            self.record.event(event.name, epoch=state.epoch, **event.values)
            if event.note is not None and self.comm.rank == 0:
                self.progress.note(event.note)
        if changes:
            self.announce()

    def save(self, *, now: bool = False) -> None:
        """Save a checkpoint if rank 0's clock says so, or ``now``. All ranks call it."""
        state, comm = self.state, self.comm
        with self.ledger.phase("save"):
            if not comm.broadcast_object(self.record.is_due(now=now), kind="setup"):
                return
            state.random = comm.all_gather_object(random_state(), kind="setup")
            state.parts = {
                "exchange": self.exchange.state_dict(),
                "source": source_state(self.source, comm),
                "policy": self.policy.state_dict(),
            }
            with comm.rank_0_alone("checkpoint"):
                self.record.save(state)
            state.parts = {}  # the record has its copy


def _digest(partitions: Sequence[LocalPartition]) -> str:
    """A checksum of owners and of the snapshots that are computed together; the same on all ranks."""
    digest = hashlib.sha256(repr([each.owners.times for each in partitions]).encode())
    placed = partitions[0].partition
    for part in (placed.snapshot_owner, placed.node_owner, placed.cell_owner, placed.sequence_owner):
        digest.update(b"-" if part is None else part.tobytes())
    return digest.hexdigest()
