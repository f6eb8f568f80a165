"""Stale exchanges: send a row again only if it has moved far enough since it was last sent.

`Stale` and `StaleTime` are the strategies; `StaleExchange` keeps the last sent and received rows of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.errors import OptionError
from strobe.exchange.base import PartitionedWindow, StructureExchange, TimeCall, TimeEncoder, TimeExchange, TimeStage
from strobe.exchange.halo import Halo
from strobe.exchange.overlap.strategy import Overlapped
from strobe.exchange.relay.strategy import Relay
from strobe.exchange.transfer import FreshTransfer, RowExchange, RowTransfer
from strobe.ops.runtime.autograd import in_recompute
from strobe.strategy import Fact, Need, Strategy

Adapt = Literal["grow", "shrink"]
_MAX_EXPONENT = 500.0
"""Larger exponents would overflow without changing the result."""


class _ExactAtZeroThreshold:
    """``exact`` depends on the instance: True only for threshold 0, which never suppresses a row."""

    def __get__(self, choice: ThresholdExchange | None, kind: type) -> bool:
        return choice is not None and choice.threshold == 0


@dataclass(frozen=True, kw_only=True)
class ThresholdExchange(Strategy):
    """Send a row again once its distance from the last sent value is at least theta.

    theta is ``threshold`` times D, the largest such distance of this exchange on all ranks: 0 sends every row, above 1
    no row is sent after the first pass. Without a threshold, theta adapts to the loss (Chen et al. 2023, equation 6):
    D / (1 + exp(s (l_1 - l) / |l_1|)) with l_1 the loss of the first epoch and l of the last. ``adapt`` shrink takes
    s = 1, as the equation is printed: theta shrinks from D / 2 while the loss falls. grow takes s = -1: theta grows, as
    the paper's text describes.
    """

    name: ClassVar[str] = "stale"
    exact: ClassVar[bool] = _ExactAtZeroThreshold()  # type: ignore[assignment]
    threshold: float | None = None
    adapt: Adapt = "grow"
    inner: Strategy

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.inner.needs

    @property
    def gives(self) -> tuple[Fact, ...]:
        return tuple(fact for fact in self.inner.gives if fact != "fresh rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and self.threshold < 0:
            raise OptionError(
                f"threshold of {self.name} must be at least 0 (send every row) or none (adapt to the loss), "
                f"not {self.threshold:g}"
            )

    def relative_threshold(self, first_loss: float | None, last_loss: float | None) -> float:
        """theta / D, from the losses of the first and of the last epoch (None before there are any)."""
        if self.threshold is not None:
            return self.threshold
        if not first_loss or last_loss is None:
            return 0.5
        decrease = (first_loss - last_loss) / abs(first_loss)
        exponent = decrease if self.adapt == "shrink" else -decrease
        return 1 / (1 + math.exp(min(max(exponent, -_MAX_EXPONENT), _MAX_EXPONENT)))

    def _check_inner(self, inner: Strategy, stage: type[Strategy]) -> None:
        if not isinstance(inner, stage) or isinstance(inner, ThresholdExchange):
            raise OptionError(f"inner of {self.name} must be another exchange of the same stage, not {inner}")
        if isinstance(inner, Overlapped):
            raise OptionError("stale cannot contain overlapped: use overlapped with inner=stale")


@dataclass(frozen=True, kw_only=True)
class Stale(ThresholdExchange, StructureExchange):
    """Send a neighbor's row again only if it has moved far enough since it was last sent.

    Readers use the row they have, which is less than theta (see ``ThresholdExchange``) away from the current one (Chen
    et al. 2023, section 5.2). A row that was not sent is a constant: it gets no gradient. Exact at threshold 0.
    Evaluation uses ``inner``, and so does the first pass over each window, also in a run that is resumed with another
    number of ranks, other owners or other segments.

    Cost: that of ``inner`` for the rows sent, one bit per suppressible row, and one scalar all-reduce per exchange.
    Memory: every row once per reader at its owner, and once at each reader.
    """

    inner: StructureExchange = field(default_factory=Halo)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_inner(self.inner, StructureExchange)

    def make_row_exchange(self, comm: Comm) -> RowExchange:
        return StaleExchange(comm, self.inner.make_row_exchange(comm), self.relative_threshold)


@dataclass(frozen=True, kw_only=True)
class StaleTime(ThresholdExchange, TimeExchange):
    """Send a shuffled row again only if it has moved far enough, to the sequence's owner and back.

    Relayed states are always fresh: one row per cut temporal edge, each computed from the one before. With ``inner``
    relay, recurrent encoders are relayed and exact; the others, which relay shuffles, are stale.
    """

    inner: TimeExchange = field(default_factory=Relay)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_inner(self.inner, TimeExchange)

    def for_encoder(self, encoder: TimeEncoder | TimeCall) -> TimeExchange:
        return self.inner.for_encoder(encoder)

    def start(self, window: PartitionedWindow) -> TimeStage:
        return self.inner.start(window)  # it sends through window.time_row_exchange, which this strategy made

    def make_row_exchange(self, comm: Comm) -> RowExchange:
        return StaleExchange(comm, self.inner.make_row_exchange(comm), self.relative_threshold)


KIND = "masks"

RelativeThreshold = Callable[[float | None, float | None], float]
"""theta / D, from the losses of the first and last epoch."""


@dataclass(eq=False)
class LastSentRows:
    """Last values of one exchange's rows: ``sent`` [S, F] by receiver and ``received`` [R, F] by sender.

    ``last_route`` is what the last training pass sent, and ``places`` where its rows are in ``received``; both are
    empty after a resume.
    """

    sent: Tensor
    received: Tensor
    last_route: Route
    places: Tensor

    def matches(self, rows: Tensor, num_received: int) -> bool:
        """Whether this is a memory of an exchange that sends ``rows`` and receives ``num_received`` rows."""
        same_kind = self.sent.dtype == rows.dtype == self.received.dtype
        return same_kind and self.sent.shape == rows.shape and self.received.shape == (num_received, *rows.shape[1:])


class StaleExchange(RowExchange):
    """Sends the rows that have moved far enough, and bit masks that say which.

    Only training is stale: without gradients ``inner`` transfers. Recomputation in backward sends nothing: received
    rows are still there, and gradients take the route of the first computation.
    """

    def __init__(self, comm: Comm, inner: RowExchange, relative_threshold: RelativeThreshold) -> None:
        self._comm, self._inner = comm, inner
        self._relative_threshold, self._threshold = relative_threshold, relative_threshold(None, None)
        self._last_rows: list[LastSentRows] = []
        self._next = 0

    def begin_pass(self) -> None:
        self._next = 0
        self._inner.begin_pass()

    def begin_epoch(self, first_loss: float | None, last_loss: float | None) -> None:
        self._inner.begin_epoch(first_loss, last_loss)
        self._threshold = self._relative_threshold(first_loss, last_loss)

    def state_dict(self) -> list[Any]:
        return [{"sent": rows.sent, "received": rows.received} for rows in self._last_rows]

    def load_state_dict(self, state: list[Any]) -> None:
        no_route = Route({}, {}), torch.empty(0, dtype=torch.int64)
        self._last_rows = [LastSentRows(each["sent"], each["received"], *no_route) for each in state]

    def start_transfer(self, route: Route, x: Tensor, *, kind: str) -> RowTransfer | None:
        if not torch.is_grad_enabled():
            return self._inner.start_transfer(route, x, kind=kind)
        number, self._next = self._next, self._next + 1
        recompute = in_recompute()
        if not recompute:
            before = self._last_rows[number] if number < len(self._last_rows) else None
            self._last_rows[number : number + 1] = [self._select_rows(route, x.detach(), before)]
        if route.is_empty:
            return None
        return StaleTransfer(self._comm, route, kind, self._last_rows[number], recompute=recompute)

    def _select_rows(self, route: Route, x: Tensor, before: LastSentRows | None) -> LastSentRows:
        """Choose the rows to send now. If any rank has no matching memory, all ranks send all rows."""
        rows = x.index_select(0, _concat_indices(route.send.values(), x.device))
        moved = None
        if before is not None and before.matches(rows, route.rows_received):
            before.sent, before.received = before.sent.to(x.device), before.received.to(x.device)
            moved = torch.linalg.vector_norm((rows - before.sent).flatten(1), dim=1)
        furthest = self._max_distance(moved)
        if moved is None or before is None or furthest == math.inf:
            received = x.new_empty(route.rows_received, *x.shape[1:])
            return LastSentRows(rows, received, route, torch.arange(route.rows_received, device=x.device))
        mask = ~(moved < self._threshold * furthest)
        sent = torch.where(mask.view(-1, *[1] * (rows.dim() - 1)), rows, before.sent)
        send_masks = dict(zip(route.send, mask.split([len(each) for each in route.send.values()]), strict=True))
        recv_masks = self._exchange_masks(route, send_masks, x.device)
        send = {dst: each[send_masks[dst]] for dst, each in route.send.items()}
        last_route = Route(send, {source: int(each.sum()) for source, each in recv_masks.items()})
        places = torch.nonzero(_concat_indices(recv_masks.values(), x.device))[:, 0]
        return LastSentRows(sent, before.received, last_route, places)

    def _max_distance(self, moved: Tensor | None) -> float:
        """The largest distance on all ranks; infinite if a rank has no memory or a distance is not finite."""
        largest = math.inf
        if moved is not None:
            largest = float(moved.max()) if len(moved) else 0.0
        (furthest,) = self._comm.all_reduce_max([largest if math.isfinite(largest) else math.inf], kind="scalars")
        return furthest

    def _exchange_masks(self, route: Route, masks: dict[int, Tensor], device: torch.device) -> dict[int, Tensor]:
        """Send each receiver a bit per row of the route: whether it is sent. Returns received masks, by sender."""
        sends = {dst: _pack_bits(mask) for dst, mask in masks.items() if len(mask)}
        counts = {source: -(-rows // 8) for source, rows in route.receive.items()}
        received = self._comm.all_to_all_rows(
            sends, counts, torch.empty(0, dtype=torch.uint8, device=device), kind=KIND
        )
        senders = [(source, rows) for source, rows in sorted(route.receive.items()) if rows]
        return {source: _unpack_bits(bits, rows) for (source, rows), bits in zip(senders, received, strict=True)}


class StaleTransfer(RowTransfer):
    """Sends the selected rows of a route and fills the others in from memory."""

    def __init__(self, comm: Comm, route: Route, kind: str, last_rows: LastSentRows, *, recompute: bool) -> None:
        self._route, self._last_rows, self._recompute = route, last_rows, recompute
        self._transfer = FreshTransfer(comm, last_rows.last_route, kind)

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        memory = self._last_rows
        self._count_suppressed(self._route.rows_sent - (0 if self._recompute else memory.last_route.rows_sent), x)
        if self._recompute:
            return lambda: memory.received.detach()
        wait_new_rows = self._transfer.send(x)

        def wait_rows() -> Tensor:
            memory.received = memory.received.index_copy(0, memory.places, wait_new_rows())
            return memory.received.detach()  # a new tensor object: autograd modifies the one it is given

        return wait_rows

    def send_grad(self, gradient: Tensor) -> Callable[[Tensor], None]:
        self._count_suppressed(len(gradient) - len(self._last_rows.places), gradient)
        return self._transfer.send_grad(gradient.index_select(0, self._last_rows.places))

    def _count_suppressed(self, rows: int, like: Tensor) -> None:
        if rows:
            num_bytes = rows * like.shape[1:].numel() * like.element_size()
            self._transfer.comm.ledger.count_suppressed(self._transfer.kind, num_bytes, rows)


def _concat_indices(parts: Iterable[Tensor], device: torch.device) -> Tensor:
    return torch.cat([torch.empty(0, dtype=torch.int64, device=device), *parts])


def _pack_bits(mask: Tensor) -> Tensor:
    """Eight bits per byte."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy())).to(mask.device)


def _unpack_bits(bits: Tensor, number: int) -> Tensor:
    mask = np.unpackbits(bits.cpu().numpy(), count=number).astype(bool)
    return torch.from_numpy(mask).to(bits.device)
