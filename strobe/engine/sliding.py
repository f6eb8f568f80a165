"""Windows that slide over the training snapshots: made when a step comes to them, let go of when it has passed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strobe.batching.decay import Decay, survival
from strobe.engine.asked import Asked, shared, whole
from strobe.engine.kept import KeptExamples
from strobe.engine.machine import free_bytes
from strobe.engine.passes import mapped
from strobe.engine.trace import reading
from strobe.engine.windows import Segment, Window
from strobe.errors import FormatError
from strobe.ops.csr import IntArray
from strobe.placement import Placed
from strobe.view import Carry, Owners
from strobe.view.inputs import OwnInputs
from strobe.view.ordered import Order, Ordered
from strobe.view.shrunk import ShrunkCells
from strobe.view.shrunk_share import Block, Ended, ShrunkShare

if TYPE_CHECKING:
    from strobe.engine.job import Job

_ORDER = 20
"""What random numbers are for: a stream of its own."""

_ROOM = 0.25
"""Of the memory that is free, for aggregates of inputs."""


class Sliding:
    """One rank's windows, epoch after epoch.

    In every epoch nodes get an order by lot, in which whatever a step keeps of a snapshot is its beginning. States at
    the point where the next epoch will begin are kept for it.
    """

    def __init__(self, job: Job) -> None:
        decay = job.plan.batching.decay
        assert decay is not None
        self.decay: Decay = decay
        self._job, graph = job, job.problem.graph
        self._placed = job.sharing.placed or Placed.by_node(1, np.zeros(graph.num_nodes, np.int16), len(graph))
        self._reads = reading(job.choice, graph)
        own = self._placed.of_node == job.comm.rank
        self._own: IntArray = np.flatnonzero(own)
        room = _ROOM * free_bytes(job.device) / job.comm.num_ranks
        self._inputs = OwnInputs(graph, own, job.settings.dtype, job.device, room, job.comm.ledger)
        self._states: list[Ended] | None = None  # by node, ascending
        self._examples = KeptExamples()
        self.share = self._share(self._times, (), None)
        """Of no cells at all: whose exchanges remember what outlives a window."""

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return len(self._times)

    @property
    def num_chunks(self) -> int:
        return 1 if self._placed.chunk_of_node is None else len(self._placed.rank_of_chunk)

    def steps(self, epoch: int) -> Iterator[dict[int, Window]]:
        """The window of each step of an epoch, with the number of its batch. The step must be over when the next one
        is asked for."""
        job = self._job
        schedule, seed = job.plan.schedule, job.settings.seed
        with job.comm.ledger.phase("order"):
            order = self.order(epoch)
        begins = schedule.stretches(self._times, epoch + 1, seed)[0].start
        states, self._states = self._states, None
        for stretch in schedule.stretches(self._times, epoch, seed):
            ordered: dict[int, Ordered] = {}
            start = None if states is None or stretch.start == self._times.start else self._by_slot(states, order)
            for t in stretch:
                ended: list[Ended] | None = [] if t + 1 == begins else None
                with job.comm.ledger.phase("order"):
                    window = self._window(t, stretch.start, order, ordered, start, ended)
                yield {self._times.index(t): window}
                start = window = None  # type: ignore[assignment]
                if ended is not None:
                    self._states = self._by_node(ended, order)

    def order(self, epoch: int) -> Order:
        """The order of the rank's nodes in an epoch."""
        placed = self._placed
        place: IntArray = np.zeros(len(placed.of_node), np.int64)
        if placed.chunk_of_node is not None:
            place = survival(placed.rank_of_chunk, (self._job.settings.seed, _ORDER, epoch))[placed.chunk_of_node]
        return Order(self._job.comm.rank, placed.of_node, place)

    def remembered(self) -> dict[str, Any]:
        """What the next epoch begins with, as plain values and tensors."""
        return {"nodes": torch.from_numpy(self._own), "states": self._states}

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what was remembered, if it is of the same nodes; else the next epoch begins without."""
        if np.array_equal(found["nodes"].numpy(), self._own):
            states = found["states"]
            self._states = None if states is None else [self._restored(*each) for each in states]

    def _restored(self, per_node: bool, value: Any) -> Ended:
        def checked(state: Tensor) -> Tensor:
            if per_node and (state.dtype != self._job.settings.dtype or len(state) != len(self._own)):
                raise FormatError("the checkpoint's batches are damaged: states are not those of this rank's nodes")
            return state.to(self._job.device)

        return per_node, mapped(value, checked)

    def start(self) -> None:
        """Nothing runs beside training."""

    def close(self) -> None:
        """Nothing runs beside training."""

    @property
    def _times(self) -> range:
        return self._job.problem.split.train

    def _window(
        self,
        t: int,
        first: int,
        order: Order,
        ordered: dict[int, Ordered],
        start: Carry | None,
        ended: list[Ended] | None,
    ) -> Window:
        job, times = self._job, self.decay.times(t, first)
        ordered.pop(times.start - 1, None)
        ordered[t] = self._ordered(t, order)
        kept = (*self.decay.kept(self.num_chunks), 0)
        blocks = tuple(Block(ordered[s], kept[t - s], kept[t - s + 1], self.decay.evened) for s in times)
        share = self._share(times, blocks, ended)
        cells = ShrunkCells(share, dtype=job.settings.dtype, device=job.device)
        known = None if job.problem.changes_with_epoch else partial(self._asked, t, share)
        return (Segment(times, cells, asked=range(t, t + 1), fresh=t == first, start=start, question=known),)

    def _asked(self, t: int, share: ShrunkShare) -> Asked | None:
        """What is asked of the newest snapshot, which is the same in every epoch but for the order of cells."""
        problem, last = self._job.problem, len(share.blocks) - 1
        found = self._examples.get(problem, t, lambda: whole(problem.examples(t)))
        return None if found is None or not len(share.own[last]) else shared(share, {last: found.examples}, None)

    def _share(self, times: range, blocks: tuple[Block, ...], ended: list[Ended] | None) -> ShrunkShare:
        job = self._job
        owners = Owners(job.problem.graph, self._placed, times)
        nowhere = np.empty(0, np.int16)  # sequences are whole: nobody asks where states are
        return ShrunkShare(job.comm, job.plan.exchange, owners, nowhere, job.device, blocks=blocks, ended=ended)

    def _ordered(self, t: int, order: Order) -> Ordered:
        """A snapshot in this epoch's order, with all that the model will ask of it."""
        job = self._job
        made = Ordered(job.problem.graph, t, order, self._inputs, job.settings.dtype, job.device)
        for norm in self._reads.norms:
            made.ready(norm)
        for key in ((), *self._reads.inputs):
            made.given(key)
        return made

    def _by_node(self, ended: list[Ended], order: Order) -> list[Ended]:
        slots = torch.from_numpy(order.slot[self._own]).to(self._job.device)
        return [_rows(each, slots) for each in ended]

    def _by_slot(self, states: list[Ended], order: Order) -> Carry:
        at = torch.from_numpy(np.searchsorted(self._own, order.nodes)).to(self._job.device)
        return [_rows(each, at)[1] for each in states]


def _rows(ended: Ended, at: Tensor) -> Ended:
    """A state in another order of nodes, without its history; as it is where it is not one of nodes."""
    per_node, value = ended
    return per_node, mapped(value, lambda each: each.detach()[at] if per_node else each.detach().clone())
