"""Structure exchange that fetches features of sampled cells from their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.base import Work
from strobe.exchange.base import StructureExchange
from strobe.ops.sparse.csr import IntArray
from strobe.strategy import Fact, Need

REQUESTS_KIND, FEATURES_KIND = "requests", "features"


@dataclass(frozen=True, kw_only=True)
class Fetch(StructureExchange):
    """Fetch the features of a step's sampled cells from their owners, once per step. Exact.

    A rank stores the features of its own cells, computes all layers itself, and exchanges no gradients. ``prefetch``
    sends the rows of the next step while this one computes. ``gather_sequences`` computes a seed node's older cells on
    the rank of its newest one, so that the time stage needs no exchange; without it they are computed on their owners.

    Evaluation computes all cells and exchanges rows as halo does. Cost: one row of features and one id per remote
    sampled cell.
    """

    name: ClassVar[str] = "fetch"
    prefetch: bool = True
    gather_sequences: bool = False

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "features are fetched for the cells that a step samples"
        return (Need("sampled cells", why, "batching sampled, or exchange structure halo"),)

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("fetched inputs",)


def exchange_requests(comm: Comm, requests: Sequence[IntArray]) -> list[IntArray]:
    """Send each rank the ids of the rows requested from it. All ranks must call it.

    Returns:
        The ids that each rank requests from this one.
    """
    counts = torch.zeros(comm.num_ranks, comm.num_ranks, dtype=torch.float64)
    counts[comm.rank] = torch.tensor([len(each) for each in requests], dtype=torch.float64)
    received = comm.all_reduce(counts, kind=REQUESTS_KIND)[:, comm.rank].long().tolist()
    sends = {dst: torch.from_numpy(each) for dst, each in enumerate(requests) if dst != comm.rank}
    counts_by_rank = {source: count for source, count in enumerate(received) if source != comm.rank}
    rows = iter(comm.all_to_all_rows(sends, counts_by_rank, torch.empty(0, dtype=torch.int64), kind=REQUESTS_KIND))
    return [next(rows).numpy() if counts_by_rank.get(rank) else np.empty(0, np.int64) for rank in range(comm.num_ranks)]


def send_features(comm: Comm, rows: Sequence[Tensor], counts: Sequence[int], like: Tensor) -> Sequence[Work]:
    """Start sending the requested rows to each rank, and receiving ``counts`` rows from each, in order of rank."""
    others = [rank for rank in range(comm.num_ranks) if rank != comm.rank]
    return comm.all_to_all_rows_async(
        {rank: rows[rank] for rank in others}, {rank: counts[rank] for rank in others}, like, kind=FEATURES_KIND
    )
