"""What each of several ranks that do not exist would have, send and receive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch

from strobe.batching import Batch
from strobe.engine.job import Job
from strobe.engine.predicted import Imagined
from strobe.engine.progress import Progress
from strobe.engine.sharing import Mask, Sharing, around
from strobe.engine.trace import Call, watch
from strobe.engine.traffic import Traffic, traffic
from strobe.engine.work import WATCHED
from strobe.exchange.legs import NOBODY
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray, distinct
from strobe.placement import Placed
from strobe.placement.work import Sizes, counted

ALONG_EDGES = ("halo",)
"""Kinds of messages of the structure stage; the others are the time stage's."""


@dataclass(frozen=True, kw_only=True)
class ChunkSizes:
    """How many chunks a rank would have, and how many cells are in them."""

    num_chunks: int
    median_cells: float
    largest_cells: int

    def to_json(self) -> dict[str, Any]:
        return {"num_chunks": self.num_chunks, "median_cells": self.median_cells, "largest_cells": self.largest_cells}


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """What one rank would have of the training snapshots, and the bytes of an epoch of training, by kind.

    ``load`` is what its cells cost: counted in arcs, or in seconds where the placement has them predicted.
    """

    cells: int
    arcs: int
    load: float
    sent: dict[str, int]
    received: dict[str, int]
    chunks: ChunkSizes | None = None

    @property
    def sent_bytes(self) -> int:
        return sum(self.sent.values())

    @property
    def bytes_along_edges(self) -> int:
        return sum(self.sent.get(kind, 0) for kind in ALONG_EDGES)

    @property
    def bytes_in_time(self) -> int:
        return self.sent_bytes - self.bytes_along_edges

    def to_json(self) -> dict[str, Any]:
        return {
            "cells": self.cells,
            "arcs": self.arcs,
            "load": self.load,
            "sent": self.sent,
            "received": self.received,
            "chunks": None if self.chunks is None else self.chunks.to_json(),
        }


