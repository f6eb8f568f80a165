"""Messages of a relay: states sent to the rank of the next leg, and their gradients sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm import Comm, MessagePipeline
from strobe.comm.rows import anchor
from strobe.ops.time.sequences import Sequences, StateTransfer, StateTransport

KIND = "relay"


@dataclass(frozen=True, eq=False)
class RelayTask:
    """The legs of one pipeline group and wave on this rank, their cells, and the ranks they receive from and send to.

    ``recv_legs`` and ``send_legs`` map a rank to positions among the task's legs, ascending by node. ``key`` numbers
    tasks in the order in which all ranks run them; ``recv_keys`` and ``send_keys`` are those of the tasks on the other
    ranks.
    """

    slot: int
    key: int
    legs: Tensor  # [n]
    cells: Tensor  # [m], rows of the rank's cells
    sequences: Sequences
    recv_legs: dict[int, Tensor]
    send_legs: dict[int, Tensor]
    recv_keys: dict[int, int]
    send_keys: dict[int, int]


class RelayMessages:
    """The messages of one pass through a relayed stage: a pipeline forward, and one backward.

    A message has the key of the task that sends it, which is larger than those of the messages that this task needs; in
    backward the order of tasks is reversed, and keys are negative. States are lists of tensors with one row per leg;
    ``offset`` is the row of the task's first leg in them.
    """

    def __init__(self, comm: Comm, tasks: list[RelayTask], like: Tensor) -> None:
        self.comm, self.tasks, self._like = comm, tasks, like.detach()[:0]
        self.number = comm.ledger.next_stage()
        receives = {
            (task.recv_keys[source], source): len(legs) for task in tasks for source, legs in task.recv_legs.items()
        }
        self._states = comm.open_pipeline(receives, self._like, kind=KIND)
        self._grads: MessagePipeline | None = None

    def begin_backward(self) -> None:
        """Open the pipeline of gradients."""
        receives = {
            (-task.send_keys[dst], dst): len(legs) for task in self.tasks for dst, legs in task.send_legs.items()
        }
        self._grads = self.comm.open_pipeline(receives, self._like, kind=KIND)

    def recv(self, number: int, first: Sequence[Tensor], offset: int = 0) -> None:
        """Wait for the states that task ``number`` receives and write them into its initial states."""
        task = self.tasks[number]
        for source, places in sorted(task.recv_legs.items(), key=lambda item: task.recv_keys[item[0]]):
            rows = self._states.receive(task.recv_keys[source], source)
            _scatter_rows(first, places + offset, rows)

    def send(self, number: int, last: Sequence[Tensor], offset: int = 0) -> None:
        """Send final states of task ``number`` to the ranks of the next legs."""
        task = self.tasks[number]
        rows = {dst: _gather_rows(last, places + offset) for dst, places in task.send_legs.items()}
        self._states.send(task.key, rows)

    def send_grad(self, number: int, d_first: Sequence[Tensor], offset: int = 0) -> None:
        """Send gradients of received initial states to the ranks that own them, and zero them locally."""
        assert self._grads is not None, "gradients are sent in backward"
        task = self.tasks[number]
        rows = {source: _gather_rows(d_first, places + offset) for source, places in task.recv_legs.items()}
        self._grads.send(-task.key, rows)
        for places in task.recv_legs.values():
            for state in d_first:
                state.index_fill_(0, places + offset, 0)

    def recv_grad(self, number: int, d_last: Sequence[Tensor], offset: int = 0) -> None:
        """Wait for the gradients of sent final states and add them to ``d_last``."""
        assert self._grads is not None, "gradients are received in backward"
        task = self.tasks[number]
        for dst, places in sorted(task.send_legs.items(), key=lambda item: -task.send_keys[item[0]]):
            rows = self._grads.receive(-task.send_keys[dst], dst)
            _scatter_rows(d_last, places + offset, rows, add=True)


class RelayTransport(StateTransport):
    """Relays states from inside a fused kernel, one pipeline group after the other."""

    def __init__(self, comm: Comm, tasks: list[RelayTask]) -> None:
        self._comm = comm
        self._tasks = sorted(tasks, key=lambda task: int(task.legs[0]))
        self.cuts = (0, *np.cumsum([len(task.legs) for task in self._tasks]).tolist())
        self.order = tuple(self._tasks.index(task) for task in tasks)

    def start(self, states: Sequence[Tensor]) -> StateTransfer:
        rows = states[0].new_empty(0, sum(state.shape[1] for state in states))
        return _RelayTransfer(RelayMessages(self._comm, self._tasks, rows), self.cuts)


class _RelayTransfer(StateTransfer):
    def __init__(self, messages: RelayMessages, cuts: tuple[int, ...]) -> None:
        self._messages, self._cuts = messages, cuts
        self._began: Any = None

    def recv(self, stage: int, first: Sequence[Tensor]) -> None:
        self._messages.recv(stage, first, self._cuts[stage])
        self._began = self._messages.comm.ledger.now()

    def send(self, stage: int, last: Sequence[Tensor]) -> None:
        self._record_span(stage)
        self._messages.send(stage, last, self._cuts[stage])

    def begin_backward(self) -> None:
        self._messages.begin_backward()

    def recv_grad(self, stage: int, d_last: Sequence[Tensor]) -> None:
        self._messages.recv_grad(stage, d_last, self._cuts[stage])
        self._began = self._messages.comm.ledger.now()

    def send_grad(self, stage: int, d_first: Sequence[Tensor]) -> None:
        self._record_span(stage)
        self._messages.send_grad(stage, d_first, self._cuts[stage])

    def _record_span(self, stage: int) -> None:
        messages = self._messages
        messages.comm.ledger.record_pipeline_span(messages.number, messages.tasks[stage].slot, self._began)


def recv_states(messages: RelayMessages, number: int, first: Tensor) -> Tensor:
    """``messages.recv`` on packed states, differentiable."""
    out: Tensor = _Recv.apply(messages, number, anchor(first), first)  # type: ignore[no-untyped-call]
    return out


def send_states(messages: RelayMessages, number: int, last: Tensor) -> Tensor:
    """``messages.send`` on packed states, differentiable. Returns a token to attach to the loss."""
    token: Tensor = _Send.apply(messages, number, anchor(last), last)  # type: ignore[no-untyped-call]
    return token


def mark_backward(messages: RelayMessages, out: Tensor) -> Tensor:
    """Identity whose backward calls ``messages.begin_backward``."""
    same: Tensor = _BeginBackward.apply(messages, out)  # type: ignore[no-untyped-call]
    return same


class _Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: RelayMessages, number: int, grad_anchor: Tensor, first: Tensor) -> Tensor:
        ctx.messages, ctx.number = messages, number
        out = first.clone()
        messages.recv(number, [out])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        d_first = grads[0].contiguous().clone()
        ctx.messages.send_grad(ctx.number, [d_first])
        return None, None, None, d_first


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: RelayMessages, number: int, grad_anchor: Tensor, last: Tensor) -> Tensor:
        ctx.messages, ctx.number = messages, number
        ctx.save_for_backward(last)
        messages.send(number, [last])
        return last.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        d_last = torch.zeros_like(ctx.saved_tensors[0])
        ctx.messages.recv_grad(ctx.number, [d_last])
        return None, None, None, d_last


class _BeginBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: RelayMessages, out: Tensor) -> Tensor:
        ctx.messages = messages
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.messages.begin_backward()
        return None, grads[0]


def _gather_rows(states: Sequence[Tensor], at: Tensor) -> Tensor:
    rows = [state.index_select(0, at) for state in states]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)


def _scatter_rows(states: Sequence[Tensor], at: Tensor, rows: Tensor, *, add: bool = False) -> None:
    parts = rows.split([state.shape[1] for state in states], 1)
    for state, part in zip(states, parts, strict=True):
        if add:
            state.index_add_(0, at, part)  # every row once: the same bits in any order
        else:
            state.index_copy_(0, at, part)
