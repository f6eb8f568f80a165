"""Communication volume of a pass, predicted from cell owners and the model's view calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from strobe.comm import SingleRankComm
from strobe.comm.rows import Route
from strobe.engine.trace import ViewCall
from strobe.exchange import Exchange, Relay, Shuffle
from strobe.exchange.relay.legs import NO_RANK
from strobe.exchange.relay.strategy import RelayTimeStage
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Partition
from strobe.planner.comm.flows import (
    RowFlow,
    carry_rows,
    halo_rows,
    relay_flow,
    shuffle_rows,
    snapshot_flows,
    state_rows,
    sum_flows,
    window_flow,
)
from strobe.view import LocalPartition, Owners
from strobe.view.partition.local import Homes, Reads


class FakeComm(SingleRankComm):
    """A rank of a process group that does not exist: for predictions, cannot send."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        super().__init__()
        self.rank, self.num_ranks = rank, num_ranks


@dataclass(frozen=True)
class CommVolume:
    """Rows and bytes of one kind that a rank sends: forward, and gradients backward."""

    rows: int = 0
    num_bytes: int = 0
    grad_rows: int = 0
    grad_bytes: int = 0

    def add_rows(self, forward_rows: int, backward_rows: int, columns: int, item_bytes: int) -> CommVolume:
        row = columns * item_bytes
        return CommVolume(
            self.rows + forward_rows,
            self.num_bytes + forward_rows * row,
            self.grad_rows + backward_rows,
            self.grad_bytes + backward_rows * row,
        )


def comm_volume_of_rank(
    partition: LocalPartition, calls: Iterable[ViewCall], *, item_bytes: int = 4, continues_state: bool = False
) -> dict[str, CommVolume]:
    """Predict what one rank sends in a pass over its local partition of a window, by kind.

    A stale exchange sends this in its first pass, later a part of it and masks.

    Args:
        partition: of the rank; its comm may be a ``FakeComm``.
        calls: view calls of the model (``trace_view_calls``).
        item_bytes: bytes of a number.
        continues_state: whether states come from an earlier window, without gradients.
    """
    volumes: dict[str, CommVolume] = defaultdict(CommVolume)

    def add(kind: str, route: Route, columns: int, *, has_gradient: bool = True) -> None:
        back = route.rows_received if has_gradient else 0
        volumes[kind] = volumes[kind].add_rows(route.rows_sent, back, columns, item_bytes)

    singles = [partition.single(t, partition.home) for t in range(len(partition.own))]
    for call in calls:
        if call.what == "pull" and not call.is_input:
            reads: Reads = "out" if call.norm == "mean_out" and partition.graph.directed else "in"
            local = partition if call.snapshot is None else singles[call.snapshot]
            add("halo", local.halo_cells(reads).route, call.columns)
        elif call.what == "recall":
            moved = partition.handovers()[call.snapshot or 0]
            if moved is not None:
                add("state", moved.route, call.columns)
        elif call.what == "over_time":
            timing = partition.time_stage(call)  # type: ignore[arg-type]
            if isinstance(timing, RelayTimeStage):
                legs = timing.legs
                rows = legs.states_sent, legs.states_received
                volumes["relay"] = volumes["relay"].add_rows(*rows, call.state_columns, item_bytes)
                if continues_state:
                    add("carry", timing.route, call.state_columns, has_gradient=False)
            elif isinstance(timing, ShuffleTimeStage):
                add("shuffle", timing.route_to_owner, call.columns)
                add("shuffle", timing.route_from_owner, call.out_columns)
    return {kind: volume for kind, volume in volumes.items() if volume != CommVolume()}


@dataclass(frozen=True, eq=False)
class PassVolume:
    """Work and payload bytes of every rank in a forward and backward pass over one window.

    A relay sends a message per group and wave, other exchanges one per pair of ranks and direction. ``waves`` is the
    most legs of a relayed sequence within the window, 1 without cuts. Kinds without bytes are left out.
    """

    cells: IntArray  # [T, W]
    arcs: IntArray  # [T, W], incoming
    sent: dict[str, IntArray]  # kind -> [W], bytes
    received: dict[str, IntArray]  # kind -> [W], bytes
    messages: dict[str, IntArray]  # kind -> [W], sent
    waves: int = 1


