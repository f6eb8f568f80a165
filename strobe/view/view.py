"""One pass of a model over cells. Models see nothing else, so they never know how many ranks there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strobe.comm.rows import exchange, tied
from strobe.exchange import TimeEncoder
from strobe.exchange.delivery import Arranged, Courier, Delivery, arrivals
from strobe.exchange.flight import at_once
from strobe.exchange.halo import Neighbours
from strobe.exchange.halo_product import halo_product
from strobe.exchange.overlapped import Overlapping
from strobe.ops.normalise import Norm
from strobe.ops.segments import highest, pick
from strobe.ops.sparse import Sparse, spmm
from strobe.ops.standardise import standardise
from strobe.view.cells import Cells
from strobe.view.pieces import Stage
from strobe.view.share import Reads
from strobe.view.together import standardised_together, top_rows_together

if TYPE_CHECKING:
    from strobe.view.sampled import Level

Carry = list[Any]
"""What a pass leaves for the next window, in the order it was kept: tensors, tuples and dictionaries of them."""


class View:
    """The cells of a window in one pass, with what the windows before left behind.

    Rows of every tensor are cells, t-major, in a snapshot by ascending node. On one rank a view holds all cells and
    needs nobody else's; on several it holds those of its rank, and its methods fetch what they need of others.
    """

    def __init__(self, cells: Cells, carry: Carry | None = None, tokens: list[Tensor] | None = None) -> None:
        self.cells = cells
        self._past: Sequence[Any] | None = carry
        self.carry: Carry = []
        self.num_products = 0
        """Sparse products so far."""
        if tokens is None and cells.share is not None:
            for courier in cells.share.couriers.values():
                courier.pass_begins()
        self._tokens: list[Tensor] = [] if tokens is None else tokens  # of all that was sent or received in this pass

    @property
    def x(self) -> Tensor:
        """Features of the cells, [C, F]."""
        return self.cells.x

    @property
    def num_cells(self) -> int:
        return self.cells.num_cells

    @property
    def num_snapshots(self) -> int:
        return self.cells.num_snapshots

    @property
    def num_slots(self) -> int:
        """Rows of a state that has one per node: what ``recall`` and ``remember`` work on."""
        return self.cells.sequences.num_slots

    # Structure: along edges, within a snapshot.

    def through(self, stage: Stage, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """What a convolution gives the cells: in one go or, where the plan wants it, in pieces or by snapshot.

        ``stage(view, x)`` gets the rows that its view's cells read, their own first; ``weights`` are what it learns.
        """
        level = self._next_level()
        if level is not None:
            return level.run(stage, x)
        if self.cells.fusing is None:
            return self.by_snapshot(stage, x)
        return self.cells.fusing.run(stage, weights, self.pull(x))

    def of_inputs(self, stage: Stage, x: Tensor) -> Tensor:
        """What a convolution gives the cells that reads nothing of others but aggregates of inputs, which are computed
        once a run, for all cells."""
        level = self._next_level()
        return self.at_once(stage, x) if level is None else level.run(stage, x)

    def _next_level(self) -> Level | None:
        """The cells that the next product is computed for, where it is not all."""
        level = self.cells.level(self.num_products)
        if level is not None:
            self.num_products += 1
        return level

    def by_snapshot(self, stage: Stage, x: Tensor, *given: Tensor) -> Tensor:
        """What a stage gives the cells that reads each snapshot by itself: in one go or, where the plan wants rows of
        one to travel while others compute, one coroutine for each.

        ``stage(view, x, *given)`` gets the view's own rows, and of what is ``given`` [T, …] the view's snapshots. It
        awaits ``view.aggregated`` and ``view.pulled``. Inputs do not travel: a stage on them runs in one go.
        """
        courier = self._courier() if self._hears_others else None
        if not isinstance(courier, Overlapping) or self.num_snapshots < 2 or self.cells.is_input(x):
            return self.at_once(stage, x, *given)
        from strobe.view.overlapping import overlapped  # which has views of its own

        return overlapped(self.cells, courier, self._tokens, stage, self.split(x), *given)

    def at_once(self, stage: Stage, x: Tensor, *given: Tensor) -> Tensor:
        """What a stage gives all cells in one go."""
        return at_once(stage(self, x, *given))

    async def pulled(self, x: Tensor) -> Tensor:
        """``pull``, for a stage that may give way while rows travel."""
        return self.pull(x)

    async def aggregated(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        """``aggregate``, for a stage that may give way while rows travel."""
        return self.aggregate(x, norm)

    def pull(self, x: Tensor) -> Tensor:
        """The rows that the view's edges read: its own, then those of others."""
        self.num_products += 1
        if x is self.cells.x:
            return self.cells.pulled_x
        delivery = self._delivery("in", x)
        if delivery is None:
            return x
        arrived, token = arrivals(delivery, x)
        self._tokens.append(token)
        return torch.cat([x, arrived])

    def pull_from(self, around: Neighbours, x: Tensor, *, kind: str) -> Tensor:
        """Own rows, then those of some neighbours, always fresh."""
        if around.route.silent:
            return x
        arrived, token = exchange(self.cells.comm, around.route, x, kind=kind)
        self._tokens.append(token)
        return torch.cat([x, arrived])

    def closed(self, loss: Tensor) -> Tensor:
        """The loss; its backward takes part in all that was sent and received, whether this rank used it or not."""
        return tied(loss, self._tokens) if self._tokens or self.cells.share is not None else loss

    def aggregate(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        """The normalised sparse product, every snapshot at once. Aggregates of ``view.x`` are computed once a run."""
        level = self._next_level()
        if level is not None:
            return level.aggregate(x, norm)
        self.num_products += 1
        if self.cells.is_input(x):
            return self.cells.aggregated_input(x, norm)
        delivery = self._delivery("out" if norm == "mean_out" else "in", x)
        if delivery is None:
            return spmm(self.cells.product(norm), x)
        out, token = halo_product(delivery, self.cells.halo_matrix(norm), x)
        self._tokens.append(token)
        return out

    def aggregate_x(self, norm: Norm = "gcn") -> Tensor:
        """``aggregate(view.x)``, without keeping features that nobody asks for otherwise."""
        if not self.cells.keeps_features_apart:
            return self.aggregate(self.x, norm)
        self.num_products += 1
        return self.cells.aggregated_features(norm)

    def _delivery(self, reads: Reads, x: Tensor) -> Delivery | None:
        """How rows of neighbours elsewhere come; None where there are none. All ranks of a snapshot ask."""
        if not self._hears_others:
            return None
        around = self.cells.neighbours(reads)
        delivery = self._courier().delivery(around.route, x, kind="halo")
        return delivery if delivery is None or around.arranged is None else Arranged(delivery, around.arranged)

    @property
    def _hears_others(self) -> bool:
        return self.cells.share is not None and self.cells.share.splits_snapshots

    def _courier(self) -> Courier:
        assert self.cells.share is not None
        return self.cells.share.couriers["structure"]

    @property
    def splits_snapshots(self) -> bool:
        """Whether the same snapshots may have cells elsewhere."""
        shared = self.cells.share is not None and self.cells.share.splits_snapshots
        return shared or self.cells.splits_snapshots

    def matrix(self, norm: Norm = "loops") -> Sparse:
        """The sparse matrix over pulled rows, for kernels that need its entries."""
        return self.cells.matrix(norm)

    @cached_property
    def edge_index(self) -> Tensor:
        """(row in the pulled rows, own row) of every arc, [2, E], as PyTorch Geometric's convolutions take them."""
        matrix = self.cells.matrix("sum")
        return torch.stack([matrix.col.long(), matrix.rows])

    @property
    def edge_weight(self) -> Tensor | None:
        """The weight of every arc, or None."""
        return self.cells.matrix("sum").weight

    # Time: along the sequence of a node.

    def over_time(self, encoder: TimeEncoder, *x: Tensor) -> Tensor:
        """Runs an encoder over the view's sequences; it goes on where it stopped in the window before.

        An encoder of several inputs gets them as a tuple.
        """
        out, state, tokens = self.cells.timing(encoder).run(encoder, x, self.carried())
        self._tokens += tokens
        self.keep(state)
        return out

    def carried(self) -> Any | None:
        """What the call of ``keep`` at this place left in the window before; None at the beginning of time."""
        return None if self._past is None else self._past[len(self.carry)]

    def keep(self, value: Any) -> None:
        """Leaves a value for the next window. Kept values are matched by the order in which they are kept."""
        self.carry.append(value)

    @property
    def slides(self) -> bool:
        """Whether the next window begins before this one ends: ``keep_each`` then wants what is after each snapshot."""
        return self.cells.slides

    def keep_each(self, values: Sequence[Any], *, per_node: bool = False) -> None:
        """The same from what is after every snapshot, or after the last alone where windows do not slide.
        ``per_node``: it is a state with a row for each slot."""
        self.keep(self.cells.next_start(self.carried(), values, per_node=per_node))

    # Snapshot by snapshot, for models whose convolution reads the state or whose weights change.

    def steps(self) -> Iterator[View]:
        """A view of each snapshot, in order of time, for structure and ``recall``; time stages want the whole view."""
        return (View(cells, tokens=self._tokens) for cells in self.cells.single)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """The rows of each snapshot."""
        return torch.split(x, [b - a for a, b in pairwise(self.cells.cell_ptr)])

    def recall(self, state: Tensor) -> Tensor:
        """Rows of a state per node [S, H] that belong to the nodes of this (one-snapshot) view."""
        sequences, moved = self.cells.sequences, self.cells.handover
        rows = state if sequences.slot is None else state[sequences.slots]
        if moved is None:
            return rows
        assert self.cells.share is not None
        arrived, token = exchange(self.cells.share.comm, moved.route, state, kind="state")
        self._tokens.append(token)
        return rows.index_copy(0, moved.places, arrived)

    def remember(self, state: Tensor, rows: Tensor) -> Tensor:
        """The state with the rows of this view's nodes replaced."""
        sequences = self.cells.sequences
        return rows if sequences.slot is None else state.index_copy(0, sequences.slots, rows)

    def top_rows(self, x: Tensor, direction: Tensor, k: int) -> Tensor:
        """The k rows of each snapshot with the highest score x·p / |p|, times its tanh, best first: [T, k, F].

        Of equal scores the lower row comes first. Zeros where a snapshot has fewer than k cells.
        """
        if self.cells.share is not None and self.cells.share.comm.num_ranks > 1:
            top, tokens = top_rows_together(self.cells.share, x, direction, k, self.cells.cell_ptr)
            self._tokens += tokens
            return top
        unit = direction / direction.norm()
        scores = torch.mv(x.detach(), unit.detach().to(x.dtype))
        best = [highest(part, k) for part in self.split(scores)]
        at = [rows + start for rows, start in zip(best, self.cells.cell_ptr, strict=False)]
        chosen = (pick(x, torch.cat(at)) if at else x[:0]).to(unit.dtype)
        # Scores of the chosen rows alone, again: the gradient of all of them would be as large as x and zero.
        weighed = chosen * torch.tanh(torch.mv(chosen, unit))[:, None]
        if len(weighed) < k * len(best):
            filled = [torch.arange(len(rows), device=x.device) + t * k for t, rows in enumerate(best)]
            weighed = weighed.new_zeros(k * len(best), x.shape[1]).index_copy(0, torch.cat(filled), weighed)
        return weighed.view(len(best), k, x.shape[1])

    def standardised(self, x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Each snapshot's cells brought to mean 0 and variance 1 per column, then times ``scale`` plus ``shift``.

        Also the means and unbiased variances they had, [*, F] each, a row per snapshot of two cells or more, without
        gradient.
        """
        sizes = [b - a for a, b in pairwise(self.cells.cell_ptr)]
        share = self.cells.share
        if share is None or share.comm.num_ranks == 1:
            out, means, variances = standardise(x, scale, shift, eps, self.cells.cell_ptr)
        else:
            out, means, variances, tokens = standardised_together(share, x, scale, shift, eps, self.cells.cell_ptr)
            self._tokens += tokens
            sizes = share.num_cells.tolist()
        told = [t for t, size in enumerate(sizes) if size > 1]
        return out, means[told], variances[told]
