"""States follow their nodes from rank to rank, group after group, so that all ranks are busy at once."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from strobe.comm import Arrival, Comm
from strobe.comm.rows import Route, anchor, exchange
from strobe.errors import OptionError
from strobe.exchange.base import Columns, TimeEncoder, TimeExchange, Timing, apart, encode, side_by_side
from strobe.exchange.legs import NOBODY, Legs
from strobe.ops.csr import IntArray
from strobe.ops.picked import joined, parted
from strobe.ops.sequences import Sequences

KIND = "relay"


@dataclass(frozen=True, kw_only=True)
class Relay(TimeExchange):
    """Where a sequence changes ranks its state goes to the next one, and its gradient comes back. Exact.

    Cost: one row per cut temporal edge. Nodes are cut into ``groups`` that follow each other through the ranks, so
    that all ranks are busy: with W ranks in a row, G / (G + W - 1) of the time. Encoders whose state is not one row
    per node (attention, linear maps of the past) are shuffled instead.
    """

    name: ClassVar[str] = "relay"
    groups: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1:
            raise OptionError(f"nodes are cut into at least 1 group, not {self.groups}")


@dataclass(frozen=True, eq=False)
class Task:
    """The legs of one group and wave on this rank, their cells, and whom they hear from and tell.

    ``hears`` and ``tells`` list places among the task's legs, ascending by node, by rank.
    """

    slot: int
    tag: int
    legs: Tensor  # [n]
    cells: Tensor  # [m], rows of the rank's cells
    sequences: Sequences
    hears: dict[int, Tensor]
    tells: dict[int, Tensor]
    heard_tags: dict[int, int]


class Relaying(Timing):
    """A recurrent stage over legs. State: of every node whose home this rank is, packed into rows."""

    def __init__(self, legs: Legs, comm: Comm, device: torch.device) -> None:
        self.comm = comm
        self.legs = legs
        self.tasks = _tasks(legs, device)
        moves = legs.moves
        self._route = Route(
            {to: torch.from_numpy(rows).to(device) for to, rows in moves.send.items()},
            {sender: len(rows) for sender, rows in moves.arrive.items()},
        )
        self._arriving = [torch.from_numpy(rows).to(device) for _, rows in sorted(moves.arrive.items())]
        self._local = tuple(torch.from_numpy(rows).to(device) for rows in moves.local)
        self._kept = torch.from_numpy(moves.kept).to(device)
        self._device = device

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        tokens: list[Tensor] = []
        fresh = _fresh(encoder, x, len(self.legs.node), self._device)
        shape = Packing(fresh)
        first = shape.pack(fresh)
        held = first.new_zeros(0, first.shape[1])
        if state is not None:
            held = state["rows"]
            first, token = self._brought(held, first)
            tokens.append(token)
        out, last = self._through(encoder, x, first, shape, tokens)
        assert len(held) == self.legs.moves.num_held
        return out, {"rows": torch.cat([held, last])[self._kept]}, tokens

    def _brought(self, held: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """The first states of legs whose nodes were seen in earlier windows, wherever their states were."""
        moved, token = exchange(self.comm, self._route, held, kind="carry")
        from_here, to_here = self._local
        first = first.index_copy(0, to_here, held[from_here])
        if self._arriving:
            first = first.index_copy(0, torch.cat(self._arriving), moved)
        return first, token

    def _through(
        self, encoder: TimeEncoder, x: Columns, first: Tensor, shape: Packing, tokens: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """All tasks in order of their slots: outputs of all cells and last states of all legs."""
        post = Post(self.comm, self.tasks, first)
        parts = parted(side_by_side(x), [task.cells for task in self.tasks])
        starts = parted(first, [task.legs for task in self.tasks])
        outs, lasts = [], []
        for number, (task, rows, begin) in enumerate(zip(self.tasks, parts, starts, strict=True)):
            if task.hears:
                begin = _Arrive.apply(post, number, anchor(begin), begin)  # type: ignore[no-untyped-call]
            began = perf_counter()
            out, final = encode(encoder, apart(rows, x), shape.unpack(begin), task.sequences)
            last = shape.pack(final)
            self.comm.ledger.slots.append((post.number, task.slot, began, perf_counter()))
            if task.tells:
                tokens.append(_Leave.apply(post, number, anchor(last), last))  # type: ignore[no-untyped-call]
            outs.append(out)
            lasts.append(last)
        if not self.tasks:
            out, _ = encode(encoder, x, shape.unpack(first), _empty(0, self._device, len(self.legs.leg_of)))
            return out, first
        out = joined(outs, [task.cells for task in self.tasks])
        last = joined(lasts, [task.legs for task in self.tasks])
        return _Turn.apply(post, out), last  # type: ignore[no-untyped-call]


class Post:
    """The messages of one pass through a stage: all that will come is expected before the first task begins."""

    def __init__(self, comm: Comm, tasks: list[Task], like: Tensor) -> None:
        self.comm, self.tasks, self._like = comm, tasks, like.detach()[:0]
        self.number = comm.ledger.next_stage()
        self._coming = [self._expect(task.hears, task.heard_tags) for task in tasks]
        self._back: list[dict[int, Arrival]] = []

    def turn(self) -> None:
        """The way back begins: gradients are expected."""
        self._back = [self._expect(task.tells, dict.fromkeys(task.tells, task.tag)) for task in self.tasks]

    def arrive(self, number: int, first: Tensor) -> Tensor:
        """First states with those that come from elsewhere."""
        out = first.clone()
        for source, arrival in self._coming[number].items():
            out[self.tasks[number].hears[source]] = arrival.wait()
        return out

    def leave(self, number: int, last: Tensor) -> None:
        task = self.tasks[number]
        for to, places in task.tells.items():
            self.comm.send(to, last[places], kind=KIND, tag=task.tag)

    def send_back(self, number: int, gradient: Tensor) -> Tensor:
        """Gradients of states that came from elsewhere go there; they are nobody's here."""
        task = self.tasks[number]
        rest = gradient.clone()
        for source, places in task.hears.items():
            self.comm.send(source, gradient[places], kind=KIND, tag=task.heard_tags[source])
            rest[places] = 0
        return rest

    def come_back(self, number: int, like: Tensor) -> Tensor:
        total = torch.zeros_like(like)
        for to, arrival in self._back[number].items():
            total[self.tasks[number].tells[to]] = arrival.wait()
        return total

    def _expect(self, rows: dict[int, Tensor], tags: dict[int, int]) -> dict[int, Arrival]:
        return {
            rank: self.comm.receive(rank, self._like, len(places), kind=KIND, tag=tags[rank])
            for rank, places in rows.items()
        }


