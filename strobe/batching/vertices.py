"""Batches of vertices with all their snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.batching.base import Batching, BatchSpec, SourceContext, StepSource
from strobe.batching.subgraph_sampler import SubgraphSampler
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Vertices(Batching):
    """A step per ``size`` nodes, in an order sampled once by the seed: their whole sequences and neighborhoods.

    With ``reservoir`` MiB every rank samples batches of its own nodes in a background thread and caches that many
    bytes of them for later steps.

    A seed node reads all that it reads in the full graph for models of one structure stage before one time stage. Where
    a convolution reads states, or a second block reads the first, cells at the boundary of a batch read less.
    """

    name: ClassVar[str] = "vertices"
    exact: ClassVar[bool] = False
    needs_hops: ClassVar[bool] = True
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
        return () if self.sampler is None else ("batches per rank",)

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "a rank samples batches of its own nodes and computes them without other ranks"
        fix = "exchange structure cached, placement replicated, or no reservoir"
        return () if self.sampler is None else (Need("local inputs", why, fix),)

    @property
    def sampler(self) -> SubgraphSampler | None:
        if self.reservoir is None:
            return None
        nodes = float(self.size) if self.size > 1 else 0.0  # 1.0 would be a share; 0 becomes min_nodes = 1
        return SubgraphSampler(snapshots=(1.0,), nodes=(nodes,), memory=self.reservoir)

    @property
    def uses_khop_cache(self) -> bool:
        return self.sampler is not None

    @property
    def caches_windows(self) -> bool:
        return self.sampler is None

    @property
    def depends_on_partition(self) -> bool:
        return self.sampler is not None

    @property
    def not_simulated(self) -> str | None:
        return None if self.sampler is None else "its batches are sampled while it trains: there are none to time"

    def start(self, context: SourceContext) -> StepSource:
        return super().start(context) if self.sampler is None else context.reservoir(self.sampler)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        if self.sampler is not None:
            return []
        seen = np.zeros(graph.num_nodes, bool)
        for t in times:
            seen[graph[t].nodes] = True
        order = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(seen))
        return [
            BatchSpec(times, times, np.sort(order[start : start + self.size]), hops, continues_state=False)
            for start in range(0, len(order), self.size)
        ]
