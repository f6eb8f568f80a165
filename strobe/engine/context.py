"""What the training loop works on: one run on one rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from strobe.batching.base import EpochPolicy, EpochResult, StepSource
from strobe.comm import Comm
from strobe.comm.ledger import Ledger
from strobe.engine.checkpoint.store import TrainState
from strobe.engine.evaluation.evaluator import Evaluator, make_evaluator
from strobe.engine.exchange_session import ExchangeSession
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
        run = cls(job, state, source, sync, pacer, exchange, evaluator, record, progress)
        run.policy = source.policy(run)
        if parts.get("policy") is not None:
            run.policy.load_state_dict(parts["policy"])
        load_source_state(source, parts.get("source"), job.comm)
        return run

    @property
    def settings(self) -> Settings:
        return self.job.settings

    @property
    def problem(self) -> Problem:
        return self.job.problem

    @property
    def comm(self) -> Comm:
        return self.job.comm

    @property
    def ledger(self) -> Ledger:
        return self.job.comm.ledger

    def announce(self) -> None:
        """Tell the user how many steps an epoch has."""
        steps, metric = self.source.steps_per_epoch, self.problem.metric
        begin = {"epochs": self.settings.epochs, "epoch": self.state.epoch, "steps": steps, "metric": metric}
        self.progress.begin(begin)

    def end_batch(self, batch: int, began: float) -> None:
        """A batch of this step has been computed. A GPU runs behind: it is waited for where batches are timed."""
        if self.job.device.type == "cuda" and self.job.plan.schedule.cost_source is not None:
            torch.cuda.synchronize(self.job.device)
        self.ledger.record_batch_span(batch, began)

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
