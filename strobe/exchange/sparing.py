"""The courier that leaves rows behind which have hardly moved, and what it must remember for that.

Sender and receiver remember the same rows: what was last sent, not what there was in the last pass, so that many small
moves become a large one and nothing drifts away. Each exchange of a pass (a layer, say) has a memory of its own,
matched by their order, which is the same in every pass over a window and on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.exchange.delivery import Courier, Delivery, FreshRows
from strobe.ops.again import computing_again

KIND = "marks"

PartOfFurthest = Callable[[float | None, float | None], float]
"""How far a row must have moved to be sent, as a part of the furthest, from the losses of the first and last epoch."""


@dataclass(eq=False)
class Memory:
    """Rows of one exchange as they last travelled: those ``told`` [S, F], receiver by receiver, and those ``heard``
    [R, F], sender by sender. ``travelled`` in the last training pass were those of a route, to these ``places`` of
    what is heard; of a memory from another process nobody asks."""

    told: Tensor
    heard: Tensor
    travelled: Route
    places: Tensor

    def fits(self, rows: Tensor, num_heard: int) -> bool:
        """Whether it can be of an exchange in which these rows may be sent and so many come."""
        same_kind = self.told.dtype == rows.dtype == self.heard.dtype
        return same_kind and self.told.shape == rows.shape and self.heard.shape == (num_heard, *rows.shape[1:])


class Sparing(Courier):
    """Sends the rows that have moved far enough, and marks to say which those are.

    Only training is stale: without gradients ``fresh`` delivers. Where a segment is computed again in backward nothing
    travels: what was read is still here, and backward takes the way that rows took the first time.
    """

    def __init__(self, comm: Comm, fresh: Courier, part_of_furthest: PartOfFurthest) -> None:
        self._comm, self._fresh = comm, fresh
        self._part_of_furthest, self._part = part_of_furthest, part_of_furthest(None, None)
        self._memories: list[Memory] = []
        self._next = 0

    def pass_begins(self) -> None:
        self._next = 0
        self._fresh.pass_begins()

    def epoch_begins(self, first_loss: float | None, last_loss: float | None) -> None:
        self._fresh.epoch_begins(first_loss, last_loss)
        self._part = self._part_of_furthest(first_loss, last_loss)

    def remembered(self) -> list[Any]:
        return [{"told": memory.told, "heard": memory.heard} for memory in self._memories]

    def remember(self, found: list[Any]) -> None:
        nothing = Route({}, {}), torch.empty(0, dtype=torch.int64)
        self._memories = [Memory(each["told"], each["heard"], *nothing) for each in found]

    def delivery(self, route: Route, x: Tensor, *, kind: str) -> Delivery | None:
        if not torch.is_grad_enabled():
            return self._fresh.delivery(route, x, kind=kind)
        number, self._next = self._next, self._next + 1
        again = computing_again()
        if not again:
            before = self._memories[number] if number < len(self._memories) else None
            self._memories[number : number + 1] = [self._decide(route, x.detach(), before)]
        if route.silent:
            return None
        return SparedRows(self._comm, route, kind, self._memories[number], again=again)

    def _decide(self, route: Route, x: Tensor, before: Memory | None) -> Memory:
        """Which rows travel now. Where a rank remembers nothing, or something else, all ranks send everything."""
        rows = x.index_select(0, _joined(route.send.values(), x.device))
        moved = None
        if before is not None and before.fits(rows, route.rows_received):
            before.told, before.heard = before.told.to(x.device), before.heard.to(x.device)
            moved = torch.linalg.vector_norm((rows - before.told).flatten(1), dim=1)
        furthest = self._furthest(moved)
        if moved is None or before is None or furthest == math.inf:
            heard = x.new_empty(route.rows_received, *x.shape[1:])
            return Memory(rows, heard, route, torch.arange(route.rows_received, device=x.device))
        goes = ~(moved < self._part * furthest)
        told = torch.where(goes.view(-1, *[1] * (rows.dim() - 1)), rows, before.told)
        leave = dict(zip(route.send, goes.split([len(each) for each in route.send.values()]), strict=True))
        come = self._told_marks(route, leave, x.device)
        send = {to: each[leave[to]] for to, each in route.send.items()}
        travelled = Route(send, {source: int(marks.sum()) for source, marks in come.items()})
        return Memory(told, before.heard, travelled, torch.nonzero(_joined(come.values(), x.device))[:, 0])

    def _furthest(self, moved: Tensor | None) -> float:
        """The largest distance on all ranks; infinite where one has no distances, or none that are numbers."""
        mine = math.inf
        if moved is not None:
            mine = float(moved.max()) if len(moved) else 0.0
        (furthest,) = self._comm.largest([mine if math.isfinite(mine) else math.inf], kind="agree")
        return furthest

    def _told_marks(self, route: Route, leave: dict[int, Tensor], device: torch.device) -> dict[int, Tensor]:
        """Tells whom which of the rows it may expect will come, a bit each; what others tell, by sender."""
        sends = {to: _packed(marks) for to, marks in leave.items() if len(marks)}
        counts = {source: -(-rows // 8) for source, rows in route.receive.items()}
        told = self._comm.swap(sends, counts, torch.empty(0, dtype=torch.uint8, device=device), kind=KIND)
        senders = [(source, rows) for source, rows in sorted(route.receive.items()) if rows]
        return {source: _unpacked(bits, rows) for (source, rows), bits in zip(senders, told, strict=True)}


class SparedRows(Delivery):
    """The rows of a route that travel, among those of others that are remembered."""

    def __init__(self, comm: Comm, route: Route, kind: str, memory: Memory, *, again: bool) -> None:
        self._route, self._memory, self._again = route, memory, again
        self._travel = FreshRows(comm, memory.travelled, kind)

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        memory, travelled = self._memory, self._memory.travelled
        self._count(self._route.rows_sent - (0 if self._again else travelled.rows_sent), x)
        if self._again:
            return lambda: memory.heard.detach()
        arrived = self._travel.send(x)

        def heard() -> Tensor:
            memory.heard = memory.heard.index_copy(0, memory.places, arrived())
            return memory.heard.detach()  # a tensor of its own: autograd writes on what a pass is given

        return heard

    def send_back(self, gradient: Tensor) -> Callable[[Tensor], None]:
        self._count(len(gradient) - len(self._memory.places), gradient)
        return self._travel.send_back(gradient.index_select(0, self._memory.places))

    def _count(self, rows: int, like: Tensor) -> None:
        if rows:
            num_bytes = rows * like.shape[1:].numel() * like.element_size()
            self._travel.comm.ledger.count_spared(self._travel.kind, num_bytes, rows)


def _joined(parts: Iterable[Tensor], device: torch.device) -> Tensor:
    return torch.cat([torch.empty(0, dtype=torch.int64, device=device), *parts])


def _packed(marks: Tensor) -> Tensor:
    """Eight marks a byte."""
    return torch.from_numpy(np.packbits(marks.cpu().numpy())).to(marks.device)


def _unpacked(bits: Tensor, number: int) -> Tensor:
    marks = np.unpackbits(bits.cpu().numpy(), count=number).astype(bool)
    return torch.from_numpy(marks).to(bits.device)
