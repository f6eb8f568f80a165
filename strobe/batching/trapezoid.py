"""Sliding windows that truncate older snapshots."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from strobe.batching.base import Batching, BatchSpec, SourceContext, StepSource
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.strategy import Fact, Need


@dataclass(frozen=True)
class Decay:
    """Share of each snapshot in a window that a step computes, by age: all of the ``full`` newest, then ``decayed``
    more whose share falls by a constant factor down to ``min_keep``."""

    full: int
    decayed: int
    min_keep: float
    renormalize: bool = True
    """Whether arc weights are normalized by degrees in the subgraph instead of the whole snapshot."""

    @property
    def window(self) -> int:
        """Snapshots per step."""
        return self.full + self.decayed

    @property
    def is_full(self) -> bool:
        """Whether all cells of the window are computed."""
        return not self.decayed or self.min_keep == 1

    def num_chunks_by_age(self, num_chunks: int) -> tuple[int, ...]:
        """Chunks computed at each age, newest first: N' = floor(min_keep^(1 / decayed) N), at least 1."""
        beta = self.min_keep ** (1 / self.decayed) if self.decayed else 1.0
        counts = [num_chunks] * self.full
        for _ in range(self.decayed):
            counts.append(max(math.floor(beta * counts[-1]), min(1, num_chunks)))
        return tuple(counts)

    def window_share(self, num_chunks: int) -> float:
        """Chunks that a step computes, as a share of the full window: the expected share of rows."""
        return sum(self.num_chunks_by_age(num_chunks)) / max(self.window * num_chunks, 1)

    def times(self, t: int, start: int) -> range:
        """The window that ends with snapshot t, without snapshots before ``start``."""
        return range(max(start, t - self.window + 1), t + 1)


class DecaySearchOptions(NamedTuple):
    """Search the decay every ``every`` epochs, up to a share ``max_share`` of the full window."""

    every: int
    max_share: float


def sample_retention_order(chunk_owner: IntArray, seed: tuple[int, ...]) -> IntArray:
    """Sample the order in which chunks are retained; the first are retained longest.

    The order of each rank's chunks is random, and ranks alternate in proportion to their chunks, so that every rank has
    its share of the retained chunks.

    Args:
        chunk_owner: the rank of each chunk, [C].
        seed: of the random order.

    Returns:
        The position of each chunk in the order, [C].
    """
    random = np.random.default_rng(list(seed))
    share = np.empty(len(chunk_owner))
    for rank in np.unique(chunk_owner).tolist():
        chunks = np.flatnonzero(chunk_owner == rank)
        share[random.permutation(chunks)] = (np.arange(len(chunks)) + 0.5) / len(chunks)
    position = np.empty(len(share), np.int64)
    position[np.argsort(share, kind="stable")] = np.arange(len(share))
    return position


DegreeSource = Literal["subgraph", "snapshot"]
"""Where the degrees that normalize arcs of a truncated snapshot are counted."""


@dataclass(frozen=True, kw_only=True)
class Trapezoid(Batching):
    """A step per snapshot: it has that snapshot's examples, and computes ``full`` snapshots up to it and of ``decayed``
    earlier ones ever fewer chunks of nodes, down to a share ``min_keep``. (3.2 of Huang et al. 2026.)

    Chunks retained in an older snapshot are retained in all newer ones, so a node's sequence has no gap; every epoch
    samples which chunks. A node continues from its state of the previous step, without gradient. Arcs from truncated
    cells add nothing; ``degrees`` chooses whether the other arcs are normalized by degrees in the subgraph or in the
    whole snapshot. Aggregates of inputs, before any weight, are always those of the whole snapshot.

    ``search_every``: every N epochs (0: never) also train it with neighboring settings: ``full`` one more or less
    in a window of equal length, a tenth more or less ``min_keep``. Each starts from equal weights; the setting
    with the best validation metric continues, until no neighbor is better. (3.5.) Such an epoch costs up to five, and
    memory for weights, optimizer and carried states twice more. ``max_share``: the largest share of the full window
    that the search may reach.

    With ``min_keep`` 1 and a window of all snapshots, every step has the whole history.
    """

    name: ClassVar[str] = "trapezoid"
    exact: ClassVar[bool] = False
    gives: ClassVar[tuple[Fact, ...]] = ("sliding windows",)
    caches_windows: ClassVar[bool] = False
    not_simulated: ClassVar[str | None] = (
        "its windows slide and are thinner in the past: only whole snapshots are timed"
    )
    full: int = 2
    decayed: int = 6
    min_keep: float = 0.1
    degrees: DegreeSource = "subgraph"
    search_every: int = 0
    max_share: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full < 1:
            raise OptionError(f"full must be at least 1 snapshot, not {self.full}")
        if self.decayed < 0:
            raise OptionError(f"decayed must be 0 snapshots or more, not {self.decayed}")
        if not 0 < self.min_keep <= 1:
            raise OptionError(f"min_keep must be a share above 0 and up to 1, not {self.min_keep}")
        if self.search_every < 0:
            raise OptionError(f"search_every must be 0 (never) or a number of epochs, not {self.search_every}")
        if not 0 < self.max_share <= 1:
            raise OptionError(f"max_share must be a share above 0 and up to 1, not {self.max_share}")
        if self.max_share < 1 and not self.search_every:
            raise OptionError(f"max_share {self.max_share:g} limits a search: give search_every, or leave it out")

    @property
    def needs(self) -> tuple[Need, ...]:
        needs = (
            Need("whole sequences", "a rank carries the states of its nodes", "placement metis or hash"),
            Need("fresh rows", "every step has another window", "exchange structure halo, or batching windows"),
        )
        if self.decay.is_full and not self.search_every:
            return needs
        fix = "placement metis:chunks=64, or batching trapezoid:min_keep=1 without search_every"
        return (*needs, Need("node chunks", "older snapshots are truncated chunk by chunk", fix))

    @property
    def decay(self) -> Decay:
        return Decay(self.full, self.decayed, self.min_keep, renormalize=self.degrees == "subgraph")

    @property
    def decay_search(self) -> DecaySearchOptions | None:
        return DecaySearchOptions(self.search_every, self.max_share) if self.search_every else None

    @property
    def depends_on_partition(self) -> bool:
        return not self.decay.is_full

    def start(self, context: SourceContext) -> StepSource:
        return context.sliding_windows(self.decay, self.decay_search)

    @property
    def window(self) -> int:
        return self.full

    def with_window(self, size: int) -> Batching:
        full = min(self.full, size)
        return replace(self, full=full, decayed=size - full)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return [
            BatchSpec(self.decay.times(t, times.start), range(t, t + 1), continues_state=t > times.start) for t in times
        ]
