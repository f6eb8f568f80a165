"""A rank's part of a truncated window, which keeps only the leading chunks of older snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from strobe.comm import NO_RANK
from strobe.comm.rows import Route
from strobe.exchange import TimeEncoder, TimeStage
from strobe.exchange.base import TimeInputs, encode
from strobe.exchange.halo import HaloCells
from strobe.exchange.none import LocalTimeStage
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences, StateCapture
from strobe.view.data.permuted import NestedRows, PermutedSnapshot
from strobe.view.partition.local import Homes, LocalPartition, Reads

FinalState = tuple[bool, Any]
"""A state after a window: whether it has one row per slot, and its value."""


class WindowSlice(NamedTuple):
    """The first ``num_chunks`` chunks of a snapshot; the next step keeps ``num_chunks_next``. ``renormalized``: arc
    weights are normalized by the degrees of the kept subgraph."""

    permuted: PermutedSnapshot
    num_chunks: int
    num_chunks_next: int
    renormalized: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether every cell is kept."""
        return self.permuted.num_cells(self.num_chunks) == self.permuted.snapshot.num_nodes

    @property
    def num_cells(self) -> int:
        """Cells of this rank."""
        return self.permuted.num_own_cells(self.num_chunks)

    @property
    def num_arcs(self) -> int:
        return int(self.permuted.arc_ptr[self.num_cells])

    @property
    def leaving(self) -> slice:
        """Rows of the cells that the next step drops; its initial states are the states after them."""
        return slice(self.permuted.num_own_cells(self.num_chunks_next), self.num_cells)

    @property
    def leaving_slots(self) -> slice:
        order = self.permuted.order
        return slice(order.num_slots_in(self.num_chunks_next), order.num_slots_in(self.num_chunks))