class PlacedJob:
    """A job of imagined ranks whose cells are placed."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.graph, self.train, self.num_ranks = job.problem.graph, job.problem.split.train, job.comm.num_ranks
        self.by = job.plan.placement.name
        progress.stage(f"placing cells by {self.by}", 0, None)
        began = perf_counter()
        placed = job.sharing.placed  # rank 0, which this is, decides
        self.seconds = perf_counter() - began
        alone = Placed.by_node(1, np.zeros(self.graph.num_nodes, np.int16), len(self.graph))
        self.placed = alone if placed is None else placed

    def shares(self) -> tuple[RankShare, ...]:
        sizes = self._sizes()
        loads = (self.job.work.loads if self.job.plan.placement.wants_seconds else counted)(sizes)
        sent, received = self._bytes()
        return tuple(
            RankShare(
                cells=int(sizes.cells[rank]),
                arcs=int(sizes.arcs[rank]),
                load=float(loads[rank]),
                sent={kind: int(each[rank]) for kind, each in sent.items() if each[rank]},
                received={kind: int(each[rank]) for kind, each in received.items() if each[rank]},
                chunks=self._chunks(rank),
            )
            for rank in range(self.num_ranks)
        )

    def traffic(self) -> Iterator[tuple[Batch, Traffic]]:
        """The batches of an epoch, and what all ranks do in a pass over each."""
        exchange, item_bytes = self.job.plan.exchange, self.job.settings.dtype.itemsize
        sharing = Sharing(self.graph, self.job.plan, Imagined(0, self.num_ranks), self.placed)
        for number, batch in enumerate(self.job.batches):
            chosen = chosen_cells(self.graph, batch)
            share = sharing.cells(batch.times, chosen=chosen, fresh=not batch.carries).share
            yield (
                batch,
                traffic(
                    self.graph,
                    self.placed,
                    exchange,
                    batch.times,
                    calls_over(self.seen, len(batch.times)),
                    home=np.full(self.graph.num_nodes, NOBODY, np.int16) if share is None else share.home,
                    item_bytes=item_bytes,
                    carries=batch.carries and number > 0,
                    chosen=chosen,
                ),
            )

    @cached_property
    def seen(self) -> list[Call]:
        """How the model uses a view of two snapshots."""
        assert self.graph.features is not None  # every task sees to that
        with torch.random.fork_rng():
            return watch(self.job.choice.make(self.graph.features.shape[0]), self.graph[:WATCHED])

    @cached_property
    def cells_at(self) -> IntArray:
        """Cells of every snapshot and rank, [T, W]."""
        owners = (self.placed.owners(self.graph, t) for t in range(len(self.graph)))
        return np.array([np.bincount(owner, minlength=self.num_ranks) for owner in owners]).reshape(-1, self.num_ranks)

    @cached_property
    def chunk_cells(self) -> tuple[IntArray, IntArray]:
        """The cells and the rank of every chunk of training."""
        if self.placed.of_chunk is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first, last = (int(self.graph.cell_ptr[t]) for t in (self.train.start, self.train.stop))
        owner = np.concatenate([np.empty(0, np.int16), *(self.placed.owners(self.graph, t) for t in self.train)])
        _, at, count = np.unique(self.placed.of_chunk[first:last], return_index=True, return_counts=True)
        return count, owner[at]

    def _sizes(self) -> Sizes:
        """What every rank has of the training snapshots. It has a sequence where a leg of it begins."""
        arcs = np.zeros(self.num_ranks, np.int64)
        now = np.full(self.graph.num_nodes, NOBODY, np.int16)
        begun: list[IntArray] = [np.empty(0, np.int64)]
        for t in self.train:
            snapshot, owner = self.graph[t], self.placed.owners(self.graph, t)
            arcs += np.bincount(owner, snapshot.in_degree, self.num_ranks).astype(np.int64)
            begins = now[snapshot.nodes] != owner
            begun.append(owner[begins].astype(np.int64) * self.graph.num_nodes + snapshot.nodes[begins])
            now[snapshot.nodes] = owner
        has = distinct(np.concatenate(begun)) // max(self.graph.num_nodes, 1)
        sequences = np.bincount(has, minlength=self.num_ranks)
        return Sizes(self.cells_at[self.train.start : self.train.stop].sum(axis=0), arcs, sequences)

    def _bytes(self) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Bytes that every rank sends and receives in an epoch of training, by kind, [W] each."""
        sent: dict[str, IntArray] = {}
        received: dict[str, IntArray] = {}
        nothing = np.zeros(self.num_ranks, np.int64)
        for number, (_, found) in enumerate(self.traffic()):
            self.progress.stage(f"counting bytes of {self.by}", number, len(self.job.batches))
            for kind in found.sent:
                sent[kind] = sent.get(kind, nothing) + found.sent[kind]
                received[kind] = received.get(kind, nothing) + found.received[kind]
        return sent, received

    def _chunks(self, rank: int) -> ChunkSizes | None:
        if self.placed.of_chunk is None:
            return None
        cells, owner = self.chunk_cells
        cells = cells[owner == rank]
        if not cells.size:
            return ChunkSizes(num_chunks=0, median_cells=0.0, largest_cells=0)
        return ChunkSizes(num_chunks=cells.size, median_cells=float(np.median(cells)), largest_cells=int(cells.max()))


def chosen_cells(graph: DynamicGraph, batch: Batch) -> list[Mask] | None:
    """Which cells of each snapshot of a batch take part; None: all."""
    return None if batch.targets is None else around(graph, batch.times, batch.targets, batch.hops)


def calls_over(seen: Sequence[Call], num_snapshots: int) -> list[Call]:
    """How a model uses a view of so many snapshots, from how it used one of two: what it asks of the second snapshot
    alone it asks of all that follow."""
    found = [call for call in seen if call.snapshot is None or call.snapshot < num_snapshots]
    again = [call for call in seen if call.snapshot == WATCHED - 1]
    return [*found, *(replace(call, snapshot=t) for t in range(WATCHED, num_snapshots) for call in again)]


def powers(sizes: IntArray) -> tuple[int, ...]:
    """How many of these are 1, 2 or 3, 4 to 7, and so on."""
    return tuple(np.bincount(np.log2(sizes).astype(np.int64)).tolist()) if sizes.size else ()
