"""Ledgers and timelines of the ranks, gathered after every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strobe.comm.ledger import BatchSpan, PipelineSpan
from strobe.comm.ledger_stats import pipeline_busy_fraction
from strobe.engine.job import Job
from strobe.engine.machine import peak_bytes


@dataclass(frozen=True)
class EpochTrace:
    """Timeline of an epoch, per rank; on rank 0."""

    pipeline_spans: list[list[PipelineSpan]] = field(default_factory=list)
    batch_spans: list[list[BatchSpan]] = field(default_factory=list)


def gather_ledgers(job: Job) -> tuple[dict[str, Any], EpochTrace]:
    """Drain the ledgers of all ranks to rank 0. A single rank reports its timeline only."""
    own = job.comm.ledger.drain() | peak_bytes(job.device)
    if job.comm.num_ranks == 1:
        return {}, EpochTrace(batch_spans=[own["batch_spans"]])
    ledgers = job.comm.gather_object(own, kind="ledger")
    trace = EpochTrace([each.pop("pipeline_spans") for each in ledgers], [each.pop("batch_spans") for each in ledgers])
    busy = pipeline_busy_fraction(trace.pipeline_spans)
    return {"ranks": ledgers} | ({} if busy is None else {"pipeline_busy": busy}), trace
