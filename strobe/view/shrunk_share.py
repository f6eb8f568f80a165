"""A rank's share of a window that keeps only the beginnings of older snapshots."""

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

from strobe.comm.rows import Route
from strobe.exchange import TimeEncoder, Timing
from strobe.exchange.base import Columns, encode
from strobe.exchange.halo import Neighbours
from strobe.exchange.none import Staying
from strobe.ops.csr import IntArray
from strobe.ops.sequences import Leaving, Sequences
from strobe.view.ordered import Ordered, Rows
from strobe.view.share import Homes, Reads, Share

Ended = tuple[bool, Any]
"""What is after a window: whether it has a row for each slot, and what it is."""


class Block(NamedTuple):
    """The first ``kept`` chunks of a snapshot, of which the next step will keep ``stay``. ``evened``: what a cell reads
    weighs as if there never had been more than is kept."""

    ordered: Ordered
    kept: int
    stay: int
    evened: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether every cell is kept."""
        return self.ordered.everyone(self.kept) == self.ordered.snapshot.num_nodes

    @property
    def num_cells(self) -> int:
        """Cells of this rank."""
        return self.ordered.reach(self.kept)

    @property
    def num_arcs(self) -> int:
        return int(self.ordered.arc_ptr[self.num_cells])

    @property
    def leaving(self) -> slice:
        """Rows of the cells that the next step leaves out: it begins after them."""
        return slice(self.ordered.reach(self.stay), self.num_cells)

    @property
    def leaving_slots(self) -> slice:
        order = self.ordered.order
        return slice(order.below(self.stay), order.below(self.kept))


@dataclass(frozen=True, eq=False)
class ShrunkShare(Share):
    """A rank's share of a window of blocks, the oldest first, each nested in the next.

    ``ended`` collects states after the newest snapshot, in the order they are kept, where somebody asks for them.
    """

    blocks: tuple[Block, ...] = ()
    ended: list[Ended] | None = None

    @cached_property
    def own(self) -> list[IntArray]:
        return [block.ordered.own[: block.num_cells] for block in self.blocks]

    @cached_property
    def num_cells(self) -> IntArray:
        return np.array([block.ordered.everyone(block.kept) for block in self.blocks], np.int64)

    def neighbours(self, reads: Reads) -> Neighbours:
        arounds = [block.ordered.around(reads) for block in self.blocks]
        kept = [block.kept for block in self.blocks]
        cells = _offsets(block.num_cells for block in self.blocks)
        columns = _offsets(around.number(each) for around, each in zip(arounds, kept, strict=True))
        send, receive, arrivals = {}, {}, []
        for rank in range(self.comm.num_ranks):
            told = _beginnings([around.told.get(rank) for around in arounds], kept, cells)
            heard = _beginnings([around.heard.get(rank) for around in arounds], kept, columns)
            if len(told):
                send[rank] = torch.from_numpy(told).to(self.device)
            if len(heard):
                receive[rank] = len(heard)
                arrivals.append(heard)
        return Neighbours(Route(send, receive), [], [], self._arranged(arrivals))

    def _arranged(self, arrivals: list[IntArray]) -> Tensor | None:
        """Where each row that is wanted stands among all that arrive; None where they come as they are wanted."""
        if len(arrivals) < 2:
            return None
        places = np.concatenate(arrivals)
        arranged = np.empty_like(places)
        arranged[places] = np.arange(len(places))
        return torch.from_numpy(arranged).to(self.device)

    def timing(self, encoder: TimeEncoder) -> Timing:
        if getattr(encoder, "relays", False):
            return Entering(self)
        if self.ended is not None:
            self.ended.append((False, None))
        return Anew(self._staying.sequences)

    def single(self, t: int, home: Homes) -> Share:
        del home
        owners: Any = self.owners[t : t + 1]
        return replace(self, owners=owners, within=self, blocks=self.blocks[t : t + 1], ended=None)

    @cached_property
    def _staying(self) -> Staying:
        present = [block.ordered.slots[: block.num_cells] for block in self.blocks]
        return Staying(Sequences.of(present, self.num_slots, self.device))

    @cached_property
    def present(self) -> IntArray | None:
        """Slots of the nodes that have a cell in the window, ascending; None where all have."""
        here = np.zeros(self.num_slots, bool)
        for block in self.blocks:
            here[block.ordered.slots[: block.num_cells]] = True
        return None if here.all() else np.flatnonzero(here)

    @property
    def num_slots(self) -> int:
        return self.blocks[0].ordered.order.num_slots

    @cached_property
    def sequences(self) -> Sequences:
        """Those of the nodes that are present, cut where the next step begins."""
        first = _offsets(block.num_cells for block in self.blocks)
        leaving = zip(first, (block.leaving for block in self.blocks), strict=True)
        rows = tuple(slice(start + each.start, start + each.stop) for start, each in leaving)
        cells = [self._among_present(block.ordered.slots[: block.num_cells]) for block in self.blocks]
        slots = tuple(self._among_present(block.ordered.slots[block.leaving]) for block in self.blocks)
        number = self.num_slots if self.present is None else len(self.present)
        return replace(Sequences.of(cells, number, self.device), leaving=Leaving(rows, slots))

    def _among_present(self, slots: IntArray) -> IntArray:
        return slots if self.present is None else np.searchsorted(self.present, slots)

    def after(self, start: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        """With what the next step begins, from what was before this window and what is after each of its snapshots;
        ``per_node`` has a row for each slot."""
        if self.ended is not None:
            self.ended.append((per_node, values[-1] if values else start))
        if not per_node:
            gone = sum(block.stay == 0 for block in self.blocks)
            return values[gone - 1] if gone else start
        if start is None:
            start = pytree.tree_map(torch.zeros_like, values[0])

        def joined(*parts: Tensor) -> Tensor:
            before, *after = parts
            rows = [each[block.leaving_slots] for each, block in zip(after, self.blocks, strict=True)]
            left = self.blocks[0].leaving_slots.start
            return torch.cat([before[:left], *rows])

        return pytree.tree_map(joined, start, *values)


class Entering(Timing):
    """A recurrent stage over blocks: a node begins in the oldest block that has it, with the state that the step
    before had there, whose gradient is cut.

    The state it keeps, a row for each slot, is that of every node after the block in which the next step has it no
    more; rows of nodes that are not in the window stay untouched in their place. Where the last states are wanted, too,
    or kernels do not tell of others, those cells, one for each node, are computed once more.
    """

    def __init__(self, share: ShrunkShare) -> None:
        self._share = share

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        share = self._share
        start = state if state is None or share.present is None else pytree.tree_map(self._picked, state)
        if share.ended is None and getattr(encoder, "hands_over", False):
            out, cut = encode(encoder, x, start, share.sequences)
        else:
            out, last = encode(encoder, x, start, replace(share.sequences, leaving=None))
            cut = self._computed_again(encoder, x, start)
            if share.ended is not None:
                whole = None if state is None else pytree.tree_map(torch.clone, state)
                share.ended.append((True, self._put(whole, last)))
        return out, self._put(state, cut), []

    def _computed_again(self, encoder: TimeEncoder, x: Columns, start: Any | None) -> Any | None:
        leaving, sequences = self._share.sequences.leaving, self._share.sequences
        assert leaving is not None
        slots = np.concatenate(leaving.slots)
        if not len(slots):
            return start
        once = Sequences.of([slots], sequences.num_slots, sequences.device)
        with torch.no_grad():
            cells = tuple(torch.cat([each[rows] for rows in leaving.rows]) for each in x)
            return encode(encoder, cells, start, once)[1]

    def _picked(self, state: Tensor) -> Tensor:
        return state.index_select(0, self._places)

    def _put(self, state: Any | None, rows: Any | None) -> Any | None:
        """The state of all slots with the rows of those that are present, in its own memory."""
        share = self._share
        if share.present is None or rows is None:
            return rows

        def put(old: Tensor | None, new: Tensor) -> Tensor:
            old = new.new_zeros(share.num_slots, *new.shape[1:]) if old is None else old
            return old.index_copy_(0, self._places, new.detach())

        return _both(put, state, rows)

    @cached_property
    def _places(self) -> Tensor:
        assert self._share.present is not None
        return torch.from_numpy(self._share.present).to(self._share.device)


class Anew(Staying):
    """A stage that looks back over cells: it sees those of the window, and keeps nothing."""

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        out, _, tokens = super().run(encoder, x, None)
        return out, None, tokens


def _both(change: Callable[[Tensor | None, Tensor], Tensor], old: Any | None, new: Any) -> Any:
    """A nest changed by another one of the same form, which may not be there yet."""
    if isinstance(new, Tensor):
        return change(old, new)
    olds = [None] * len(new) if old is None else old
    return type(new)(_both(change, *each) for each in zip(olds, new, strict=True))


def _offsets(sizes: Iterable[int]) -> list[int]:
    """Where each of several stretches begins."""
    *starts, _ = accumulate(sizes, initial=0)
    return starts


def _beginnings(rows: Sequence[Rows | None], kept: Sequence[int], offsets: Sequence[int]) -> IntArray:
    """The rows of each block that are wanted, counted over all blocks."""
    found = [
        each.at[: each.number(number)] + offset
        for each, number, offset in zip(rows, kept, offsets, strict=True)
        if each is not None
    ]
    return np.concatenate([np.empty(0, np.int64), *found])
