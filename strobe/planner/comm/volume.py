"""Communication volume of a pass, predicted from cell owners and the model's view calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from strobe.comm import NO_RANK, Ledger
from strobe.comm.rows import Route
from strobe.engine.trace import ViewCall
from strobe.exchange import Exchange, TimeExchange
from strobe.exchange.dry_run import FakeComm, dry_run
from strobe.exchange.traffic import (
    RowFlow,
    RowMoves,
    Traffic,
    node_visits,
    snapshot_flows,
    unique_below,
    window_flow,
)
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Partition
from strobe.view import LocalPartition, Owners
from strobe.view.partition.local import Homes, Reads


def comm_volume_of_rank(
    partition: LocalPartition,
    calls: Iterable[ViewCall],
    *,
    dtype: torch.dtype = torch.float32,
    continues_state: bool = False,
) -> Ledger:
    """Predict what one rank sends and receives in a pass over its local partition of a window.

    A stale exchange sends this in its first pass, later a part of it and masks.

    Args:
        partition: of the rank; its comm may be a ``FakeComm``.
        calls: view calls of the model (``trace_view_calls``).
        dtype: of the rows.
        continues_state: whether states come from an earlier window, without gradients.

    Returns:
        Bytes, rows and messages by phase (``forward``, ``backward``) and kind.
    """
    ledger = Ledger()
    singles = [partition.single(t, partition.home) for t in range(len(partition.own))]
    is_local = partition.comm.num_ranks == 1 or partition.partition.whole_sequences
    for call in calls:
        if call.what == "pull" and not call.is_input:
            local = partition if call.snapshot is None else singles[call.snapshot]
            route = local.halo_cells(_reads(call, partition.graph)).route
            _count_route(ledger, "halo", route, call.columns * dtype.itemsize)
        elif call.what == "gather_state":
            moved = partition.handovers()[call.snapshot or 0]
            if moved is not None:
                _count_route(ledger, "state", moved.route, call.columns * dtype.itemsize)
        elif call.what == "over_time" and not is_local:
            exchange, rank = partition.exchange.time.for_encoder(call), partition.comm.rank
            stage = dry_run(exchange, partition, rank, call, dtype=dtype, continues_state=continues_state)
            for name in ("sent", "received", "rows_sent", "messages"):
                for key, number in getattr(stage, name).items():
                    getattr(ledger, name)[key] += number
    return ledger


def _count_route(ledger: Ledger, kind: str, route: Route, row_bytes: int) -> None:
    """Count the rows of a route forward, and their gradients backward."""
    sent, received = [len(rows) for rows in route.send.values()], list(route.receive.values())
    for phase, outgoing, incoming in (("forward", sent, received), ("backward", received, sent)):
        ledger.phase_now = phase
        for rows in filter(None, outgoing):
            ledger.count_sent(kind, rows * row_bytes, rows)
        for rows in filter(None, incoming):
            ledger.count_received(kind, rows * row_bytes)


@dataclass(frozen=True, eq=False)
class PassVolume:
    """Work and traffic of every rank in a forward and backward pass over one window."""

    cells: IntArray  # [T, W]
    arcs: IntArray  # [T, W], incoming
    traffic: Traffic


def comm_volume_of_all_ranks(
    graph: DynamicGraph,
    partition: Partition,
    exchange: Exchange,
    times: range,
    calls: Sequence[ViewCall],
    *,
    home: Homes,
    dtype: torch.dtype = torch.float32,
    continues_state: bool = False,
    cell_masks: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> PassVolume:
    """Predict what all ranks do in a pass over snapshots ``times``; equals ``comm_volume_of_rank`` for every rank.

    Cost, if the time exchange counts its messages from owners: a few numpy calls per snapshot, and memory for the arcs
    of one snapshot, the nodes of the window, and a few numbers per node, per snapshot and rank, and per message.

    Args:
        graph: the graph.
        partition: owners of cells and, for a shuffle, of sequences.
        exchange: the exchange; a stale one sends this in its first pass.
        times: the window.
        calls: view calls of the model on it.
        home: rank that has each node's state before the window, [N]; ``NO_RANK`` for none.
        dtype: of the rows.
        continues_state: whether states come from an earlier window, without gradients.
        cell_masks: computed cells of each snapshot; None: all.
    """
    owners = Owners(graph, partition, times, cell_masks)
    num_ranks = partition.num_ranks
    window = LocalPartition(FakeComm(0, num_ranks), exchange, owners, home, torch.device("cpu"))
    flows, traffic = _WindowFlows(window), Traffic(num_ranks)
    time_calls = defaultdict[TimeExchange, list[ViewCall]](list)
    for call in calls if num_ranks > 1 and not partition.replicated else ():
        if call.what == "pull" and not call.is_input and not partition.whole_snapshots:
            traffic.add("halo", flows.halo(call), call.columns * dtype.itemsize)
        elif call.what == "gather_state" and not partition.whole_sequences:
            traffic.add("state", flows.states[call.snapshot or 0], call.columns * dtype.itemsize)
        elif call.what == "over_time" and not partition.whole_sequences:
            time_calls[exchange.time.for_encoder(call)].append(call)
    for strategy, some in time_calls.items():
        traffic.merge(strategy.traffic(window, some, dtype=dtype, continues_state=continues_state))
    return PassVolume(*_sizes(owners), traffic)


def _reads(call: ViewCall, graph: DynamicGraph) -> Reads:
    return "out" if call.norm == "mean_out" and graph.directed else "in"


class _WindowFlows:
    """Row flows of a window that do not depend on the time exchange, computed on first use."""

    def __init__(self, window: LocalPartition) -> None:
        self._window, self._num_ranks = window, window.comm.num_ranks
        self._halo: dict[Reads, RowFlow] = {}
        self._halo_each: dict[Reads, list[RowFlow]] = {}

    def halo(self, call: ViewCall) -> RowFlow:
        """Halo rows of a sparse product, in one exchange or in one per snapshot."""
        reads = _reads(call, self._window.graph)
        per_snapshot = call.can_yield and self._window.exchange.structure.sends_per_snapshot
        if call.snapshot is None and not (per_snapshot and len(self._window.owners) > 1):
            if reads not in self._halo:
                self._halo[reads] = window_flow(_halo_rows(self._window.owners, reads), self._num_ranks)
            return self._halo[reads]
        if reads not in self._halo_each:
            self._halo_each[reads] = snapshot_flows(_halo_rows(self._window.owners, reads), self._num_ranks)
        flows = self._halo_each[reads]
        return _sum_flows(flows) if call.snapshot is None else flows[call.snapshot]

    @cached_property
    def states(self) -> list[RowFlow]:
        """States of models that step through time, moved to the owner of a node's next cell before each snapshot."""
        home = self._window.home
        visits = node_visits(self._window)
        rows = ((np.where(before == NO_RANK, home[nodes], before), owner) for nodes, owner, before in visits)
        return snapshot_flows(rows, self._num_ranks)


