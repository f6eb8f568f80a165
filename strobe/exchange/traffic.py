"""Bytes and messages of all ranks in a pass, counted from cell owners without starting ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from strobe.comm import NO_RANK, Ledger
from strobe.ops.sparse.csr import IntArray, distinct

if TYPE_CHECKING:
    from strobe.exchange.base import PartitionedWindow

RowMoves = tuple[IntArray, IntArray]
"""Source and target rank of every row. Rows with source ``NO_RANK`` or equal ranks are not sent."""


@dataclass(frozen=True, eq=False)
class RowFlow:
    """Rows and messages of every rank in one forward exchange, [W] each."""

    rows_sent: IntArray
    rows_received: IntArray
    messages_sent: IntArray
    messages_received: IntArray

    @property
    def backward(self) -> RowFlow:
        """The exchange of gradients."""
        return RowFlow(self.rows_received, self.rows_sent, self.messages_received, self.messages_sent)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pipeline:
    """Time stages in which ranks wait for states of one another.

    Attributes:
        cells: of every wave and rank, [V, W]; wave k waits for states of wave k - 1.
        groups: groups of nodes that pass through the waves one after the other.
        in_turn: whether sequences visit ranks in one order. Then all cells of a rank are in one wave, and one kernel
            call processes all groups.
        num_stages: the number of time stages.
    """

    cells: IntArray
    groups: int
    in_turn: bool
    num_stages: int


class Traffic:
    """Bytes sent, bytes received and messages sent of every rank by kind, [W] each, forward and backward together.

    Attributes:
        moved_bytes: bytes per cell that ranks gather and scatter, whether the cell is sent or not.
        pipeline: None if no rank waits for states of another.
    """

    def __init__(self, num_ranks: int) -> None:
        self.sent, self.received, self.messages = (
            defaultdict[str, IntArray](lambda: np.zeros(num_ranks, np.int64)) for _ in range(3)
        )
        self.moved_bytes = 0
        self.pipeline: Pipeline | None = None

    def add(self, kind: str, flow: RowFlow, row_bytes: int, *, has_gradient: bool = True) -> None:
        """Add an exchange of rows, and of their gradients."""
        if not flow.messages_sent.any():
            return
        for way in (flow, flow.backward) if has_gradient else (flow,):
            self.sent[kind] += way.rows_sent * row_bytes
            self.received[kind] += way.rows_received * row_bytes
            self.messages[kind] += way.messages_sent

    def add_rank(self, rank: int, ledger: Ledger) -> None:
        """Add what the ledger of one rank has counted."""
        for counts, total in zip(
            (ledger.sent, ledger.received, ledger.messages), (self.sent, self.received, self.messages), strict=True
        ):
            for (_, kind), number in counts.items():
                total[kind][rank] += number

    def merge(self, other: Traffic) -> None:
        """Add the traffic of other stages of the same pass."""
        for name in ("sent", "received", "messages"):
            for kind, count in getattr(other, name).items():
                getattr(self, name)[kind] += count
        self.moved_bytes += other.moved_bytes
        if self.pipeline is None or other.pipeline is None:
            self.pipeline = self.pipeline or other.pipeline
        else:
            groups = min(self.pipeline.groups, other.pipeline.groups)
            stages = self.pipeline.num_stages + other.pipeline.num_stages
            self.pipeline = replace(self.pipeline, groups=groups, num_stages=stages)


class RowCounter:
    """Accumulates rows sent and received per rank, and which rank sends to which."""

    def __init__(self, num_ranks: int) -> None:
        self.sent, self.received = np.zeros((2, num_ranks), np.int64)
        self.sends_to = np.zeros((num_ranks, num_ranks), bool)

    def add(self, rows: RowMoves) -> None:
        source, target = _sent_rows(rows)
        self.sent += np.bincount(source, minlength=len(self.sends_to))
        self.received += np.bincount(target, minlength=len(self.sends_to))
        self.sends_to[source, target] = True


def window_flow(rows: Iterable[RowMoves], num_ranks: int) -> RowFlow:
    """Count one exchange for all snapshots of a window: one message per pair of ranks."""
    counter = RowCounter(num_ranks)
    for each in rows:
        counter.add(each)
    return RowFlow(counter.sent, counter.received, counter.sends_to.sum(1), counter.sends_to.sum(0))


def snapshot_flows(rows: Iterable[RowMoves], num_ranks: int) -> list[RowFlow]:
    """Count one exchange per snapshot."""
    flows = []
    for each in rows:
        source, target = _sent_rows(each)
        pairs = unique_below(source.astype(np.int64) * num_ranks + target, num_ranks**2)
        ends = source, target, pairs // num_ranks, pairs % num_ranks
        flows.append(RowFlow(*(np.bincount(end, minlength=num_ranks) for end in ends)))
    return flows


def active_cells(window: PartitionedWindow) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield for each snapshot the nodes of cells that are not left out, and their owners."""
    for nodes, owner in zip(window.nodes, window.owners, strict=True):
        active = owner != NO_RANK
        yield (nodes, owner) if active.all() else (nodes[active], owner[active])


def node_visits(window: PartitionedWindow) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield for each snapshot its nodes, their owners, and the owners of their previous cells (or ``NO_RANK``)."""
    current = np.full(len(window.home), NO_RANK, np.int16)
    for nodes, owner in active_cells(window):
        yield nodes, owner, current[nodes]
        current[nodes] = owner


def unique_below(keys: IntArray, limit: int) -> IntArray:
    """Return distinct keys below ``limit`` in ascending order; dense keys are not sorted but marked."""
    if limit > 4 * len(keys):
        return distinct(keys)
    present = np.zeros(limit, bool)
    present[keys] = True
    return np.flatnonzero(present)


def _sent_rows(rows: RowMoves) -> RowMoves:
    source, target = rows
    sent = (source != target) & (source != NO_RANK)
    return source[sent], target[sent]
