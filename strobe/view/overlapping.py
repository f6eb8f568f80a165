"""A structure stage of a window as one coroutine per snapshot: while rows of one travel, others compute."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from strobe.exchange.delivery import Courier
from strobe.exchange.flight import Flight, Waiting
from strobe.exchange.overlap_order import Extent, Timetable
from strobe.exchange.overlapped import Overlapping
from strobe.ops.normalise import Norm
from strobe.ops.sparse import spmm
from strobe.view.cells import Cells
from strobe.view.pieces import Stage
from strobe.view.share import Reads
from strobe.view.view import View


class SnapshotView(View):
    """One snapshot of a window, whose rows travel by themselves: a stage gives way when they have left."""

    def __init__(self, cells: Cells, tokens: list[Tensor], overlapping: Overlapping, t: int) -> None:
        super().__init__(cells, tokens=tokens)
        self._overlapping, self._t = overlapping, t

    async def aggregated(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        flight = self._flight("out" if norm == "mean_out" else "in", x)
        x = x if flight is None else flight.depart(x)
        await Waiting(x.shape[1])
        if flight is None:
            return spmm(self.cells.product(norm), x)
        out, token = flight.arrive_in_product(self.cells.halo_matrix(norm), x)
        self._tokens.append(token)
        return out

    async def pulled(self, x: Tensor) -> Tensor:
        flight = self._flight("in", x)
        x = x if flight is None else flight.depart(x)
        await Waiting(x.shape[1])
        if flight is None:
            return x
        out, token = flight.arrive(x)
        self._tokens.append(token)
        return out

    def _courier(self) -> Courier:
        return self._overlapping.of_snapshot(self._t)

    def _flight(self, reads: Reads, x: Tensor) -> Flight | None:
        delivery = self._delivery(reads, x)
        return (
            None if delivery is None else Flight(delivery, self._overlapping.seconds, overlap=self._overlapping.overlap)
        )


def overlapped(
    cells: Cells, overlapping: Overlapping, tokens: list[Tensor], stage: Stage, x: Sequence[Tensor], *given: Tensor
) -> Tensor:
    """What a stage gives all cells of a window, from the rows of each snapshot and what else is given for each."""
    seconds, own = overlapping.seconds, [_extent(each) for each in cells.single]
    if overlapping.extents is None:
        overlapping.extents = _agreed(cells, own)
    timetable = Timetable(overlapping.extents, x[0].shape[1], x[0].element_size(), seconds)
    columns = [x[0].shape[1]] * len(own)
    stages = [
        stage(SnapshotView(each, tokens, overlapping, t), x[t], *(of_all[t : t + 1] for of_all in given))
        for t, each in enumerate(cells.single)
    ]
    began, out = [False] * len(own), [x[0]] * len(own)
    try:
        while (t := timetable.next()) is not None:
            start, waited = perf_counter(), seconds.waited
            try:
                wide = stages[t].send(None).columns
                timetable.waits(t, wide)
            except StopIteration as done:
                out[t], wide = done.value, 0
                timetable.ended(t)
            took = perf_counter() - start - (seconds.waited - waited)
            seconds.computed(own[t], columns[t], took, began=began[t])
            columns[t], began[t] = wide, True
    finally:
        for each in stages:
            each.close()
    seconds.stage_ends()
    return torch.cat(out)


def _extent(cells: Cells) -> Extent:
    return Extent(cells.num_cells, cells.num_arcs, cells.neighbours("in").route.rows_sent)


def _agreed(cells: Cells, own: Sequence[Extent]) -> list[Extent]:
    """What each snapshot has on a rank in the mean; all ranks must ask."""
    assert cells.share is not None
    comm = cells.share.comm
    sizes = torch.tensor([[each.cells, each.arcs, each.rows] for each in own], dtype=torch.float64)
    total = comm.sum(sizes.to(cells.device), kind="agree") / comm.num_ranks
    return [Extent(*each) for each in total.tolist()]
