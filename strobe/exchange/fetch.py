"""Inputs of cells, asked of whoever has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.base import Arrival
from strobe.exchange.base import StructureExchange
from strobe.ops.csr import IntArray
from strobe.strategy import Fact, Need

ASKED, SENT = "requests", "features"


@dataclass(frozen=True, kw_only=True)
class Fetch(StructureExchange):
    """Features of cells that a step has drawn are asked of their owners, once for each step.

    A rank keeps those of its own cells alone; what follows it computes itself, and no gradient travels.

    With ``ahead`` rows of the next step travel while this one computes. With ``sequences`` a target's older cells are
    computed where its newest one is, with features that are fetched as any: nothing is left for an exchange of time to
    bring together. Without, they are computed where they are.

    Where all cells are asked, as in evaluation, rows travel as with halo. Exact. Cost: a row of features for each cell
    of others that was drawn, and its number.
    """

    name: ClassVar[str] = "fetch"
    ahead: bool = True
    sequences: bool = False

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "inputs are asked for those cells that a step draws"
        return (Need("drawn cells", why, "batching sampled, or exchange structure halo"),)

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("inputs on demand",)


def asked_of(comm: Comm, wanted: Sequence[IntArray]) -> list[IntArray]:
    """The numbers that every other rank wants of this one, by rank, from those that this one wants of each. All ranks
    ask."""
    counts = torch.zeros(comm.num_ranks, comm.num_ranks, dtype=torch.float64)
    counts[comm.rank] = torch.tensor([len(each) for each in wanted], dtype=torch.float64)
    told = comm.sum(counts, kind=ASKED)[:, comm.rank].long().tolist()
    sends = {to: torch.from_numpy(each) for to, each in enumerate(wanted) if to != comm.rank}
    hears = {source: count for source, count in enumerate(told) if source != comm.rank}
    arrived = iter(comm.swap(sends, hears, torch.empty(0, dtype=torch.int64), kind=ASKED))
    return [next(arrived).numpy() if hears.get(rank) else np.empty(0, np.int64) for rank in range(comm.num_ranks)]


def sent_to(comm: Comm, rows: Sequence[Tensor], counts: Sequence[int], like: Tensor) -> list[Arrival]:
    """Rows leave for those who asked, by rank; what this rank has asked for arrives, in order of rank."""
    others = [rank for rank in range(comm.num_ranks) if rank != comm.rank]
    return comm.swap_later({to: rows[to] for to in others}, {who: counts[who] for who in others}, like, kind=SENT)
