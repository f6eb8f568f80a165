"""Structure exchange that sends the rows of one snapshot while other snapshots compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.errors import OptionError
from strobe.exchange.base import StructureExchange
from strobe.exchange.halo import Halo
from strobe.exchange.overlap.timing import SnapshotSize, Timetable, TimingModel
from strobe.exchange.overlap.transfer import AsyncTransfer, SnapshotStages
from strobe.exchange.transfer import RowExchange, RowTransfer
from strobe.strategy import Fact, Need


class _ExactIfInner:
    """``exact`` depends on the instance: that of ``inner``. The class itself counts as exact."""

    def __get__(self, choice: Overlapped | None, kind: type) -> bool:
        return choice is None or choice.inner.exact


@dataclass(frozen=True, kw_only=True)
class Overlapped(StructureExchange):
    """Send the rows of ``inner`` per snapshot, and compute other snapshots meanwhile (Huang et al. 2026, section 3.4).

    A convolution of a window runs as one coroutine per snapshot, which yields after sending its rows and resumes when
    it needs the remote ones. All ranks choose the same snapshot to resume, in the time that linear models
    predict, which are fitted to measurements of all ranks (``overlap/timing.py``). Without ``overlap`` the order is
    the same and every send is waited for at once: same bits.

    Exact if ``inner`` is. Cost: the rows of ``inner``, in one message per snapshot instead of one per window; a few
    scalars per window and epoch.
    """

    name: ClassVar[str] = "overlapped"
    exact: ClassVar[bool] = _ExactIfInner()  # type: ignore[assignment]
    sends_per_snapshot: ClassVar[bool] = True
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

    def cache_hops(self, hops: int) -> int:
        return self.inner.cache_hops(hops)

    def check_cache_size(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        self.inner.check_cache_size(num_bytes, free_bytes, hops)

    def make_row_exchange(self, comm: Comm) -> RowExchange:
        return OverlappedExchange(
            lambda: self.inner.make_row_exchange(comm), TimingModel.for_comm(comm), overlap=self.overlap
        )


class OverlappedExchange(RowExchange):
    """One row exchange for each snapshot of a window, and one for exchanges of the whole window.

    Each numbers its own exchanges, so the order in which snapshots run does not matter.
    """

    def __init__(self, make: Callable[[], RowExchange], timing: TimingModel, *, overlap: bool) -> None:
        self._make, self.timing, self.overlap = make, timing, overlap
        self._window_exchange = make()
        self._snapshot_exchanges: list[RowExchange] = []
        self._losses: tuple[float | None, float | None] | None = None
        self.snapshot_sizes: list[SnapshotSize] | None = None
        """Size of each snapshot, averaged over ranks; None before the first stage."""

    def for_snapshot(self, t: int) -> RowExchange:
        """The row exchange of snapshot t."""
        while len(self._snapshot_exchanges) <= t:
            self._snapshot_exchanges.append(self._make())
            if self._losses is not None:
                self._snapshot_exchanges[-1].begin_epoch(*self._losses)
        return self._snapshot_exchanges[t]

    def start_transfer(self, route: Route, x: Tensor, *, kind: str) -> RowTransfer | None:
        return self._window_exchange.start_transfer(route, x, kind=kind)

    def run_per_snapshot(self, stages: SnapshotStages) -> Tensor:
        timing, sizes, x = self.timing, stages.sizes, stages.inputs
        if self.snapshot_sizes is None:
            self.snapshot_sizes = _mean_sizes(timing.comm, sizes, x[0].device)
        timetable = Timetable(self.snapshot_sizes, x[0].shape[1], x[0].element_size(), timing)
        make_async = partial(AsyncTransfer, timing=timing, overlap=self.overlap)
        coroutines = [stages.start(t, self.for_snapshot(t), make_async) for t in range(len(sizes))]
        columns, began, out = [x[0].shape[1]] * len(sizes), [False] * len(sizes), [x[0]] * len(sizes)
        try:
            while (t := timetable.next()) is not None:
                start, waited = perf_counter(), timing.waited_s
                try:
                    width = coroutines[t].send(None).columns
                    timetable.mark_waiting(t, width)
                except StopIteration as done:
                    out[t], width = done.value, 0
                    timetable.mark_done(t)
                took = perf_counter() - start - (timing.waited_s - waited)
                timing.record_compute(sizes[t], columns[t], took, began=began[t])
                columns[t], began[t] = width, True
        finally:
            for coroutine in coroutines:
                coroutine.close()
        timing.end_stage()
        return torch.cat(out)

    def begin_pass(self) -> None:
        for exchange in self._exchanges:
            exchange.begin_pass()

    def begin_epoch(self, first_loss: float | None, last_loss: float | None) -> None:
        self._losses = first_loss, last_loss
        for exchange in self._exchanges:
            exchange.begin_epoch(first_loss, last_loss)
        self.timing.begin_epoch()

    def state_dict(self) -> list[Any]:
        exchanges, timing = [exchange.state_dict() for exchange in self._exchanges], self.timing.state_dict()
        return [{"exchanges": exchanges, "timing": timing}] if any(exchanges) or timing is not None else []

    def load_state_dict(self, state: list[Any]) -> None:
        for each in state:
            window, *snapshots = each["exchanges"]
            self._window_exchange.load_state_dict(window)
            for t, snapshot in enumerate(snapshots):
                self.for_snapshot(t).load_state_dict(snapshot)
            if each["timing"] is not None:
                self.timing.load_state_dict(each["timing"])

    @property
    def _exchanges(self) -> list[RowExchange]:
        return [self._window_exchange, *self._snapshot_exchanges]


def _mean_sizes(comm: Comm, local: Sequence[SnapshotSize], device: torch.device) -> list[SnapshotSize]:
    """Sizes of all snapshots, averaged over ranks. All ranks must call it."""
    sizes = torch.tensor([[each.cells, each.arcs, each.rows] for each in local], dtype=torch.float64)
    total = comm.all_reduce(sizes.to(device), kind="scalars") / comm.num_ranks
    return [SnapshotSize(*each) for each in total.tolist()]
