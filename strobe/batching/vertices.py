"""Batches of vertices, each with all its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.batching.base import Batch, Batching
from strobe.batching.drawing import Drawing
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Vertices(Batching):
    """A step per ``size`` nodes, drawn once by the seed: their sequences whole, with all they read around them.

    With ``reservoir`` MiB every rank draws its own, beside training, and keeps them in so much memory for later steps.

    What a target reads is what it reads in the whole graph, for models of one structure stage before one time stage;
    where a convolution reads states or a second block reads the first one's, cells at the rim of a batch know less.
    """

    name: ClassVar[str] = "vertices"
    exact: ClassVar[bool] = False
    wants_hops: ClassVar[bool] = True
    size: int = 10_000
    reservoir: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a batch has at least 1 vertex, not {self.size}")
        if self.reservoir is not None and self.reservoir < 0:
            raise OptionError(f"memory for batches must be 0 MiB or more, not {self.reservoir}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return () if self.drawing is None else ("batches per rank",)

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "a rank draws its batches out of its nodes and computes them alone"
        fix = "exchange structure cached, placement replicated, or no reservoir"
        return () if self.drawing is None else (Need("inputs at hand", why, fix),)

    @property
    def drawing(self) -> Drawing | None:
        if self.reservoir is None:
            return None
        nodes = float(self.size) if self.size > 1 else 0.0  # 1 would be a share, all of them; of the least there is one
        return Drawing(snapshots=(1.0,), nodes=(nodes,), memory=self.reservoir)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        if self.drawing is not None:
            return []
        seen = np.zeros(graph.num_nodes, bool)
        for t in times:
            seen[graph[t].nodes] = True
        order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(seen))
        return [
            Batch(times, times, np.sort(order[start : start + self.size]), hops, carries=False)
            for start in range(0, len(order), self.size)
        ]