@dataclass(frozen=True, eq=False)
class TruncatedPartition(LocalPartition):
    """A rank's part of a window of slices, oldest first, each nested in the next.

    ``final_states``, if not None, collects the states after the newest snapshot, in the order they are saved.
    """

    slices: tuple[WindowSlice, ...] = ()
    final_states: list[FinalState] | None = None

    @cached_property
    def own(self) -> list[IntArray]:
        return [block.permuted.own[: block.num_cells] for block in self.slices]

    @cached_property
    def snapshot_sizes(self) -> IntArray:
        return np.array([block.permuted.num_cells(block.num_chunks) for block in self.slices], np.int64)

    def halo_cells(self, reads: Reads) -> HaloCells:
        halos = [block.permuted.halo(reads) for block in self.slices]
        num_chunks = [block.num_chunks for block in self.slices]
        cells = _offsets(block.num_cells for block in self.slices)
        columns = _offsets(halo.count(each) for halo, each in zip(halos, num_chunks, strict=True))
        send, receive, arrivals = {}, {}, []
        for rank in range(self.comm.num_ranks):
            sent = _leading_rows([halo.send.get(rank) for halo in halos], num_chunks, cells)
            received = _leading_rows([halo.receive.get(rank) for halo in halos], num_chunks, columns)
            if len(sent):
                send[rank] = torch.from_numpy(sent).to(self.device)
            if len(received):
                receive[rank] = len(received)
                arrivals.append(received)
        return HaloCells(Route(send, receive), [], [], self._permutation(arrivals))

    def _permutation(self, arrivals: list[IntArray]) -> Tensor | None:
        """Index of each needed row among received rows; None if they arrive in order."""
        if len(arrivals) < 2:
            return None
        places = np.concatenate(arrivals)
        permutation = np.empty_like(places)
        permutation[places] = np.arange(len(places))
        return torch.from_numpy(permutation).to(self.device)

    def time_stage(self, encoder: TimeEncoder) -> TimeStage:
        if getattr(encoder, "has_row_state", False):
            return TruncatedTimeStage(self)
        if self.final_states is not None:
            self.final_states.append((False, None))
        return StatelessTimeStage(self._local_stage.sequences)

    def single(self, t: int, home: Homes) -> LocalPartition:
        del home
        owners: Any = self.owners[t : t + 1]
        return replace(self, owners=owners, parent=self, slices=self.slices[t : t + 1], final_states=None)

    @cached_property
    def _local_stage(self) -> LocalTimeStage:
        present = [block.permuted.slots[: block.num_cells] for block in self.slices]
        return LocalTimeStage(Sequences.of(present, self.num_slots, self.device))

    def computing_rank(self, k: int) -> IntArray:
        block = self.slices[k]
        nodes = self.graph[self.owners.times[k]].nodes
        kept = block.permuted.order.place[nodes] < block.num_chunks
        return np.where(kept, self.owners[k], NO_RANK)

    def node_slots(self, nodes: IntArray) -> IntArray:
        return self.slices[0].permuted.order.slot[nodes]

    def save_latest(self, saved: Tensor | None, rows: Tensor) -> Tensor:
        """The saved embedding of every slot where the next step begins. ``rows`` are those of all cells."""
        saved = rows.new_zeros(self.num_slots, rows.shape[1]) if saved is None else saved
        first = _offsets(block.num_cells for block in self.slices)
        slots, cells = [], []
        newest = saved
        for start, block in zip(first, self.slices, strict=True):
            slots.append(block.permuted.slots[block.leaving])
            cells.append(np.arange(start + block.leaving.start, start + block.leaving.stop))
            if self.final_states is not None:
                own = torch.from_numpy(block.permuted.slots[: block.num_cells]).to(self.device)
                newest = newest.index_copy(0, own, rows[start : start + block.num_cells])
        if self.final_states is not None:
            self.final_states.append((True, newest))
        into, of = (torch.from_numpy(np.concatenate(each)).to(self.device) for each in (slots, cells))
        return saved.index_copy(0, into, rows.index_select(0, of))

    @cached_property
    def present_slots(self) -> IntArray | None:
        """Slots of the nodes with a cell in the window, ascending; None if all have one."""
        present = np.zeros(self.num_slots, bool)
        for block in self.slices:
            present[block.permuted.slots[: block.num_cells]] = True
        return None if present.all() else np.flatnonzero(present)

    @property
    def num_slots(self) -> int:
        return self.slices[0].permuted.order.num_slots

    @cached_property
    def sequences(self) -> Sequences:
        """Sequences of present nodes; states are captured where the next step begins."""
        first = _offsets(block.num_cells for block in self.slices)
        leaving = zip(first, (block.leaving for block in self.slices), strict=True)
        rows = tuple(slice(start + each.start, start + each.stop) for start, each in leaving)
        cells = [self._among_present(block.permuted.slots[: block.num_cells]) for block in self.slices]
        slots = tuple(self._among_present(block.permuted.slots[block.leaving]) for block in self.slices)
        number = self.num_slots if self.present_slots is None else len(self.present_slots)
        return replace(Sequences.of(cells, number, self.device), capture=StateCapture(rows, slots))

    def _among_present(self, slots: IntArray) -> IntArray:
        return slots if self.present_slots is None else np.searchsorted(self.present_slots, slots)

    def next_state(self, initial_state: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        """The next step's initial state, from this window's and the states after each of its snapshots.

        ``per_node``: states have one row per slot.
        """
        if self.final_states is not None:
            self.final_states.append((per_node, values[-1] if values else initial_state))
        if not per_node:
            num_dropped = sum(block.num_chunks_next == 0 for block in self.slices)
            return values[num_dropped - 1] if num_dropped else initial_state
        if initial_state is None:
            initial_state = pytree.tree_map(torch.zeros_like, values[0])

        def concat(*parts: Tensor) -> Tensor:
            before, *after = parts
            rows = [each[block.leaving_slots] for each, block in zip(after, self.slices, strict=True)]
            return torch.cat([before[: self.slices[0].leaving_slots.start], *rows])

        return pytree.tree_map(concat, initial_state, *values)


class TruncatedTimeStage(TimeStage):
    """A recurrent stage over a truncated window: a node starts in the oldest slice that has it, from the detached state
    of the previous step.

    Its state has one row per slot: that of each node after the last slice that the next step drops. Rows of nodes
    outside the window are unchanged. If final states are collected, or the encoder cannot capture states, the cells
    before the boundary, one per node, are recomputed.
    """

    def __init__(self, local_partition: TruncatedPartition) -> None:
        self._partition = local_partition

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        partition = self._partition
        start = (
            state if state is None or partition.present_slots is None else pytree.tree_map(self._select_present, state)
        )
        if partition.final_states is None and getattr(encoder, "supports_state_transport", False):
            out, boundary = encode(encoder, x, start, partition.sequences)
        else:
            out, last = encode(encoder, x, start, replace(partition.sequences, capture=None))
            boundary = self._recompute_boundary(encoder, x, start)
            if partition.final_states is not None:
                whole = None if state is None else pytree.tree_map(torch.clone, state)
                partition.final_states.append((True, self._scatter_present(whole, last)))
        return out, self._scatter_present(state, boundary), []

    def _recompute_boundary(self, encoder: TimeEncoder, x: TimeInputs, start: Any | None) -> Any | None:
        leaving, sequences = self._partition.sequences.capture, self._partition.sequences
        assert leaving is not None
        slots = np.concatenate(leaving.slots)
        if not len(slots):
            return start
        once = Sequences.of([slots], sequences.num_slots, sequences.device)
        with torch.no_grad():
            cells = tuple(torch.cat([each[rows] for rows in leaving.rows]) for each in x)
            return encode(encoder, cells, start, once)[1]

    def _select_present(self, state: Tensor) -> Tensor:
        return state.index_select(0, self._places)

    def _scatter_present(self, state: Any | None, rows: Any | None) -> Any | None:
        """Write the rows of present slots into the state, in place."""
        partition = self._partition
        if partition.present_slots is None or rows is None:
            return rows

        def put(old: Tensor | None, new: Tensor) -> Tensor:
            old = new.new_zeros(partition.num_slots, *new.shape[1:]) if old is None else old
            return old.index_copy_(0, self._places, new.detach())

        return _map_pair(put, state, rows)

    @cached_property
    def _places(self) -> Tensor:
        assert self._partition.present_slots is not None
        return torch.from_numpy(self._partition.present_slots).to(self._partition.device)


class StatelessTimeStage(LocalTimeStage):
    """A stage whose encoder reads only the window's cells and has no state."""

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        out, _, tokens = super().run(encoder, x, None)
        return out, None, tokens


def _map_pair(change: Callable[[Tensor | None, Tensor], Tensor], old: Any | None, new: Any) -> Any:
    """Map a function over two nests of the same structure; ``old`` may be None."""
    if isinstance(new, Tensor):
        return change(old, new)
    olds = [None] * len(new) if old is None else old
    return type(new)(_map_pair(change, *each) for each in zip(olds, new, strict=True))


def _offsets(sizes: Iterable[int]) -> list[int]:
    """Start of each range."""
    *starts, _ = accumulate(sizes, initial=0)
    return starts


def _leading_rows(rows: Sequence[NestedRows | None], num_chunks: Sequence[int], offsets: Sequence[int]) -> IntArray:
    """The needed rows of each slice, offset by the slices before it."""
    leading = [
        each.index[: each.count(number)] + offset
        for each, number, offset in zip(rows, num_chunks, offsets, strict=True)
        if each is not None
    ]
    return np.concatenate([np.empty(0, np.int64), *leading])
