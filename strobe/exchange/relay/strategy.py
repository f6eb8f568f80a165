"""Time exchange that sends recurrent states along sequences that change ranks, pipelined over groups of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from strobe.comm import NO_RANK, Comm
from strobe.comm.rows import Route, anchor, exchange
from strobe.errors import OptionError
from strobe.exchange.base import (
    PartitionedWindow,
    TimeCall,
    TimeEncoder,
    TimeExchange,
    TimeInputs,
    TimeStage,
    concat_inputs,
    encode,
    split_inputs,
)
from strobe.exchange.relay.legs import Legs, find_legs, group_cuts, min_group_cells, num_groups, rank_levels
from strobe.exchange.relay.messages import (
    RelayMessages,
    RelayTask,
    RelayTransport,
    mark_backward,
    recv_states,
    send_states,
)
from strobe.exchange.shuffle import Shuffle
from strobe.exchange.traffic import (
    Pipeline,
    RowCounter,
    RowFlow,
    RowMoves,
    Traffic,
    active_cells,
    node_visits,
    unique_below,
    window_flow,
)
from strobe.ops import native
from strobe.ops.dense.rows import merge_rows, split_rows
from strobe.ops.sparse.csr import IntArray, distinct
from strobe.ops.time.sequences import Sequences


@dataclass(frozen=True, kw_only=True)
class Relay(TimeExchange):
    """Send the recurrent state of a sequence to the rank of its next cell; gradients return in backward. Exact.

    Cost: one row per cut temporal edge. Nodes form ``pipeline_groups`` that run through the ranks as a pipeline: with
    W ranks in a row and G groups, ranks are busy G / (G + W - 1) of the time. Encoders whose state is not one row per
    node (attention, linear maps over the past) are shuffled instead.
    """

    name: ClassVar[str] = "relay"
    pipeline_groups: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pipeline_groups < 1:
            raise OptionError(f"pipeline_groups of relay must be at least 1, not {self.pipeline_groups}")

    def for_encoder(self, encoder: TimeEncoder | TimeCall) -> TimeExchange:
        return self if getattr(encoder, "has_row_state", False) else Shuffle()

    def columns_sent(self, call: TimeCall) -> tuple[int, int]:
        return call.state_columns, 0

    def traffic(
        self, window: PartitionedWindow, calls: Sequence[TimeCall], *, dtype: torch.dtype, continues_state: bool
    ) -> Traffic:
        return relay_traffic(window, calls, self.pipeline_groups, dtype.itemsize, continues_state=continues_state)

    def start(self, window: PartitionedWindow) -> TimeStage:
        comm, min_cells = window.comm, min_group_cells(window.device.type)
        limits = self.pipeline_groups, comm.num_ranks, min_cells
        legs = find_legs(comm.rank, window.nodes, window.owners, window.home, *limits)
        return RelayTimeStage(legs, comm, window.device)


class RelayTimeStage(TimeStage):
    """A recurrent stage over legs. Its state: one packed row for every node whose home is this rank."""

    def __init__(self, legs: Legs, comm: Comm, device: torch.device) -> None:
        self.comm = comm
        self.legs = legs
        self.tasks = _build_tasks(legs, device)
        moves = legs.moves
        self.route = Route(
            {to: torch.from_numpy(rows).to(device) for to, rows in moves.send.items()},
            {sender: len(rows) for sender, rows in moves.receive.items()},
        )
        self._receive = [torch.from_numpy(rows).to(device) for _, rows in sorted(moves.receive.items())]
        self._local = tuple(torch.from_numpy(rows).to(device) for rows in moves.local)
        self._final_rows = torch.from_numpy(moves.final_rows).to(device)
        self._device = device
        self._no_cells = _empty(len(legs.node), device)
        self._fused_sequences = self._fuse_legs() if self.tasks and legs.is_acyclic else None

    def _fuse_legs(self) -> Sequences:
        """All legs as one batch of sequences, for kernels that relay states themselves; a group is a range of legs."""
        transport = RelayTransport(self.comm, self.tasks)
        # Kernels would step through snapshots of which this rank has no cells, too.
        ptr = np.cumsum([0, *filter(None, map(len, self.legs.cell_leg))])
        return Sequences(
            tuple(ptr.tolist()), np.concatenate(self.legs.cell_leg), len(self.legs.node), self._device, transport
        )

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        tokens: list[Tensor] = []
        fresh = _initial_state(encoder, x, self._no_cells)
        shape = StatePacking(fresh)
        first = shape.pack(fresh)
        carried = first.new_zeros(0, first.shape[1])
        if state is not None:
            carried = state["rows"]
            first, token = self._load_carried(carried, first, with_grad=state["live"].requires_grad)
            tokens.append(token)
        fuses = self._fused_sequences is not None and getattr(encoder, "supports_state_transport", False)
        if fuses and native.usable(*x, first):
            assert self._fused_sequences is not None
            out, final = encode(encoder, x, shape.unpack(first), self._fused_sequences)
            last = shape.pack(final)
        else:
            out, last = self._run_tasks(encoder, x, first, shape, tokens)
        assert len(carried) == self.legs.moves.num_states
        return out, {"rows": torch.cat([carried, last])[self._final_rows], "live": anchor(first)}, tokens

    def _load_carried(self, states: Tensor, first: Tensor, *, with_grad: bool) -> tuple[Tensor, Tensor]:
        """Initial states of legs whose nodes have a state from an earlier window, moved from their home ranks.

        ``with_grad``: whether gradients flow to earlier windows. All ranks must agree; a rank without rows could not
        tell, hence the ``live`` tensor of the state.
        """
        with torch.set_grad_enabled(with_grad and torch.is_grad_enabled()):
            moved, token = exchange(self.comm, self.route, states, kind="carry")
        rows, legs = self._local
        first = first.index_copy(0, legs, states[rows])
        if self._receive:
            first = first.index_copy(0, torch.cat(self._receive), moved)
        return first, token

    def _run_tasks(
        self, encoder: TimeEncoder, x: TimeInputs, first: Tensor, shape: StatePacking, tokens: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run all tasks in order of their slots. Returns outputs of all cells and final states of all legs."""
        messages = RelayMessages(self.comm, self.tasks, first)
        parts = split_rows(concat_inputs(x), [task.cells for task in self.tasks])
        starts = split_rows(first, [task.legs for task in self.tasks])
        outs, lasts = [], []
        for number, (task, rows, begin) in enumerate(zip(self.tasks, parts, starts, strict=True)):
            if task.recv_legs:
                begin = recv_states(messages, number, begin)
            began = self.comm.ledger.now()
            out, final = encode(encoder, split_inputs(rows, x), shape.unpack(begin), task.sequences)
            last = shape.pack(final)
            self.comm.ledger.record_pipeline_span(messages.number, task.slot, began)
            if task.send_legs:
                tokens.append(send_states(messages, number, last))
            outs.append(out)
            lasts.append(last)
        if not self.tasks:
            out, _ = encode(encoder, x, shape.unpack(first), _empty(0, self._device, len(self.legs.cell_leg)))
            return out, first
        out = merge_rows(outs, [task.cells for task in self.tasks])
        last = merge_rows(lasts, [task.legs for task in self.tasks])
        return mark_backward(messages, out), last


