"""Rows of a snapshot travel while other snapshots compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.errors import OptionError
from strobe.exchange.base import StructureExchange
from strobe.exchange.delivery import Courier, Delivery
from strobe.exchange.halo import Halo
from strobe.exchange.overlap_order import Extent
from strobe.exchange.overlap_seconds import Seconds
from strobe.strategy import Fact, Need


class _AsInner:
    """Exact is a choice around one that is; the class as such is, around rows that are fresh."""

    def __get__(self, choice: Overlapped | None, kind: type) -> bool:
        return choice is None or choice.inner.exact


@dataclass(frozen=True, kw_only=True)
class Overlapped(StructureExchange):
    """What ``inner`` sends, snapshot by snapshot: while rows of one are on their way, others compute (Huang et
    al. 2026, section 3.4).

    A convolution of a window runs as one coroutine per snapshot, which gives way when its rows have left and goes on
    when those of others are needed. Which goes on is decided in predicted time (``overlap_order``), from lines fitted
    to what ranks have measured (``overlap_seconds``), on all ranks alike. Without ``overlap`` the order is the same and
    every row is waited for as soon as it has left: the same bits.

    Exact if ``inner`` is. Cost: the rows of ``inner``, in a message for each snapshot instead of one for the window; a
    few numbers per window and epoch, on which ranks agree.
    """

    name: ClassVar[str] = "overlapped"
    exact: ClassVar[bool] = _AsInner()  # type: ignore[assignment]
    one_by_one: ClassVar[bool] = True
    inner: StructureExchange = field(default_factory=Halo)
    overlap: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, StructureExchange) or isinstance(self.inner, Overlapped):
            raise OptionError(f"inner of overlapped must be another exchange of the same stage, not {self.inner}")

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.inner.needs

    @property
    def gives(self) -> tuple[Fact, ...]:
        return self.inner.gives

    def keeps(self, hops: int) -> int:
        return self.inner.keeps(hops)

    def check_kept(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        self.inner.check_kept(num_bytes, free_bytes, hops)

    def courier(self, comm: Comm) -> Courier:
        return Overlapping(lambda: self.inner.courier(comm), Seconds.of(comm), overlap=self.overlap)


class Overlapping(Courier):
    """A courier for each snapshot of a window, and one for exchanges that concern all of them at once.

    Each numbers its exchanges by itself, so that it does not matter in which order snapshots come to theirs.
    """

    def __init__(self, make: Callable[[], Courier], seconds: Seconds, *, overlap: bool) -> None:
        self._make, self.seconds, self.overlap = make, seconds, overlap
        self._whole = make()
        self._each: list[Courier] = []
        self._losses: tuple[float | None, float | None] | None = None
        self.extents: list[Extent] | None = None
        """What each snapshot has on a rank in the mean, once ranks have agreed on it."""

    def of_snapshot(self, t: int) -> Courier:
        """Who brings the rows of one snapshot."""
        while len(self._each) <= t:
            self._each.append(self._make())
            if self._losses is not None:
                self._each[-1].epoch_begins(*self._losses)
        return self._each[t]

    def delivery(self, route: Route, x: Tensor, *, kind: str) -> Delivery | None:
        return self._whole.delivery(route, x, kind=kind)

    def pass_begins(self) -> None:
        for courier in self._all:
            courier.pass_begins()

    def epoch_begins(self, first_loss: float | None, last_loss: float | None) -> None:
        self._losses = first_loss, last_loss
        for courier in self._all:
            courier.epoch_begins(first_loss, last_loss)
        self.seconds.epoch_begins()

    def remembered(self) -> list[Any]:
        couriers, seconds = [courier.remembered() for courier in self._all], self.seconds.remembered()
        return [{"couriers": couriers, "seconds": seconds}] if any(couriers) or seconds is not None else []

    def remember(self, found: list[Any]) -> None:
        for each in found:
            whole, *snapshots = each["couriers"]
            self._whole.remember(whole)
            for t, remembered in enumerate(snapshots):
                self.of_snapshot(t).remember(remembered)
            if each["seconds"] is not None:
                self.seconds.remember(each["seconds"])

    @property
    def _all(self) -> list[Courier]:
        return [self._whole, *self._each]
