"""What a step computes, sends and holds of each snapshot of a window that decays, counted; beside a whole one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from strobe.batching.decay import Decay
from strobe.engine.job import Job
from strobe.engine.sliding import Sliding
from strobe.engine.trace import Call, watch
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.view.ordered import Order
from strobe.view.share import Reads

_NODES = 64
"""A model is watched over so many: how wide its rows are does not depend on their number."""


class Amount(NamedTuple):
    """Cells, the arcs between them, and what travels for them between ranks in a step, there and back."""

    cells: int = 0
    arcs: int = 0
    rows_sent: int = 0
    bytes_sent: int = 0
    bytes_held: int = 0

    @classmethod
    def of(cls, parts: Iterable[Amount]) -> Amount:
        """All together."""
        return cls(*map(sum, zip(cls(), *parts, strict=True)))


@dataclass(frozen=True)
class Width:
    """Numbers that a cell has in a step, and those of the rows that its readers on another rank are sent: a row for
    each product, by the direction that it reads along."""

    features: int
    state: int
    embedding: int
    item_bytes: int
    sent: Mapping[Reads, Sequence[int]]

    @property
    def held(self) -> int:
        """Bytes of a cell."""
        return (self.features + self.state + self.embedding) * self.item_bytes


@dataclass(frozen=True)
class Decayed:
    """A window of an epoch, the oldest snapshot first: what is computed of each, and what all of it would be."""

    decay: Decay
    times: list[str]
    computed: list[Amount]
    whole: list[Amount]
    width: Width
    num_ranks: int
    tuned: bool = False

    def to_json(self) -> dict[str, Any]:
        """The setting, and the sums."""
        sums = {"computed": Amount.of(self.computed), "whole": Amount.of(self.whole)}
        setting = {"full": self.decay.full, "decayed": self.decay.decayed, "keep": self.decay.keep}
        return setting | {"tuned": self.tuned} | {name: each._asdict() for name, each in sums.items()}


def decayed(job: Job, sliding: Sliding | None) -> Decayed | None:
    """The last full window of the first epoch, of all ranks together; None where windows do not slide.

    Decided from the graph and who has what alone: any rank may ask, also of a run that is resumed. Where the decay is
    tuned it is the one at the end.
    """
    if sliding is None:
        return None
    graph, decay, order = job.problem.graph, sliding.decay, sliding.order(0)
    stretches = job.plan.schedule.stretches(job.problem.split.train, 0, job.settings.seed)
    windows = [decay.times(t, stretch.start) for stretch in stretches for t in stretch]
    longest = max(map(len, windows), default=0)
    times = [each for each in windows if len(each) == longest][-1] if windows else range(0)
    kept, everything = decay.kept(sliding.num_chunks), sliding.num_chunks
    width = width_of(job)
    found = [
        [amount(graph[t], order, chunks, width) for chunks in (kept[times.stop - 1 - t], everything)] for t in times
    ]
    computed, whole = ([each[k] for each in found] for k in range(2))
    names, tuned = [str(graph.times[t]) for t in times], decay != job.plan.batching.decay
    return Decayed(decay, names, computed, whole, width, job.comm.num_ranks, tuned)


def amount(snapshot: Snapshot, order: Order, kept: int, width: Width) -> Amount:
    """What a step does with the first ``kept`` chunks of a snapshot, on all ranks together."""
    place, owners = order.place[snapshot.nodes], order.of_node[snapshot.nodes]
    read, reader = snapshot.arcs()
    stays = np.maximum(place[read], place[reader]) < kept
    read, reader = read[stays], reader[stays]
    rows_sent = numbers_sent = 0
    for reads, columns in width.sent.items():
        told = _told(read, reader, owners) if reads == "in" else _told(reader, read, owners)
        rows_sent += 2 * told * len(columns)
        numbers_sent += 2 * told * sum(columns)
    cells = int(np.count_nonzero(place < kept))
    return Amount(cells, len(read), rows_sent, numbers_sent * width.item_bytes, cells * width.held)


def _told(read: IntArray, reader: IntArray, owners: IntArray) -> int:
    """Cells that another rank reads, once for each rank."""
    away = owners[read] != owners[reader]
    ranks = int(owners.max(initial=0)) + 1
    return len(np.unique(read[away].astype(np.int64) * ranks + owners[reader[away]]))


def width_of(job: Job) -> Width:
    """How wide the rows of a job's model are, found out by watching it."""
    graph = job.problem.graph
    assert graph.features is not None  # every task sees to that
    features = graph.features.shape[0]
    with torch.random.fork_rng():
        model = job.choice.make(features)
    some: DynamicGraph = graph[:2].subset(np.arange(min(_NODES, graph.num_nodes)))
    calls = [call for call in watch(model, some) if call.snapshot in (None, len(some) - 1)]
    state = sum(call.columns if call.what == "recall" else call.state_columns for call in calls if _is_state(call))
    sent: dict[Reads, list[int]] = {}
    for call in calls:
        if call.what == "pull" and not call.is_input:
            reads: Reads = "out" if call.norm == "mean_out" and graph.directed else "in"
            sent.setdefault(reads, []).append(call.columns)
    embedding: Any = model.width
    return Width(features, state, embedding, job.settings.dtype.itemsize, sent)


def _is_state(call: Call) -> bool:
    return call.what == "recall" or call.relays
