"""The inputs of a run: graph, task, model, plan, settings, ranks and device."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

import strobe
from strobe.batching import BatchSpec
from strobe.batching.base import build_sliding_windows, split_times
from strobe.comm import Comm, SingleRankComm
from strobe.engine.example_cache import ByteBudget
from strobe.engine.inputs.cached_results import CachedResults, task_key
from strobe.engine.inputs.graph_source import GraphSource, fingerprint
from strobe.engine.inputs.model_choice import ModelChoice, task_json
from strobe.engine.machine import free_bytes, seed_all
from strobe.engine.model_costs import measure_model_costs
from strobe.engine.partitioned_graph import PartitionedGraph, partition_graph
from strobe.engine.progress import Progress
from strobe.engine.services import Services
from strobe.engine.settings import Settings
from strobe.engine.sources.khop_cache import KHopCacheLoader
from strobe.engine.trace import model_reads, sparse_products
from strobe.engine.windows import Window, cut_windows, iter_windows, window_of_batch
from strobe.placement import ModelCosts, Partition
from strobe.placement.model_costs import LoadModel, count_load
from strobe.plan import Plan
from strobe.tasks import Problem, Task
from strobe.tasks.base import Examples, Metrics
from strobe.view import KHopCache
from strobe.view.offload import OffloadedWindows


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that stays the same while a run trains."""

    source: GraphSource
    choice: ModelChoice
    task: Task
    problem: Problem
    settings: Settings
    plan: Plan
    comm: Comm
    device: torch.device
    threads: int
    offload: bool = False
    """Whether windows are on the device only while they are computed."""
    services: Services = field(default_factory=Services, repr=False)
    fits_in_memory: bool = False
    """Whether all cached windows and examples are known to fit."""
    progress: Progress = field(default_factory=Progress, repr=False)
    graph_results: CachedResults = field(default_factory=CachedResults, repr=False)
    _partitioned: list[PartitionedGraph] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def batches(self) -> list[BatchSpec]:
        """The batches of an epoch."""
        batching, problem = self.plan.batching, self.problem
        hops = sparse_products(self.choice, problem.graph) if batching.needs_hops else 0
        return batching.batches(problem.graph, problem.split.train, hops=hops, seed=self.settings.seed)

    @property
    def partitioned_graph(self) -> PartitionedGraph:
        """The partitioned graph, computed once. All ranks must ask for it: rank 0 partitions."""
        # Not cached_property: its lock would be held while this rank waits for others.
        if not self._partitioned:
            self._partitioned.append(self._partition_graph())
        return self._partitioned[0]

    def set_partition(self, placed: Partition | None) -> None:
        """Who has what, where somebody else has decided it."""
        graph, dtype = self.problem.graph, self.settings.dtype
        self._partitioned[:] = [PartitionedGraph(graph, self.plan, self.comm, placed, device=self.device, dtype=dtype)]

    def _partition_graph(self) -> PartitionedGraph:
        graph, split = self.problem.graph, self.problem.split
        together = [batch.times for batch in self.batches if batch.seed_nodes is None] or [split.train]
        others = [
            piece for part in (split.validation, split.test) for piece in split_times(part, self.plan.batching.window)
        ]
        windows = [piece for window in (*together, *others) for piece in split_times(window, self.settings.recompute)]
        work = (lambda: self.model_costs) if self.plan.placement.needs_model_costs else None
        if self.comm.num_ranks > 1 or self.plan.batching.needs_partition:
            self.progress.stage(f"placing cells by {self.plan.placement}", 0, None)
        placed = partition_graph(
            graph, self.plan, self.comm, windows, split.train, self.settings.seed, work, self.results
        )
        sharing = PartitionedGraph(
            graph, self.plan, self.comm, placed, device=self.device, dtype=self.settings.row_dtype
        )
        sharing.offloader = OffloadedWindows(self.device) if self.offload else None
        sharing.example_budget = ByteBudget.of_device(self.device, fits=self.fits_in_memory)
        return sharing

    @cached_property
    def model_costs(self) -> ModelCosts:
        """Bytes sent and costs of the model, for placements that need them."""
        graph, dtype = self.problem.graph, self.settings.dtype
        loads: LoadModel = count_load
        if self.plan.placement.needs_measured_loads:
            loads = self.services.predicted_loads(self)
        return measure_model_costs(self.choice, graph, self.plan.exchange, dtype, loads)

    @property
    def results(self) -> CachedResults:
        """Cached results of the problem, and of its graph; none where another problem or graph has replaced it."""
        found = self.graph_results
        return found if found.problem is self.problem and found.source is self.source else CachedResults()

    def baselines(
        self, part: str, problem: Problem | None = None, *, scored: Mapping[int, Examples] | None = None
    ) -> dict[str, Metrics]:
        """Metrics of trivial predictors on a part, of this job's problem or another one of its task. ``scored`` are
        examples of some snapshots that the evaluation has made."""
        problem = self.problem if problem is None else problem
        key = task_key(self.task, self.plan)
        if key is not None:
            split = problem.split
            spans = [[each.start, each.stop] for each in (split.train, split.validation, split.test)]
            key |= {"problem": problem.state(), "part": part, "split": [*spans, split.gap]}
        found: dict[str, Metrics] = self.results.json(
            "baselines", key, lambda: problem.baselines_of(part, scored or {})
        )
        return found

    @property
    def caches_windows(self) -> bool:
        """Whether windows are built once and cached for all epochs."""
        return self.plan.batching.caches_windows and not self.uses_khop_cache

    @property
    def uses_khop_cache(self) -> bool:
        """Whether training reads only the k-hop cache of this rank."""
        shares = self.comm.num_ranks > 1 and "local inputs" in self.plan.exchange.gives
        return shares or self.plan.batching.uses_khop_cache

    @cached_property
    def khop_cache(self) -> KHopCacheLoader:
        """The k-hop cache of this rank's training cells. The graph must be partitioned."""
        exchange, reads = self.plan.exchange.structure, model_reads(self.choice, self.problem.graph)
        reads = replace(reads, hops=exchange.cache_hops(reads.hops))
        own = self._partitioned[0].own_nodes()
        cache = KHopCache(self.problem.graph, self.problem.split.train, own, reads, self.settings.dtype)
        exchange.check_cache_size(cache.predicted_bytes(), free_bytes(self.device), reads.hops)
        return KHopCacheLoader(cache.build(), own, self.problem, self.device)

    def windows(self, times: range) -> list[Window]:
        return cut_windows(self.partitioned_graph, times, self.plan.batching.window, self.settings.recompute)

    def evaluation_batches(self, times: range) -> list[BatchSpec] | None:
        """The batches that score snapshots ``times`` from a bounded history; None: states are carried from the first
        snapshot on."""
        history = self.settings.eval_history
        if history == "auto":
            return self.plan.batching.evaluation_batches(times)
        return None if history == "all" else build_sliding_windows(times, history)

    def evaluation_windows(self, times: range, known: Iterable[Window] | None = None) -> Iterator[Window]:
        """The windows that score snapshots ``times``, one at a time, each released before the next is made.

        Args:
            times: the snapshots that are scored.
            known: windows of all snapshots before ``times``, a part, where the caller has kept them.
        """
        batches, segment = self.evaluation_batches(times), self.settings.recompute
        if batches is not None:
            return (window_of_batch(self.partitioned_graph, batch, segment) for batch in batches)
        # States are carried through all parts, cut as in training, so that the same numbers come out.
        split, start = self.problem.split, 0 if known is None else times.start
        parts = [split.train, split.validation, split.test, range(split.test.stop, len(self.problem.graph))]
        read = [range(part.start, min(part.stop, times.stop)) for part in parts if start <= part.start < times.stop]
        made = (iter_windows(self.partitioned_graph, part, self.plan.batching.window, segment) for part in read)
        return chain(() if known is None else known, chain.from_iterable(made))

    def validation_windows(self, training: list[Window] | None = None) -> list[Window]:
        """The windows that score the validation part, cached for all epochs. ``training``: windows of the training part
        whose states are carried on."""
        split = self.problem.split
        batches = self.evaluation_batches(split.validation)
        if batches is not None:
            return [window_of_batch(self.partitioned_graph, batch, self.settings.recompute) for batch in batches]
        before = self.windows(split.train) if training is None else training
        return [*before, *self.windows(split.validation)]

    def on_one_rank(self) -> Job:
        """The same on one rank: what is done with a run once it is trained."""
        return replace(self, comm=SingleRankComm())

    def make_model(self) -> tuple[nn.Module, nn.Module]:
        """A fresh model and its head, on the device; the same for the same seed."""
        seed_all(self.settings.seed)
        features = self.problem.graph.features
        assert features is not None  # every task sees to that
        model = self.choice.make(features.shape[0])
        head = self.problem.head(model.width)  # type: ignore[arg-type]
        return model.to(self.device, self.settings.dtype), head.to(self.device, self.settings.dtype)

    def to_json(self) -> dict[str, Any]:
        """The contents of ``config.json``."""
        versions = {"strobe": strobe.__version__, "torch": torch.__version__, "numpy": np.__version__}
        return {
            "name": f"{self.choice.name} on {self.source.name}",
            "graph": self.source.origin,
            "fingerprint": fingerprint(self.source.graph),
            "model": self.choice.to_json(),
            "task": task_json(self.task),
            "problem": self.problem.state(),
            "settings": self.settings.to_json(),
            "plan": self.plan.to_json(),
            "ranks": self.comm.num_ranks,
            "versions": versions | {"python": platform.python_version()},
            "machine": {"device": str(self.device), "threads": self.threads, "cores": os.cpu_count()},
        }