class _Arrive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, post: Post, number: int, here: Tensor, first: Tensor) -> Tensor:
        ctx.post, ctx.number = post, number
        return post.arrive(number, first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, None, ctx.post.send_back(ctx.number, grads[0].contiguous())


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, post: Post, number: int, here: Tensor, last: Tensor) -> Tensor:
        ctx.post, ctx.number = post, number
        ctx.save_for_backward(last)
        post.leave(number, last)
        return last.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (last,) = ctx.saved_tensors
        return None, None, None, ctx.post.come_back(ctx.number, last)


class _Turn(torch.autograd.Function):
    """Nothing but the place where the way back begins."""

    @staticmethod
    def forward(ctx: Any, post: Post, out: Tensor) -> Tensor:
        ctx.post = post
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.post.turn()
        return None, grads[0]


class Packing:
    """A nest of states with a row per slot, as one matrix and back."""

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


def _fresh(encoder: TimeEncoder, x: Columns, num_slots: int, device: torch.device) -> Any:
    """The states an encoder begins with: what it gives back when there is nothing to read."""
    return encode(encoder, tuple(each[:0] for each in x), None, _empty(num_slots, device))[1]


def _empty(num_slots: int, device: torch.device, num_snapshots: int = 0) -> Sequences:
    return Sequences((0,) * (num_snapshots + 1), np.empty(0, np.int64), num_slots, device)


def _tasks(legs: Legs, device: torch.device) -> list[Task]:
    """Groups and waves in order of their slots, group + wave; those without legs here are left out."""
    cells = [len(part) for part in legs.leg_of]
    leg_of = np.concatenate([np.empty(0, np.int64), *legs.leg_of])
    snapshot = np.repeat(np.arange(len(cells)), cells)
    key = (legs.group + legs.wave) * legs.num_waves + legs.wave
    order = np.argsort(key[leg_of], kind="stable")
    found = []
    for value in np.unique(key):
        chosen = np.flatnonzero(key == value)
        first, end = np.searchsorted(key[leg_of[order]], [value, value + 1])
        found.append(_task(legs, chosen, np.sort(order[first:end]), leg_of, snapshot, device))
    return found


def _task(
    legs: Legs, chosen: IntArray, cells: IntArray, leg_of: IntArray, snapshot: IntArray, device: torch.device
) -> Task:
    group, wave = int(legs.group[chosen[0]]), int(legs.wave[chosen[0]])
    slots = np.searchsorted(chosen, leg_of[cells])
    ptr = np.searchsorted(snapshot[cells], np.arange(len(legs.leg_of) + 1))
    return Task(
        slot=group + wave,
        tag=group * legs.num_waves + wave,
        legs=torch.from_numpy(chosen).to(device),
        cells=torch.from_numpy(cells).to(device),
        sequences=Sequences(tuple(ptr.tolist()), slots, len(chosen), device),
        hears=_by_rank(legs.source[chosen], device),
        tells=_by_rank(legs.target[chosen], device),
        heard_tags={
            int(source): group * legs.num_waves + int(legs.source_wave[leg])
            for source, leg in zip(*np.unique(legs.source[chosen], return_index=True), strict=True)
            for leg in [chosen[leg]]
            if source != NOBODY
        },
    )


def _by_rank(ranks: IntArray, device: torch.device) -> dict[int, Tensor]:
    return {
        int(rank): torch.from_numpy(np.flatnonzero(ranks == rank)).to(device)
        for rank in np.unique(ranks)
        if rank != NOBODY
    }
