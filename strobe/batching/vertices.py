"""Batches of vertices, each with all its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.batching.base import Batch, Batching
from strobe.errors import OptionError
from strobe.graph import DynamicGraph


@dataclass(frozen=True, kw_only=True)
class Vertices(Batching):
    """A step per ``size`` nodes, drawn once by the seed: their sequences whole, with all they read around them.

    What a target reads is what it reads in the whole graph, for models of one structure stage before one time stage;
    where a convolution reads states or a second block reads the first one's, cells at the rim of a batch know less.
    """

    name: ClassVar[str] = "vertices"
    exact: ClassVar[bool] = False
    wants_hops: ClassVar[bool] = True
    size: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a batch has at least 1 vertex, not {self.size}")

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        seen = np.zeros(graph.num_nodes, bool)
        for t in times:
            seen[graph[t].nodes] = True
        order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(seen))
        return [
            Batch(times, times, np.sort(order[start : start + self.size]), hops, carries=False)
            for start in range(0, len(order), self.size)
        ]
