"""Rows of neighbours that other ranks own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.comm.rows import Route
from strobe.exchange.base import StructureExchange
from strobe.ops.csr import IntArray
from strobe.strategy import Fact

Arcs = tuple[IntArray, IntArray]
"""(cell that reads, cell that is read) of every arc of a snapshot, as positions in it."""


@dataclass(frozen=True, kw_only=True)
class Halo(StructureExchange):
    """Rows of neighbours, fresh, once per sparse product; gradients come back the same way. Exact.

    Cost: one row per (cell, other rank that reads it) and product, and as many gradients.
    """

    name: ClassVar[str] = "halo"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("fresh rows",)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The cells of others that a rank reads, in the order they arrive: by owner, then t, then position.

    ``positions[t]`` are those of snapshot t, ascending; ``places[t]`` where they stand among all that arrive.
    ``arranged``: in which order they are wanted, where it is another one.
    """

    route: Route
    positions: Sequence[IntArray]
    places: Sequence[IntArray]
    arranged: Tensor | None = None

    @property
    def num_rows(self) -> int:
        return self.route.rows_received


def neighbours(
    rank: int, owners: Sequence[IntArray], arcs: Iterable[Arcs], rows: Sequence[IntArray], device: torch.device
) -> Neighbours:
    """Who must be heard and told, from the owners of all cells of a window and its arcs, snapshot by snapshot.

    Args:
        rank: whose neighbours.
        owners: the owner of every cell, [n] for each snapshot; -1 for cells that take no part.
        arcs: who reads whom.
        rows: the rank's own cells, as positions, for each snapshot, in any order.
        device: where rows live.
    """
    heard: list[IntArray] = []  # (owner, t, position)
    told: list[IntArray] = []  # (reader, own row)
    first = 0
    for t, (owner, (reads, read), own) in enumerate(zip(owners, arcs, rows, strict=True)):
        if len(own) and len(own) < len(owner):
            by, of = owner[reads], owner[read]
            there = np.unique(read[(by == rank) & (of != rank) & (of >= 0)])
            heard.append(np.stack([owner[there], np.full(len(there), t), there], axis=1).astype(np.int64))
            out = (of == rank) & (by != rank) & (by >= 0)
            pairs = np.unique(by[out].astype(np.int64) * len(owner) + read[out])
            reader, position = np.divmod(pairs, len(owner))
            row = np.empty(len(owner), np.int64)
            row[own] = np.arange(first, first + len(own))
            told.append(np.stack([reader, row[position]], axis=1))
        first += len(own)
    return _ordered(heard, told, len(owners), device)


def _ordered(heard: list[IntArray], told: list[IntArray], num_snapshots: int, device: torch.device) -> Neighbours:
    arriving = np.concatenate([np.empty((0, 3), np.int64), *heard])
    arriving = arriving[np.lexsort((arriving[:, 2], arriving[:, 1], arriving[:, 0]))]
    leaving = np.concatenate([np.empty((0, 2), np.int64), *told])
    send = {
        int(to): torch.from_numpy(leaving[leaving[:, 0] == to, 1].copy()).to(device) for to in np.unique(leaving[:, 0])
    }
    sources, counts = np.unique(arriving[:, 0], return_counts=True)
    receive = {int(source): int(count) for source, count in zip(sources, counts, strict=True)}
    by_time = [np.flatnonzero(arriving[:, 1] == t) for t in range(num_snapshots)] if len(arriving) else []
    by_time = [at[np.argsort(arriving[at, 2])] for at in by_time]
    nothing = [np.empty(0, np.int64)] * (num_snapshots if not len(arriving) else 0)
    return Neighbours(Route(send, receive), nothing + [arriving[at, 2] for at in by_time], nothing + by_time)