class StatePacking:
    """Convert a nest of states, one row per slot, to one matrix and back."""

    def __init__(self, nest: Any) -> None:
        leaves, self._spec = pytree.tree_flatten(nest)
        self._shapes = [leaf.shape[1:] for leaf in leaves]
        self._widths = [int(np.prod(shape)) for shape in self._shapes]

    def pack(self, nest: Any) -> Tensor:
        leaves = [leaf.flatten(1) for leaf in pytree.tree_flatten(nest)[0]]
        return leaves[0] if len(leaves) == 1 else torch.cat(leaves, 1)

    def unpack(self, rows: Tensor) -> Any:
        parts = rows.split(self._widths, 1)
        leaves = [part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True)]
        return pytree.tree_unflatten(leaves, self._spec)


def _initial_state(encoder: TimeEncoder, x: TimeInputs, no_cells: Sequences) -> Any:
    """Initial states of an encoder: its final state after zero cells."""
    return encode(encoder, tuple(each[:0] for each in x), None, no_cells)[1]


def _empty(num_slots: int, device: torch.device, num_snapshots: int = 0) -> Sequences:
    return Sequences((0,) * (num_snapshots + 1), np.empty(0, np.int64), num_slots, device)


def _build_tasks(legs: Legs, device: torch.device) -> list[RelayTask]:
    """Tasks of this rank in order of their slots (position of the group + wave)."""
    cells = [len(part) for part in legs.cell_leg]
    leg_of = np.concatenate([np.empty(0, np.int64), *legs.cell_leg])
    snapshot = np.repeat(np.arange(len(cells)), cells)
    key = (legs.group_position[legs.group] + legs.wave) * legs.num_waves + legs.wave  # _task_key of all legs
    order = np.argsort(key[leg_of], kind="stable")
    tasks = []
    for value in np.unique(key):
        chosen = np.flatnonzero(key == value)
        first, end = np.searchsorted(key[leg_of[order]], [value, value + 1])
        tasks.append(_build_task(legs, chosen, np.sort(order[first:end]), leg_of, snapshot, device))
    return tasks


def _build_task(
    legs: Legs, leg_index: IntArray, cells: IntArray, leg_of: IntArray, snapshot: IntArray, device: torch.device
) -> RelayTask:
    group, wave = int(legs.group[leg_index[0]]), int(legs.wave[leg_index[0]])
    slots = np.searchsorted(leg_index, leg_of[cells])
    ptr = np.searchsorted(snapshot[cells], np.arange(len(legs.cell_leg) + 1))
    return RelayTask(
        slot=int(legs.group_position[group]) + wave,
        key=_task_key(legs, group, wave),
        legs=torch.from_numpy(leg_index).to(device),
        cells=torch.from_numpy(cells).to(device),
        sequences=Sequences(tuple(ptr.tolist()), slots, len(leg_index), device),
        recv_legs=_by_rank(legs.source[leg_index], device),
        send_legs=_by_rank(legs.target[leg_index], device),
        recv_keys=_other_keys(legs, group, legs.source[leg_index], legs.source_wave[leg_index]),
        send_keys=_other_keys(legs, group, legs.target[leg_index], legs.target_wave[leg_index]),
    )


