"""Batches that are drawn while training goes on: some nodes, in some consecutive snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from strobe.batching.base import Batch
from strobe.ops.csr import IntArray

Chosen = Literal["fixed", "random", "learned"]
"""How the size of a batch is chosen: there is only one; by lot in every step; or by a learner."""


@dataclass(frozen=True)
class Size:
    """So many snapshots, so many nodes."""

    snapshots: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes in {self.snapshots:,} snapshots"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How one rank draws batches: of every size in the grid of ``snapshots`` and ``nodes``, which are shares of the
    training snapshots and of the rank's nodes, or, above 1, numbers of them; there is one at least, and at most all. Of
    nodes there are at least ``least``, if the rank has as many.

    Nodes come in equal parts out of ``groups`` groups, which are alike in what it takes to compute them. An epoch has
    ``steps`` steps; None: as many as it takes batches of a middling size to have as many cells as the rank. ``memory``
    MiB hold batches that were drawn once.
    """

    snapshots: tuple[float, ...]
    nodes: tuple[float, ...]
    chosen: Chosen = "fixed"
    least: int = 1
    groups: int = 1
    steps: int | None = None
    memory: float = 1024.0

    def candidates(self, num_snapshots: int, num_nodes: int) -> list[int]:
        """Which sizes of the grid are chosen from, as their numbers in it: where there are few snapshots or nodes,
        several shares are the same number of them, and only the first is a candidate.

        Ranks may have different numbers of nodes: rank 0's candidates are those of all.
        """
        grid = self._grid(num_snapshots, num_nodes)
        return [k for k, size in enumerate(grid) if grid.index(size) == k]

    def sizes(self, num_snapshots: int, num_nodes: int, candidates: Sequence[int] | None = None) -> list[Size]:
        """The candidates on a rank with so many of each; ``candidates`` of another rank may be alike here."""
        grid = self._grid(num_snapshots, num_nodes)
        return [grid[k] for k in (self.candidates(num_snapshots, num_nodes) if candidates is None else candidates)]

    def num_steps(self, num_snapshots: int, num_nodes: int) -> int:
        """Steps of an epoch."""
        counts = sorted(size.snapshots * size.nodes for size in self.sizes(num_snapshots, num_nodes))
        return self.steps or max(1, round(num_snapshots * num_nodes / max(counts[len(counts) // 2], 1)))

    def capacities(self, num_snapshots: int, num_nodes: int, candidates: Sequence[int] | None = None) -> list[int]:
        """How many batches of each size are kept: those of all sizes together have about as many cells as the rank."""
        sizes = self.sizes(num_snapshots, num_nodes, candidates)
        cells = num_snapshots * num_nodes / len(sizes)
        return [max(1, int(cells / max(size.snapshots * size.nodes, 1))) for size in sizes]

    def _grid(self, num_snapshots: int, num_nodes: int) -> list[Size]:
        nodes = [min(num_nodes, max(self.least, _part(share, num_nodes))) for share in self.nodes]
        return [Size(_part(share, num_snapshots), number) for share in self.snapshots for number in nodes]


def draw(times: range, groups: Sequence[IntArray], size: Size, hops: int, seed: Sequence[int]) -> Batch:
    """A batch of a size: where it begins and whom it asks is drawn by the seed."""
    random = np.random.default_rng(list(seed))
    start = int(random.integers(max(len(times) - size.snapshots, 0) + 1))
    window = times[start : start + size.snapshots]
    counts = _counts([len(group) for group in groups], size.nodes, random)
    chosen = [random.choice(group, count, replace=False) for group, count in zip(groups, counts, strict=True)]
    targets = np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))
    return Batch(window, window, targets, hops, carries=False)


def _part(share: float, whole: int) -> int:
    return min(whole, max(1, round(share * whole if share <= 1 else share)))


def _counts(sizes: Sequence[int], number: int, random: np.random.Generator) -> list[int]:
    """How many to take of each group: the same share of each; what is left over goes to groups by lot."""
    whole = max(sum(sizes), 1)
    counts, rest = np.divmod(np.array(sizes, np.int64) * min(number, whole), whole)
    counts[random.permutation(np.flatnonzero(rest))[: rest.sum() // whole]] += 1
    found: list[int] = counts.tolist()
    return found
