"""Batches of vertices with all their snapshots, and hybrid batches: sampled nodes in sampled snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.batching.base import Batching, BatchSpec, SourceContext, StepSource
from strobe.batching.subgraph_sampler import SizePolicy, SubgraphSampler
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.options import as_tuple
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


@dataclass(frozen=True, kw_only=True)
class Hybrid(Batching):
    """Every rank samples batches of its own nodes: a share ``vertices`` of them in a share ``snapshots`` of consecutive
    training snapshots, with their neighborhoods, from the initial state. (Definition 3 of Song et al. 2024.)

    Above 1, both are counts; a batch has at least ``min_nodes`` seed nodes. With several shares each pair is a batch
    size, and ``size_policy`` chooses one in every step: at random (random), or by a Q network (learned). A background
    thread samples batches and caches up to ``memory`` MiB of them. Seed nodes come in equal parts from ``num_strata``
    strata of similar load, where the placement knows loads. An epoch has ``steps_per_epoch`` steps (None: as many as
    cover about as many cells as the rank has).

    With all vertices and all snapshots a batch is the full batch.
    """

    name: ClassVar[str] = "hybrid"
    exact: ClassVar[bool] = False
    needs_hops: ClassVar[bool] = True
    gives: ClassVar[tuple[Fact, ...]] = ("batches per rank",)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            "local inputs",
            "a rank computes its batch without other ranks",
            "exchange structure cached, or placement replicated",
        ),
    )
    caches_windows: ClassVar[bool] = False
    uses_khop_cache: ClassVar[bool] = True
    depends_on_partition: ClassVar[bool] = True
    not_simulated: ClassVar[str | None] = "its batches are sampled while it trains: there are none to time"
    snapshots: float | Sequence[float] = 0.2
    vertices: float | Sequence[float] = 0.05
    size_policy: SizePolicy = "fixed"
    min_nodes: int = 1
    num_strata: int = 8
    steps_per_epoch: int | None = None
    memory: float = 1024.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("snapshots", "vertices"):
            shares = as_tuple(getattr(self, name))
            _check_shares(name, shares)
            object.__setattr__(self, name, shares if len(shares) > 1 else shares[0])
        number = len(as_tuple(self.snapshots)) * len(as_tuple(self.vertices))
        if self.size_policy == "fixed" and number > 1:
            raise OptionError(f"there are {number} batch sizes to choose from: give size_policy=random or learned")
        for name in ("min_nodes", "num_strata", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} of hybrid batches must be at least 1, not {value}")
        if self.memory < 0:
            raise OptionError(f"memory for batches must be 0 MiB or more, not {self.memory}")

    @property
    def sampler(self) -> SubgraphSampler:
        return SubgraphSampler(
            snapshots=as_tuple(self.snapshots),
            nodes=as_tuple(self.vertices),
            size_policy=self.size_policy,
            min_nodes=self.min_nodes,
            num_strata=self.num_strata,
            steps_per_epoch=self.steps_per_epoch,
            memory=self.memory,
        )

    def start(self, context: SourceContext) -> StepSource:
        return context.reservoir(self.sampler)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        """Empty: batches are sampled during training."""
        del graph, times, hops, seed
        return []


def _check_shares(name: str, shares: tuple[Any, ...]) -> None:
    if not shares:
        raise OptionError(f"{name} of a batch must be one or several numbers, not none")
    for share in shares:
        if not _is_share(share):
            raise OptionError(
                f"{name} of a batch must be a share, above 0 and up to 1, or a whole number above 1, not {share!r}"
            )


def _is_share(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 or (value > 1 and value % 1 == 0)  # neither infinite nor not a number
