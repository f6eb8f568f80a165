"""Windows that slide over the training snapshots, each built for its step and released after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from strobe.batching.base import EpochPolicy, StepSource
from strobe.batching.trapezoid import Decay, DecaySearchOptions, sample_retention_order
from strobe.engine.example_cache import ExampleCache
from strobe.engine.examples import LocalExamples, all_examples, partition_examples
from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.engine.sources.decay import DecaySearch, window_cost
from strobe.engine.sources.prepared import StreamedValidation
from strobe.engine.trace import model_reads
from strobe.engine.windows import Segment, Window
from strobe.errors import FormatError
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Partition
from strobe.schedule.base import Pacer
from strobe.view import Carry, LocalPartition, Owners
from strobe.view.data.permuted import NodeOrder, PermutedSnapshot
from strobe.view.data.truncated import CachedInputs, TruncatedData
from strobe.view.partition.truncated import FinalState, TruncatedPartition, WindowSlice

if TYPE_CHECKING:
    from strobe.engine.context import RunContext

_ORDER = 20
"""What random numbers are for: a stream of its own."""

_CACHE_SHARE = 0.25
"""Of the memory that is free, for aggregates of inputs."""


class SlidingWindowSource(StepSource):
    """One rank's windows, epoch after epoch.

    Every epoch permutes the nodes at random; a step computes the first nodes of a snapshot in that order. States at the
    snapshot where the next epoch will start are saved for it.
    """

    def __init__(self, job: Job, decay: Decay, search: DecaySearchOptions | None = None) -> None:
        self.decay, self.initial_decay, self._search = decay, decay, search
        self._job, graph = job, job.problem.graph
        self._partition = job.partitioned_graph.partition or Partition.by_node(
            1, np.zeros(graph.num_nodes, np.int16), len(graph)
        )
        self._reads = model_reads(job.choice, graph)
        own = self._partition.node_owner == job.comm.rank
        self._own: IntArray = np.flatnonzero(own)
        room = _CACHE_SHARE * free_bytes(job.device) / job.comm.num_ranks
        self._inputs = CachedInputs(graph, own, job.settings.dtype, job.device, room, job.comm.ledger)
        self._states: list[FinalState] | None = None  # by node, ascending
        self._examples = ExampleCache()
        self._empty = self._local_partition(self._times, (), None)  # its exchanges hold the state of all windows
        self.ranks_share_cells = job.partitioned_graph.is_partitioned

    @property
    def steps_per_epoch(self) -> int:
        return len(self._times)

    @property
    def validation_windows(self) -> Iterable[Window]:
        return StreamedValidation(self._job)

    def local_partitions(self) -> list[LocalPartition]:
        return [self._empty]

    def policy(self, run: RunContext) -> EpochPolicy:
        return super().policy(run) if self._search is None else DecaySearch(run, self, self._search)

    def artifacts(self) -> dict[str, Any]:
        return {"window_cost": window_cost(self._job, self)}

    @property
    def num_chunks(self) -> int:
        return 1 if self._partition.node_chunk is None else len(self._partition.chunk_owner)

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        del pacer
        job = self._job
        schedule, seed = job.plan.schedule, job.settings.seed
        with job.comm.ledger.phase("order"):
            order = self.node_order(epoch)
        begins = schedule.time_order(self._times, epoch + 1, seed)[0].start
        states, self._states = self._states, None
        for stretch in schedule.time_order(self._times, epoch, seed):
            ordered: dict[int, PermutedSnapshot] = {}
            start = None if states is None or stretch.start == self._times.start else self._by_slot(states, order)
            for t in stretch:
                ended: list[FinalState] | None = [] if t + 1 == begins else None
                with job.comm.ledger.phase("order"):
                    window = self._window(t, stretch.start, order, ordered, start, ended)
                yield {self._times.index(t): window}
                start = window = None  # type: ignore[assignment]
                if ended is not None:
                    self._states = self._by_node(ended, order)

    def node_order(self, epoch: int) -> NodeOrder:
        """The order of the rank's nodes in an epoch."""
        placed = self._partition
        place: IntArray = np.zeros(len(placed.node_owner), np.int64)
        if placed.node_chunk is not None:
            place = sample_retention_order(placed.chunk_owner, (self._job.settings.seed, _ORDER, epoch))[
                placed.node_chunk
            ]
        return NodeOrder(self._job.comm.rank, placed.node_owner, place)

    def state_dict(self) -> dict[str, Any]:
        """What the next epoch begins with, as plain values and tensors."""
        return {"nodes": torch.from_numpy(self._own), "states": self._states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved states if they are of the same nodes; otherwise the next epoch starts without any."""
        if np.array_equal(state["nodes"].numpy(), self._own):
            states = state["states"]
            self._states = None if states is None else [self._load_states(*each) for each in states]

    def _load_states(self, per_node: bool, value: Any) -> FinalState:
        def checked(state: Tensor) -> Tensor:
            if per_node and (state.dtype != self._job.settings.dtype or len(state) != len(self._own)):
                raise FormatError("the checkpoint's batches are damaged: states are not those of this rank's nodes")
            return state.to(self._job.device)

        return per_node, pytree.tree_map_only(Tensor, checked, value)

    @property
    def _times(self) -> range:
        return self._job.problem.split.train

    def _window(
        self,
        t: int,
        first: int,
        order: NodeOrder,
        ordered: dict[int, PermutedSnapshot],
        start: Carry | None,
        ended: list[FinalState] | None,
    ) -> Window:
        job, times = self._job, self.decay.times(t, first)
        ordered.pop(times.start - 1, None)
        ordered[t] = self._permuted_snapshot(t, order)
        kept = (*self.decay.num_chunks_by_age(self.num_chunks), 0)
        blocks = tuple(WindowSlice(ordered[s], kept[t - s], kept[t - s + 1], self.decay.renormalize) for s in times)
        share = self._local_partition(times, blocks, ended)
        cells = TruncatedData(share, dtype=job.settings.dtype, device=job.device)
        known = None if job.problem.resamples_each_epoch else partial(self._examples_of, t, share)
        return (
            Segment(
                times,
                cells,
                target_times=range(t, t + 1),
                resets_state=t == first,
                initial_state=start,
                examples_fn=known,
            ),
        )

    def _examples_of(self, t: int, share: TruncatedPartition) -> LocalExamples | None:
        """Examples of the newest snapshot: the same in every epoch but for the order of cells."""
        problem, last = self._job.problem, len(share.slices) - 1
        found = self._examples.get(problem, t, lambda: all_examples(problem.examples(t)))
        return (
            None
            if found is None or not len(share.own[last])
            else partition_examples(share, {last: found.examples}, None)
        )

    def _local_partition(
        self, times: range, blocks: tuple[WindowSlice, ...], ended: list[FinalState] | None
    ) -> TruncatedPartition:
        job = self._job
        owners = Owners(job.problem.graph, self._partition, times)
        nowhere = np.empty(0, np.int16)  # sequences are whole: no rank needs to know where states are
        return TruncatedPartition(
            job.comm, job.plan.exchange, owners, nowhere, job.device, slices=blocks, final_states=ended
        )

    def _permuted_snapshot(self, t: int, order: NodeOrder) -> PermutedSnapshot:
        """A snapshot in this epoch's node order, with all inputs that the model reads."""
        job = self._job
        made = PermutedSnapshot(job.problem.graph, t, order, self._inputs, job.settings.dtype, job.device)
        for norm in self._reads.norms:
            made.prepare(norm)
        for key in ((), *self._reads.inputs):
            made.input_rows(key)
        return made

    def _by_node(self, ended: list[FinalState], order: NodeOrder) -> list[FinalState]:
        slots = torch.from_numpy(order.slot[self._own]).to(self._job.device)
        return [_rows(each, slots) for each in ended]

    def _by_slot(self, states: list[FinalState], order: NodeOrder) -> Carry:
        at = torch.from_numpy(np.searchsorted(self._own, order.nodes)).to(self._job.device)
        return [_rows(each, at)[1] for each in states]


def _rows(ended: FinalState, at: Tensor) -> FinalState:
    """A state in another order of nodes, without its history; as it is where it is not one of nodes."""
    per_node, value = ended

    def select(state: Tensor) -> Tensor:
        return state.detach()[at] if per_node else state.detach().clone()

    return per_node, pytree.tree_map_only(Tensor, select, value)
