"""Halo exchange: remote rows that local cells read, and sparse products over local and remote rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.rows import Route, anchor
from strobe.exchange.base import StructureExchange
from strobe.exchange.transfer import RowTransfer
from strobe.ops.dense.rows import add_rows
from strobe.ops.sparse.csr import IntArray
from strobe.ops.sparse.leading_block import LeadingBlocks
from strobe.ops.sparse.spmm import Sparse, spmm_no_grad
from strobe.strategy import Fact

Arcs = tuple[IntArray, IntArray]
"""(reading cell, read cell) of every arc of a snapshot, as positions in it."""


@dataclass(frozen=True, kw_only=True)
class Halo(StructureExchange):
    """Send the rows of remote neighbors once per sparse product, and their gradients in backward. Exact.

    Cost: one row per (cell, other rank that reads it) and product, and as many gradients.
    """

    name: ClassVar[str] = "halo"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("fresh rows",)


@dataclass(frozen=True, eq=False)
class HaloCells:
    """The remote cells that a rank reads, in order of arrival: by owner, then t, then position.

    ``positions[t]`` are those of snapshot t, ascending; ``places[t]`` their places among all received rows.
    ``permutation`` is the order of use, if it differs from the order of arrival.
    """

    route: Route
    positions: Sequence[IntArray]
    places: Sequence[IntArray]
    permutation: Tensor | None = None

    @property
    def num_rows(self) -> int:
        return self.route.rows_received


def find_halo(
    rank: int, owners: Sequence[IntArray], arcs: Iterable[Arcs], rows: Sequence[IntArray], device: torch.device
) -> HaloCells:
    """Compute the halo of ``rank``: the remote rows it receives and the rows it sends, from cell owners and arcs.

    A pure function: sender and receiver derive matching routes.

    Args:
        rank: the rank.
        owners: owner of every cell, [n] for each snapshot; -1 for cells that are left out.
        arcs: arcs of each snapshot.
        rows: the rank's own cells in each snapshot, as positions, in any order.
        device: device of the route's indices.
    """
    received: list[IntArray] = []  # (owner, t, position)
    sent: list[IntArray] = []  # (reader, own row)
    first = 0
    for t, (owner, (reads, read), own) in enumerate(zip(owners, arcs, rows, strict=True)):
        if len(own) and len(own) < len(owner):
            by, of = owner[reads], owner[read]
            remote = np.unique(read[(by == rank) & (of != rank) & (of >= 0)])
            received.append(np.stack([owner[remote], np.full(len(remote), t), remote], axis=1).astype(np.int64))
            out = (of == rank) & (by != rank) & (by >= 0)
            pairs = np.unique(by[out].astype(np.int64) * len(owner) + read[out])
            reader, position = np.divmod(pairs, len(owner))
            row = np.empty(len(owner), np.int64)
            row[own] = np.arange(first, first + len(own))
            sent.append(np.stack([reader, row[position]], axis=1))
        first += len(own)
    return _sort_halo(received, sent, len(owners), device)


def _sort_halo(received: list[IntArray], sent: list[IntArray], num_snapshots: int, device: torch.device) -> HaloCells:
    arriving = np.concatenate([np.empty((0, 3), np.int64), *received])
    arriving = arriving[np.lexsort((arriving[:, 2], arriving[:, 1], arriving[:, 0]))]
    leaving = np.concatenate([np.empty((0, 2), np.int64), *sent])
    send = {
        int(to): torch.from_numpy(leaving[leaving[:, 0] == to, 1].copy()).to(device) for to in np.unique(leaving[:, 0])
    }
    sources, counts = np.unique(arriving[:, 0], return_counts=True)
    receive = {int(source): int(count) for source, count in zip(sources, counts, strict=True)}
    by_time = [np.flatnonzero(arriving[:, 1] == t) for t in range(num_snapshots)] if len(arriving) else []
    by_time = [at[np.argsort(arriving[at, 2])] for at in by_time]
    nothing = [np.empty(0, np.int64)] * (num_snapshots if not len(arriving) else 0)
    return HaloCells(Route(send, receive), nothing + [arriving[at, 2] for at in by_time], nothing + by_time)


@dataclass(frozen=True, eq=False)
class HaloMatrix:
    """A matrix over local and remote rows in two blocks: ``own`` [C, C], and ``remote`` [R, H] with only the rows that
    read remote cells, whose indices are ``rows``."""

    own: Sparse | LeadingBlocks
    remote: Sparse | LeadingBlocks
    rows: Tensor

    def matmul(self, x: Tensor, wait_rows: Callable[[], Tensor]) -> Tensor:
        """Multiply with local rows, wait for remote rows, and add the product with those."""
        out = spmm_no_grad(self.own, x)
        received = wait_rows()
        if len(received):
            add_rows(out, self.rows, spmm_no_grad(self.remote, received))
        return out

    def remote_gradient(self, gradient: Tensor) -> Tensor:
        """Gradient of remote rows, from that of the product."""
        if not self.remote.num_cols:
            return gradient[:0]
        return spmm_no_grad(self.remote.transposed, gradient.index_select(0, self.rows))

    def own_gradient(self, gradient: Tensor) -> Tensor:
        """Gradient of local rows from the local product alone."""
        return spmm_no_grad(self.own.transposed, gradient)


def split_columns(matrix: Sparse, num_own: int, *, symmetric: bool) -> HaloMatrix:
    """Split a matrix after its first ``num_own`` columns."""
    remote = matrix.col >= num_own
    row = matrix.rows
    own_count, remote_count = (_counts(row[each], matrix.num_rows) for each in (~remote, remote))
    rows = torch.nonzero(remote_count)[:, 0]
    return HaloMatrix(
        Sparse(_pointers(own_count), matrix.col[~remote], _select(matrix.weight, ~remote), num_own, symmetric),
        Sparse(
            _pointers(remote_count[rows]),
            (matrix.col[remote] - num_own).to(torch.int32),
            _select(matrix.weight, remote),
            matrix.num_cols - num_own,
        ),
        rows,
    )


def halo_product(transfer: RowTransfer, matrix: HaloMatrix, x: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply a matrix with local rows x and received rows. Returns the product and a token."""
    out, token = _HaloProduct.apply(transfer, matrix, anchor(x), x)  # type: ignore[no-untyped-call]
    return out, token


class _HaloProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: RowTransfer, matrix: HaloMatrix, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.transfer, ctx.matrix = transfer, matrix
        return matrix.matmul(x, transfer.send(x)), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        matrix, gradient = ctx.matrix, grads[0].contiguous()
        add_grad = ctx.transfer.send_grad(matrix.remote_gradient(gradient))
        total = matrix.own_gradient(gradient)
        add_grad(total)
        return None, None, None, total


def _counts(rows: Tensor, num_rows: int) -> Tensor:
    return torch.bincount(rows, minlength=num_rows)


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _select(weight: Tensor | None, mask: Tensor) -> Tensor | None:
    return None if weight is None else weight[mask]
