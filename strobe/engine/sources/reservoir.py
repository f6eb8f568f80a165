"""Subgraphs sampled in the background and reused from a reservoir."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from strobe.batching.base import StepResult, StepSource
from strobe.batching.reservoir import Reservoir
from strobe.batching.size_agent import SizeAgent
from strobe.batching.subgraph_sampler import BatchSize, SubgraphSampler, sample_batch
from strobe.engine.job import Job
from strobe.engine.sources.prepared import load_khop_cache, load_windows
from strobe.engine.windows import Window
from strobe.errors import FormatError
from strobe.placement.load_aware import stratify_by_load
from strobe.schedule.base import Pacer

_NUM_READY = 16
"""Batches, of all sizes together, that wait for the first step."""

_SIZES, _BATCHES, _REUSED, _AGENT = 11, 12, 13, 14
"""What random numbers are for: streams of their own."""


class ReservoirSource(StepSource):
    """One rank's batches. All ranks must make theirs: rank 0 decides how many steps an epoch has."""

    ranks_share_cells = False

    def __init__(self, job: Job, sampler: SubgraphSampler) -> None:
        load_khop_cache(job)
        self._validation = job.validation_windows()
        load_windows(job, [], self._validation)
        loader, times = job.khop_cache, job.problem.split.train
        comm, seed = job.comm, job.settings.seed
        self._ledger, self._rank = comm.ledger, comm.rank
        counts = len(times), len(loader.own_nodes)
        candidates: list[int] = comm.broadcast_object(sampler.candidates(*counts), kind="setup")
        self.sizes: list[BatchSize] = sampler.sizes(*counts, candidates)
        self._num_steps: int = comm.broadcast_object(sampler.num_steps(*counts), kind="setup")
        placed = job.partitioned_graph.partition
        loads = None if placed is None else placed.node_loads
        groups = [loader.own_nodes] if loads is None else stratify_by_load(loader.own_nodes, loads, sampler.num_strata)

        def make(kind: int, number: int) -> Window:
            where = seed, comm.rank, _BATCHES, kind, number
            return loader.load_prepared_window(
                sample_batch(times, groups, self.sizes[kind], loader.cache.model_reads.hops, where)
            )

        self._reservoir: Reservoir[Window] = Reservoir(
            make,
            sampler.capacities(*counts, candidates),
            seed=(seed, comm.rank, _REUSED),
            limit=sampler.memory * 2**20,
            num_bytes=loader.window_bytes,
        )
        self._reservoir.warm_up(-(-_NUM_READY // len(self.sizes)))
        self._random = np.random.default_rng([seed, comm.rank, _SIZES]) if sampler.size_policy == "random" else None
        learns = sampler.size_policy == "learned" and len(self.sizes) > 1
        self._agent = SizeAgent(len(self.sizes), seed=seed + _AGENT) if learns else None
        self._size = 0 if self._agent is None else self._agent.action  # the number of the next batch's size

    @property
    def steps_per_epoch(self) -> int:
        return self._num_steps

    @property
    def validation_windows(self) -> Iterable[Window]:
        return self._validation

    def start(self) -> None:
        self._reservoir.start()

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        del epoch
        step = 0
        while pacer.more(step, self._num_steps):
            if self._random is not None:
                self._size = int(self._random.integers(len(self.sizes)))
            with self._ledger.phase("draw"):
                window, _ = self._reservoir.take(self._size)
            self._ledger.seconds["prefetch_overlapped_s"] += self._reservoir.pop_overlapped_s()
            yield {self._size: window}
            step += 1

    def observe(self, result: StepResult, pacer: Pacer) -> None:
        """The agent of rank 0 chooses the size of the next batches for all ranks."""
        if self._agent is None:
            return
        if self._rank == 0:
            self._size = self._agent.observe(result.loss / max(result.num_examples, 1), result.seconds)
        self._size = pacer.publish(self._size)

    def artifacts(self) -> dict[str, Any]:
        return {"batch_sizes": [str(size) for size in self.sizes]}

    def state_dict(self) -> dict[str, Any]:
        """Which batches come next, as plain values and tensors."""
        return {
            "reservoir": self._reservoir.state_dict(),
            "random": None if self._random is None else self._random.bit_generator.state,
            "agent": None if self._agent is None else self._agent.state_dict(),
            "size": self._size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._reservoir.load_state_dict(state["reservoir"])
        if self._random is not None:
            self._random.bit_generator.state = state["random"]
        if self._agent is not None:
            self._agent.load_state_dict(state["agent"])
        if not 0 <= state["size"] < len(self.sizes):
            raise FormatError(f"the checkpoint's batches are damaged: there is no size {state['size']}")
        self._size = state["size"]

    def close(self) -> None:
        self._reservoir.close()
