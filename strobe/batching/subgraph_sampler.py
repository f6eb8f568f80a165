"""Subgraph sampling: random nodes in random consecutive snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from strobe.batching.base import BatchSpec
from strobe.ops.sparse.csr import IntArray

SizePolicy = Literal["fixed", "random", "learned"]
"""How the batch size of a step is chosen: there is one, at random, or by a Q network."""


@dataclass(frozen=True)
class BatchSize:
    """Snapshots and seed nodes of a batch."""

    snapshots: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes in {self.snapshots:,} snapshots"


@dataclass(frozen=True, kw_only=True)
class SubgraphSampler:
    """How one rank samples batches.

    Args:
        snapshots: shares of the training snapshots or, above 1, counts.
        nodes: shares of the rank's nodes or, above 1, counts. Batch sizes are the grid of ``snapshots`` and ``nodes``.
        size_policy: how a step chooses one of the sizes.
        min_nodes: seed nodes of a batch at least, if the rank has as many.
        num_strata: strata of nodes of similar load; seed nodes come from each in equal parts.
        steps_per_epoch: None: as many as batches of the median size need to have as many cells as the rank.
        memory: MiB of sampled batches that are cached.
    """

    snapshots: tuple[float, ...]
    nodes: tuple[float, ...]
    size_policy: SizePolicy = "fixed"
    min_nodes: int = 1
    num_strata: int = 1
    steps_per_epoch: int | None = None
    memory: float = 1024.0

    def candidates(self, num_snapshots: int, num_nodes: int) -> list[int]:
        """Indices of the distinct sizes in the grid: with few snapshots or nodes, several shares are the same count.

        Ranks may have different numbers of nodes: all ranks use the candidates of rank 0.
        """
        grid = self._grid(num_snapshots, num_nodes)
        return [k for k, size in enumerate(grid) if grid.index(size) == k]

    def sizes(self, num_snapshots: int, num_nodes: int, candidates: Sequence[int] | None = None) -> list[BatchSize]:
        """The sizes of ``candidates`` (None: of this rank's own) on a rank; those of another rank may be equal here."""
        grid = self._grid(num_snapshots, num_nodes)
        return [grid[k] for k in (self.candidates(num_snapshots, num_nodes) if candidates is None else candidates)]

    def num_steps(self, num_snapshots: int, num_nodes: int) -> int:
        """Steps per epoch."""
        counts = sorted(size.snapshots * size.nodes for size in self.sizes(num_snapshots, num_nodes))
        return self.steps_per_epoch or max(1, round(num_snapshots * num_nodes / max(counts[len(counts) // 2], 1)))

    def capacities(self, num_snapshots: int, num_nodes: int, candidates: Sequence[int] | None = None) -> list[int]:
        """Cached batches of each size; together they have about as many cells as the rank."""
        sizes = self.sizes(num_snapshots, num_nodes, candidates)
        cells = num_snapshots * num_nodes / len(sizes)
        return [max(1, int(cells / max(size.snapshots * size.nodes, 1))) for size in sizes]

    def _grid(self, num_snapshots: int, num_nodes: int) -> list[BatchSize]:
        nodes = [min(num_nodes, max(self.min_nodes, _resolve_share(share, num_nodes))) for share in self.nodes]
        return [BatchSize(_resolve_share(share, num_snapshots), number) for share in self.snapshots for number in nodes]


def sample_batch(
    times: range, strata: Sequence[IntArray], size: BatchSize, hops: int, seed: Sequence[int]
) -> BatchSpec:
    """Sample the first snapshot and the seed nodes of a batch."""
    random = np.random.default_rng(list(seed))
    start = int(random.integers(max(len(times) - size.snapshots, 0) + 1))
    window = times[start : start + size.snapshots]
    counts = _stratum_counts([len(stratum) for stratum in strata], size.nodes, random)
    chosen = [random.choice(stratum, count, replace=False) for stratum, count in zip(strata, counts, strict=True)]
    seed_nodes = np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))
    return BatchSpec(window, window, seed_nodes, hops, continues_state=False)


def _resolve_share(share: float, total: int) -> int:
    return min(total, max(1, round(share * total if share <= 1 else share)))


def _stratum_counts(sizes: Sequence[int], number: int, random: np.random.Generator) -> list[int]:
    """Nodes to take from each stratum: an equal share of each, remainders at random."""
    total = max(sum(sizes), 1)
    counts, rest = np.divmod(np.array(sizes, np.int64) * min(number, total), total)
    counts[random.permutation(np.flatnonzero(rest))[: rest.sum() // total]] += 1
    return list(map(int, counts))
