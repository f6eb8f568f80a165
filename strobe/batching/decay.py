"""Windows that slide by one snapshot, thinner the older their snapshots are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strobe.ops.csr import IntArray


@dataclass(frozen=True)
class Decay:
    """How much of a snapshot a step computes, by its age: all of the ``full`` newest ones, then of ``decayed`` more a
    constant factor less each time, down to a share ``keep``; nothing of older ones."""

    full: int
    decayed: int
    keep: float
    evened: bool = True
    """Whether what is kept of a cell's neighbours weighs as much as all of them."""

    @property
    def window(self) -> int:
        """Snapshots of a step."""
        return self.full + self.decayed

    @property
    def whole(self) -> bool:
        """Whether nothing is ever left out."""
        return not self.decayed or self.keep == 1

    def kept(self, num_chunks: int) -> tuple[int, ...]:
        """Chunks that are computed at each age, the newest first: N' = floor(keep^(1 / decayed) N), but never none."""
        beta = self.keep ** (1 / self.decayed) if self.decayed else 1.0
        found = [num_chunks] * self.full
        for _ in range(self.decayed):
            found.append(max(math.floor(beta * found[-1]), min(1, num_chunks)))
        return tuple(found)

    def share(self, num_chunks: int) -> float:
        """What a step computes of a window that keeps everything. Counted in chunks, which stay by lot: the rows of a
        step are as many in the mean."""
        return sum(self.kept(num_chunks)) / max(self.window * num_chunks, 1)

    def times(self, t: int, start: int) -> range:
        """The snapshots of the step whose newest one is t, in a stretch of time that begins at ``start``."""
        return range(max(start, t - self.window + 1), t + 1)


class Tune(NamedTuple):
    """How a decay is tuned: every so many epochs, up to a share ``most`` of a window that keeps everything."""

    every: int
    most: float


def survival(rank_of_chunk: IntArray, seed: tuple[int, ...]) -> IntArray:
    """The place of every chunk in the order in which they stay, [chunks]: the first ones stay longest.

    Each rank's chunks come in an order by lot, and ranks take turns in proportion to how many they have: of whatever
    is kept every rank has its share.
    """
    random = np.random.default_rng(list(seed))
    share = np.empty(len(rank_of_chunk))
    for rank in np.unique(rank_of_chunk).tolist():
        mine = np.flatnonzero(rank_of_chunk == rank)
        share[random.permutation(mine)] = (np.arange(len(mine)) + 0.5) / len(mine)
    place = np.empty(len(share), np.int64)
    place[np.argsort(share, kind="stable")] = np.arange(len(share))
    return place