def comm_volume_of_all_ranks(
    graph: DynamicGraph,
    partition: Partition,
    exchange: Exchange,
    times: range,
    calls: Sequence[ViewCall],
    *,
    home: Homes,
    item_bytes: int = 4,
    continues_state: bool = False,
    cell_masks: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> PassVolume:
    """Predict what all ranks do in a pass over snapshots ``times``; equals ``comm_volume_of_rank`` for every rank.

    Cost: a few numpy calls per snapshot, and memory for the arcs of one snapshot and a few numbers per node, per
    snapshot and rank, per pair of ranks, and per message of a relay.

    Args:
        graph: the graph.
        partition: owners of cells and, for a shuffle, of sequences.
        exchange: the exchange; a stale one sends this in its first pass.
        times: the window.
        calls: view calls of the model on it.
        home: rank that has each node's state before the window, [N]; -1 for none.
        item_bytes: bytes of a number.
        continues_state: whether states come from an earlier window, without gradients.
        cell_masks: computed cells of each snapshot; None: all.
    """
    owners = Owners(graph, partition, times, cell_masks)
    window = _Window(owners, exchange, home)
    tally = _Tally(partition.num_ranks, item_bytes)
    for call in calls if partition.num_ranks > 1 and not partition.replicated else ():
        if call.what == "pull" and not call.is_input:
            tally.add("halo", window.halo_flow(call), call.columns)
        elif call.what == "recall":
            tally.add("state", window.state_flow(call), call.columns)
        elif call.what == "over_time" and not partition.whole_sequences:
            _count_time_stage(tally, window, call, continues_state=continues_state)
    cells, arcs = _sizes(owners)
    return PassVolume(cells, arcs, *tally.totals(), waves=tally.waves)


def _count_time_stage(tally: _Tally, window: _Window, call: ViewCall, *, continues_state: bool) -> None:
    choice = window.exchange.time.for_encoder(call)  # type: ignore[arg-type]
    if isinstance(choice, Relay):
        cuts, waves = window.relay_flow(choice)
        tally.add("relay", cuts, call.state_columns)
        tally.waves = max(tally.waves, waves)
        if continues_state:
            tally.add("carry", window.carry_flow, call.state_columns, has_gradient=False)
    else:
        assert isinstance(choice, Shuffle), f"the volume of time exchange {choice} is not defined"
        tally.add("shuffle", window.shuffle_flow, call.columns)
        tally.add("shuffle", window.shuffle_flow.backward, call.out_columns)


class _Tally:
    """Accumulates bytes and messages of all ranks by kind."""

    def __init__(self, num_ranks: int, item_bytes: int) -> None:
        self.waves = 1
        self._item_bytes = item_bytes
        self._zeros = np.zeros(num_ranks, np.int64)
        self._counts: dict[str, tuple[IntArray, IntArray, IntArray]] = {}

    def add(self, kind: str, flow: RowFlow | None, columns: int, *, has_gradient: bool = True) -> None:
        """Add an exchange of rows, and of their gradients; None: nothing is sent."""
        if flow is None:
            return
        row = columns * self._item_bytes
        sent, received, messages = self._counts.get(kind, (self._zeros,) * 3)
        for way in (flow, flow.backward) if has_gradient else (flow,):
            sent = sent + way.rows_sent * row
            received = received + way.rows_received * row
            messages = messages + way.messages_sent
        self._counts[kind] = sent, received, messages

    def totals(self) -> tuple[dict[str, IntArray], dict[str, IntArray], dict[str, IntArray]]:
        """Bytes sent, bytes received, messages sent."""
        counts = {kind: each for kind, each in self._counts.items() if each[2].any()}
        sent, received, messages = ({kind: each[k] for kind, each in counts.items()} for k in range(3))
        return sent, received, messages


class _Window:
    """Row flows of a window, computed on first use."""

    def __init__(self, owners: Owners, exchange: Exchange, home: Homes) -> None:
        self.owners, self.exchange, self.home = owners, exchange, home
        self.num_ranks = owners.partition.num_ranks
        self._read: dict[Reads, RowFlow] = {}
        self._read_each: dict[Reads, list[RowFlow]] = {}
        self._relay_flows: dict[Relay, tuple[RowFlow, int]] = {}

    def halo_flow(self, call: ViewCall) -> RowFlow | None:
        """Halo rows; None if every snapshot is on one rank."""
        if self.owners.partition.whole_snapshots:
            return None
        reads: Reads = "out" if call.norm == "mean_out" and self.owners.graph.directed else "in"
        per_snapshot = call.can_yield and self.exchange.structure.sends_per_snapshot and len(self.owners) > 1
        if call.snapshot is None and not per_snapshot:
            if reads not in self._read:
                self._read[reads] = window_flow(halo_rows(self.owners, reads), self.num_ranks)
            return self._read[reads]
        if reads not in self._read_each:
            self._read_each[reads] = snapshot_flows(halo_rows(self.owners, reads), self.num_ranks)
        flows = self._read_each[reads]
        return sum_flows(flows) if call.snapshot is None else flows[call.snapshot]

    def state_flow(self, call: ViewCall) -> RowFlow | None:
        """States of models that step through time; None if every sequence is on one rank."""
        return None if self.owners.partition.whole_sequences else self._state_flows[call.snapshot or 0]

    def relay_flow(self, choice: Relay) -> tuple[RowFlow, int]:
        """States at cuts, and the number of waves."""
        if choice not in self._relay_flows:
            self._relay_flows[choice] = relay_flow(self.owners, choice.pipeline_groups)
        return self._relay_flows[choice]

    @cached_property
    def carry_flow(self) -> RowFlow:
        """States of an earlier window."""
        return window_flow(carry_rows(self.owners, self.home), self.num_ranks)

    @cached_property
    def shuffle_flow(self) -> RowFlow:
        """Cells sent to the owners of their sequences."""
        return window_flow(shuffle_rows(self.owners), self.num_ranks)

    @cached_property
    def _state_flows(self) -> list[RowFlow]:
        return snapshot_flows(state_rows(self.owners, self.home), self.num_ranks)


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
