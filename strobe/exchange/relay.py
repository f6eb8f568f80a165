"""States follow their nodes from rank to rank, group after group, so that all ranks are busy at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from strobe.exchange.base import Columns, TimeEncoder, TimeExchange, Timing, Window, apart, encode, side_by_side
from strobe.exchange.legs import NOBODY, Legs, find_legs
from strobe.exchange.shuffle import Shuffle
from strobe.ops import native
from strobe.ops.csr import IntArray
from strobe.ops.picked import joined, parted
from strobe.ops.sequences import Errand, Hand, Sequences

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

    def fitting(self, encoder: TimeEncoder) -> TimeExchange:
        return self if getattr(encoder, "relays", False) else Shuffle()

    def travels(self, columns: int, out_columns: int, state_columns: int) -> tuple[int, int]:
        del columns, out_columns
        return state_columns, 0

    def start(self, window: Window) -> Timing:
        comm = window.comm
        legs = find_legs(comm.rank, window.nodes, window.owners, window.home, self.groups, comm.num_ranks)
        return Relaying(legs, comm, window.device)


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
        self.route = Route(
            {to: torch.from_numpy(rows).to(device) for to, rows in moves.send.items()},
            {sender: len(rows) for sender, rows in moves.arrive.items()},
        )
        self._arriving = [torch.from_numpy(rows).to(device) for _, rows in sorted(moves.arrive.items())]
        self._local = tuple(torch.from_numpy(rows).to(device) for rows in moves.local)
        self._kept = torch.from_numpy(moves.kept).to(device)
        self._device = device
        self._in_place = self._whole() if self.tasks and legs.in_turn else None

    def _whole(self) -> Sequences:
        """All legs at once, for kernels that hand states over by themselves: groups are then stretches of legs."""
        hand = _Runner(self.comm, self.tasks)
        ptr = np.cumsum([0, *map(len, self.legs.leg_of)])
        return Sequences(tuple(ptr.tolist()), np.concatenate(self.legs.leg_of), len(self.legs.node), self._device, hand)

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        tokens: list[Tensor] = []
        fresh = _fresh(encoder, x, len(self.legs.node), self._device)
        shape = Packing(fresh)
        first = shape.pack(fresh)
        held = first.new_zeros(0, first.shape[1])
        if state is not None:
            held = state["rows"]
            first, token = self._brought(held, first, learns=state["live"].requires_grad)
            tokens.append(token)
        if self._in_place is not None and getattr(encoder, "hands_over", False) and native.usable(*x, first):
            out, final = encode(encoder, x, shape.unpack(first), self._in_place)
            last = shape.pack(final)
        else:
            out, last = self._through(encoder, x, first, shape, tokens)
        assert len(held) == self.legs.moves.num_held
        return out, {"rows": torch.cat([held, last])[self._kept], "live": anchor(first)}, tokens

    def _brought(self, held: Tensor, first: Tensor, *, learns: bool) -> tuple[Tensor, Tensor]:
        """The first states of legs whose nodes were seen in earlier windows, wherever their states were.

        ``learns``: whether gradients go back to earlier windows. All ranks know, from a tensor that is there for
        nothing else: rows of a rank that has none tell nothing.
        """
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            moved, token = exchange(self.comm, self.route, held, kind="carry")
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
            self.comm.ledger.ran_slot(post.number, task.slot, began)
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

    def coming(self, number: int) -> Iterator[tuple[Tensor, Arrival]]:
        """Where states of a task that come from elsewhere belong among its legs, and the states."""
        hears = self.tasks[number].hears
        return ((hears[source], arrival) for source, arrival in self._coming[number].items())

    def coming_back(self, number: int) -> Iterator[tuple[Tensor, Arrival]]:
        """The same of gradients of states that went elsewhere."""
        tells = self.tasks[number].tells
        return ((tells[to], arrival) for to, arrival in self._back[number].items())

    def arrive(self, number: int, first: Tensor) -> Tensor:
        """First states with those that come from elsewhere."""
        out = first.clone()
        for places, arrival in self.coming(number):
            out[places] = arrival.wait()
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
        for places, arrival in self.coming_back(number):
            total[places] = arrival.wait()
        return total

    def _expect(self, rows: dict[int, Tensor], tags: dict[int, int]) -> dict[int, Arrival]:
        return {
            rank: self.comm.receive(rank, self._like, len(places), kind=KIND, tag=tags[rank])
            for rank, places in rows.items()
        }


class _Runner(Hand):
    """Carries states for kernels, group by group."""

    def __init__(self, comm: Comm, tasks: list[Task]) -> None:
        self._comm = comm
        self._tasks = sorted(tasks, key=lambda task: int(task.legs[0]))
        self.cuts = (0, *np.cumsum([len(task.legs) for task in self._tasks]).tolist())
        self.order = tuple(self._tasks.index(task) for task in tasks)

    def send_out(self, states: Sequence[Tensor]) -> Errand:
        rows = states[0].new_empty(0, sum(state.shape[1] for state in states))
        return _Errand(Post(self._comm, self._tasks, rows), self.cuts)


class _Errand(Errand):
    def __init__(self, post: Post, cuts: tuple[int, ...]) -> None:
        self._post, self._cuts, self._began = post, cuts, 0.0

    def take(self, stage: int, first: Sequence[Tensor]) -> None:
        for places, arrival in self._post.coming(stage):
            _put(first, places + self._cuts[stage], arrival.wait())
        self._began = perf_counter()

    def give(self, stage: int, last: Sequence[Tensor]) -> None:
        task = self._post.tasks[stage]
        self._post.comm.ledger.ran_slot(self._post.number, task.slot, self._began)
        for to, places in task.tells.items():
            self._post.comm.send(to, _rows(last, places + self._cuts[stage]), kind=KIND, tag=task.tag)

    def turn(self) -> None:
        self._post.turn()

    def take_back(self, stage: int, d_last: Sequence[Tensor]) -> None:
        for places, arrival in self._post.coming_back(stage):
            _put(d_last, places + self._cuts[stage], arrival.wait(), add=True)
        self._began = perf_counter()

    def give_back(self, stage: int, d_first: Sequence[Tensor]) -> None:
        task = self._post.tasks[stage]
        self._post.comm.ledger.ran_slot(self._post.number, task.slot, self._began)
        for source, places in task.hears.items():
            at = places + self._cuts[stage]
            self._post.comm.send(source, _rows(d_first, at), kind=KIND, tag=task.heard_tags[source])
            for state in d_first:
                state[at] = 0


def _rows(states: Sequence[Tensor], at: Tensor) -> Tensor:
    """Rows of all states, side by side."""
    return torch.cat([state[at] for state in states], 1)


def _put(states: Sequence[Tensor], at: Tensor, rows: Tensor, *, add: bool = False) -> None:
    parts = rows.split([state.shape[1] for state in states], 1)
    for state, part in zip(states, parts, strict=True):
        state[at] = state[at] + part if add else part


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
    """Groups and waves in order of their slots, a group's turn + wave; those without legs here are left out."""
    cells = [len(part) for part in legs.leg_of]
    leg_of = np.concatenate([np.empty(0, np.int64), *legs.leg_of])
    snapshot = np.repeat(np.arange(len(cells)), cells)
    key = (legs.turn[legs.group] + legs.wave) * legs.num_waves + legs.wave
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
        slot=int(legs.turn[group]) + wave,
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