def _task_key(legs: Legs, group: int, wave: int) -> int:
    """Number of a task in the order of slots, and of waves within a slot. Equal on all ranks."""
    return (int(legs.group_position[group]) + wave) * legs.num_waves + wave


def _other_keys(legs: Legs, group: int, ranks: IntArray, waves: IntArray) -> dict[int, int]:
    """Keys of the tasks before or after the legs of a task, by rank: legs of a task and rank are of one wave there."""
    distinct_ranks, first = np.unique(ranks, return_index=True)
    return {
        int(rank): _task_key(legs, group, int(waves[leg]))
        for rank, leg in zip(distinct_ranks, first, strict=True)
        if rank != NO_RANK
    }


def _by_rank(ranks: IntArray, device: torch.device) -> dict[int, Tensor]:
    return {
        int(rank): torch.from_numpy(np.flatnonzero(ranks == rank)).to(device)
        for rank in np.unique(ranks)
        if rank != NO_RANK
    }


def relay_traffic(
    window: PartitionedWindow, calls: Sequence[TimeCall], max_groups: int, item_bytes: int, *, continues_state: bool
) -> Traffic:
    """Count the states that relayed time stages send at cuts, and those of an earlier window, without gradients.

    One pass over the snapshots; memory for a few numbers per node and per message.
    """
    num_ranks = window.comm.num_ranks
    traffic = Traffic(num_ranks)
    states, cells, in_turn = relay_flow(window, max_groups)
    for call in calls:
        traffic.add("relay", states, call.state_columns * item_bytes)
    if continues_state:
        carried = window_flow(_carried_rows(window), num_ranks)
        for call in calls:
            traffic.add("carry", carried, call.state_columns * item_bytes, has_gradient=False)
    if len(cells) > 1:
        groups = num_groups(int(cells.sum()), max_groups, num_ranks, min_group_cells(window.device.type))
        traffic.pipeline = Pipeline(cells=cells, groups=groups, in_turn=in_turn, num_stages=len(calls))
    return traffic


def relay_flow(window: PartitionedWindow, max_groups: int) -> tuple[RowFlow, IntArray, bool]:
    """Count the states relayed at cuts within a window. A message has the states of one group of nodes and one wave.

    Returns:
        The states; the cells of every wave and rank, [V, W]; whether sequences visit ranks in one order.
    """
    num_ranks, length = window.comm.num_ranks, max(len(window.owners), 1)
    counter = RowCounter(num_ranks)
    wave = np.zeros(len(window.home), np.int64)  # of every sequence's current leg
    borders = group_cuts(_sequence_lengths(window), max_groups, num_ranks, min_group_cells(window.device.type))
    message_keys: list[IntArray] = [np.empty(0, np.int64)]
    cells = np.zeros(num_ranks, np.int64)
    for nodes, owner, before in node_visits(window):
        cut = (before != NO_RANK) & (before != owner)
        node, source, target = nodes[cut], before[cut], owner[cut]
        counter.add((source, target))
        pair = (np.searchsorted(borders, node, side="right") * num_ranks + source) * num_ranks + target
        message_keys.append(unique_below(pair * length + wave[node], max_groups * num_ranks**2 * length))
        wave[node] += 1
        more = np.bincount(wave[nodes] * num_ranks + owner, minlength=len(cells))
        more[: len(cells)] += cells
        cells = more
    levels = rank_levels(counter.sends_to)
    keys = np.concatenate(message_keys)
    if levels is not None:
        keys -= keys % length  # all legs of a rank in a group are of one wave
    pair = distinct(keys) // length
    messages = (np.bincount(end, minlength=num_ranks) for end in (pair // num_ranks % num_ranks, pair % num_ranks))
    by_wave = np.pad(cells, (0, -len(cells) % num_ranks)).reshape(-1, num_ranks)
    if levels is not None:
        by_level = np.zeros((int(levels.max()) + 1, num_ranks), np.int64)
        by_level[levels, np.arange(num_ranks)] = by_wave.sum(axis=0)
        by_wave = by_level
    return RowFlow(counter.sent, counter.received, *messages), by_wave, levels is not None


def _carried_rows(window: PartitionedWindow) -> Iterator[RowMoves]:
    """Yield the states of an earlier window to move to the owner of a node's first cell."""
    for nodes, owner, before in node_visits(window):
        first = before == NO_RANK
        yield window.home[nodes[first]], owner[first]


def _sequence_lengths(window: PartitionedWindow) -> IntArray:
    """Count the cells of each sequence in the window, [N]."""
    count = np.zeros(len(window.home), np.int64)
    for nodes, _ in active_cells(window):
        count[nodes] += 1  # a node is in a snapshot once
    return count