def _halo_rows(owners: Owners, reads: Reads) -> Iterator[RowMoves]:
    """Yield the halo rows of each snapshot: one per cell and remote rank that reads it."""
    for t, owner in zip(owners.times, owners, strict=True):
        snapshot = owners.graph[t]
        read, reader = snapshot.arcs() if reads == "in" else snapshot.arcs()[::-1]
        target, source = owner[reader], owner[read]
        remote = target != source
        if owners.cell_mask is not None:
            remote &= (target != NO_RANK) & (source != NO_RANK)
        pairs = target[remote].astype(np.int64) * len(owner) + read[remote]
        target, position = np.divmod(unique_below(pairs, owners.partition.num_ranks * len(owner)), max(len(owner), 1))
        yield owner[position], target


def _sum_flows(flows: list[RowFlow]) -> RowFlow:
    ends = ((each.rows_sent, each.rows_received, each.messages_sent, each.messages_received) for each in flows)
    return RowFlow(*(np.sum(end, axis=0) for end in zip(*ends, strict=True)))


def _sizes(owners: Owners) -> tuple[IntArray, IntArray]:
    """Count cells and incoming arcs per snapshot and rank, [T, W] each; with replicas every rank has all."""
    partition = owners.partition
    cells, arcs = np.zeros((2, len(owners), partition.num_ranks), np.int64)
    for t, (at, owner) in enumerate(zip(owners.times, owners, strict=True)):
        in_degree = owners.graph[at].in_degree
        if owners.cell_mask is not None:
            in_degree, owner = in_degree[owner != NO_RANK], owner[owner != NO_RANK]
        if partition.replicated:
            cells[t], arcs[t] = len(owner), in_degree.sum()
        else:
            cells[t] = np.bincount(owner, minlength=partition.num_ranks)
            arcs[t] = np.bincount(owner, in_degree, partition.num_ranks)  # in float64, exact up to 2**53
    return cells, arcs
