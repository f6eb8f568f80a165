"""Per-epoch figures of ranks, computed from their ledgers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.comm.ledger import PipelineSpan

LedgerLine = Mapping[str, Any]
"""A drained ledger of one rank: of one epoch, or of several merged ones."""

PipelineSpans = Sequence[Sequence[PipelineSpan]]
"""Slots of relayed time stages, per rank."""

_MIN_SHARE = 0.01
_CONTROL_KINDS = ("scalars", "setup", "placement", "ledger")


@dataclass(frozen=True, kw_only=True)
class RankStats:
    """A mean epoch of one rank, with evaluation and checkpoints. Memory is the peak of all epochs."""

    cells: float
    arcs: float
    computing_s: float
    exposed_comm_s: float
    straggler_wait_s: float
    overlapped_comm_s: float
    sent_bytes: float
    memory_bytes: int
    device_bytes: int

    @property
    def seconds(self) -> float:
        """Wall time; overlapped communication is part of computing."""
        return self.computing_s + self.exposed_comm_s + self.straggler_wait_s

    @property
    def work(self) -> float:
        """Computational load: cells plus arcs."""
        return self.cells + self.arcs

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the device that computes."""
        return self.device_bytes or self.memory_bytes


def mean_rank_stats(ledger: LedgerLine, epochs: int) -> RankStats:
    """Compute a rank's mean epoch from the merged ledger of ``epochs`` epochs."""
    seconds, epochs = ledger["seconds"], max(epochs, 1)
    exposed_s, wait_s, overlapped_s = (
        seconds.get(name, 0.0) / epochs for name in ("exposed_comm_s", "straggler_wait_s", "overlapped_comm_s")
    )
    return RankStats(
        cells=ledger.get("cells", 0) / epochs,
        arcs=ledger.get("arcs", 0) / epochs,
        computing_s=max(ledger["total_s"] / epochs - exposed_s - wait_s, 0.0),  # waits are not counted by phase
        exposed_comm_s=exposed_s,
        straggler_wait_s=wait_s,
        overlapped_comm_s=overlapped_s,
        sent_bytes=sum(ledger["sent"].values()) / epochs,
        memory_bytes=ledger.get("memory_bytes", 0),
        device_bytes=ledger.get("device_bytes", 0),
    )


def sent_by_kind(ledgers: Iterable[LedgerLine], epochs: int, *phases: str) -> dict[str, float]:
    """Sum the bytes that all ranks send in a mean epoch by kind, in ``phases`` (default: all); most bytes first."""
    totals: dict[str, float] = defaultdict(float)
    for ledger in ledgers:
        for key, num_bytes in ledger["sent"].items():
            phase, _, kind = key.partition("/")
            if not phases or phase in phases:
                totals[kind] += num_bytes / max(epochs, 1)
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def significant_kinds(kinds: Mapping[str, float]) -> list[str]:
    """Select the kinds with at least 1 % of all bytes, without coordination messages."""
    least = sum(kinds.values()) * _MIN_SHARE
    return [
        kind for kind, num_bytes in kinds.items() if num_bytes and num_bytes >= least and kind not in _CONTROL_KINDS
    ]


def imbalance(values: Sequence[float]) -> float | None:
    """Ratio of the largest value to the smallest; None where the smallest is 0."""
    return max(values) / min(values) if values and min(values) > 0 else None


def pipeline_busy_fraction(pipeline_spans: PipelineSpans) -> float | None:
    """Compute the fraction of the ranks' time in relayed time stages that is spent computing; None without a relay.

    A stage lasts from the start of its first slot on any rank to the end of its last. Evaluation is excluded.
    """
    stages: dict[tuple[str, int], list[PipelineSpan]] = defaultdict(list)
    for span in (span for row in pipeline_spans for span in row if span[0] in ("forward", "backward")):
        stages[span[0], span[1]].append(span)
    total_s = sum(max(end for *_, end in spans) - min(begin for *_, begin, _ in spans) for spans in stages.values())
    busy_s = sum(sum(end - begin for *_, begin, end in spans) for spans in stages.values())
    return busy_s / (len(pipeline_spans) * total_s) if total_s > 0 else None
