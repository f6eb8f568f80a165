"""The trainer of an online run: places, evaluates, trains on and saves each snapshot.

Rank 0 places the cells of each snapshot when it arrives, and broadcasts their owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from strobe.batching.base import StreamingSource
from strobe.comm import Comm
from strobe.engine.checkpoint.store import TrainState
from strobe.engine.context import RunContext
from strobe.engine.evaluation.evaluate import score
from strobe.engine.inputs.graph_source import GraphSource
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.machine import peak_bytes, random_state
from strobe.engine.online.result import OnlineResult
from strobe.engine.online.update import update
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import ONLINE, RunRecord
from strobe.engine.records.timing import gather_ledgers
from strobe.engine.settings import DivergedError
from strobe.engine.sources.carried_states import StartedModel
from strobe.engine.sources.context import OnlineSources, source_state
from strobe.engine.train import initial_state, start_record
from strobe.errors import InputError, OptionError
from strobe.format import pluralize
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Partition
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement, grow_to
from strobe.plan import Plan
from strobe.tasks.base import Metrics

GRAPH = "graph"
"""The folder of the graph in a run directory."""


@dataclass(frozen=True, eq=False)
class RecentPartition(Partition):
    """Owners of the cells of the last snapshots alone. A sequence is its newest cell's owner's."""

    recent_owners: Mapping[int, IntArray] = field(default_factory=dict)

    def owners(self, graph: DynamicGraph, t: int) -> IntArray:
        del graph
        return self.recent_owners[t]


class StreamingPartition:
    """Owners of cells of the last ``num_recent`` snapshots, and of sequences. All ranks must place each snapshot."""

    def __init__(self, plan: Plan, comm: Comm, seed: int, num_recent: int) -> None:
        self._comm, self._num_recent = comm, num_recent
        self._whole_sequences = "whole sequences" in plan.placement.gives
        self._partitioner: StreamingPartitioner | None = None
        if comm.num_ranks > 1:
            if not isinstance(plan.placement, StreamingPlacement):
                raise OptionError(
                    f"placement {plan.placement} wants all snapshots at once, and they arrive one by one: take online, "
                    "greedy, hash, metis-so-far or metis-per-snapshot"
                )
            if plan.batching.history is None and not self._whole_sequences:
                raise OptionError(
                    f"placement {plan.placement} moves nodes between ranks, and batching {plan.batching} carries the "
                    "state of a node on one rank: take hash, greedy or metis-so-far"
                )
            self._partitioner = plan.placement.start(comm.num_ranks, seed=seed) if comm.rank == 0 else None
        self._owners: dict[int, IntArray] = {}
        self._newest: IntArray = np.empty(0, np.int16)
        self.num_arrived = 0
        """Snapshots that have arrived."""

    def place_next(self, snapshot: Snapshot) -> None:
        """Place the cells of the next snapshot; they never move."""
        self.num_arrived += 1
        if self._comm.num_ranks == 1:
            return
        with self._comm.rank_0_alone("place"):
            mine = None if self._partitioner is None else self._partitioner.place_next(snapshot)
        owners: IntArray = self._comm.broadcast_object(mine, kind="placement")
        self._owners[snapshot.t] = owners
        self._owners.pop(snapshot.t - self._num_recent, None)
        self._newest = grow_to(self._newest, snapshot).copy()
        self._newest[snapshot.nodes] = owners

    def partition_of(self, graph: DynamicGraph) -> Partition | None:
        """The partition of a graph whose snapshots have arrived; None on one rank."""
        if self._comm.num_ranks == 1:
            return None
        of_sequence = np.maximum(self._newest, 0)  # nodes that were never present have no owner: rank 0
        of_sequence = np.concatenate([of_sequence, np.zeros(graph.num_nodes - len(of_sequence), np.int16)])
        if self._whole_sequences:
            return Partition.by_node(self._comm.num_ranks, of_sequence, len(graph))
        return RecentPartition(
            self._comm.num_ranks,
            np.zeros(len(graph), np.int64),
            np.zeros(graph.num_nodes, np.int16),
            cell_owner=np.empty(0, np.int16),
            sequence_owner=of_sequence,
            recent_owners=self._owners,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state of the partitioner, on rank 0, as tensors and plain values."""
        state = {
            "ranks": self._comm.num_ranks,
            "count": self.num_arrived,
            "how": None if self._partitioner is None else self._partitioner.state_dict(),
            "owners": self._owners,
            "newest": self._newest,
        }
        as_tensors: dict[str, Any] = pytree.tree_map_only(np.ndarray, torch.from_numpy, state)
        return as_tensors

    def load_state_dict(self, found: dict[str, Any], graph: DynamicGraph) -> None:
        """Continue from a saved state; on another number of ranks all snapshots that had arrived are placed again."""
        if found["ranks"] != self._comm.num_ranks:
            for snapshot in graph[: found["count"]]:
                self.place_next(snapshot)
            return
        known = pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, found)
        self.num_arrived, self._owners, self._newest = known["count"], known["owners"], known["newest"]
        if self._partitioner is not None:
            self._partitioner.load_state_dict(known["how"])


class OnlineTrainer:
    """Trains on snapshots one by one, up to ``limit``, once there are enough to fit scales to.

    ``source_config`` describes their source; ``source`` is the graph they are of, None where it grows in the run
    directory.
    """

    def __init__(
        self,
        request: TrainRequest,
        earlier: dict[str, Any] | None,
        path: Path | None,
        record: RunRecord,
        progress: Progress,
        comm: Comm,
        *,
        source: GraphSource | None,
        source_config: Mapping[str, Any],
        limit: int | None,
    ) -> None:
        assert request.settings is not None
        assert isinstance(request.plan, Plan)
        assert request.settings.fit_snapshots is not None
        history = request.plan.batching.history or 1  # without a limit, states are carried from snapshot to snapshot
        self._request, self._path, self._source, self._source_config = request, path, source, source_config
        self._record, self._progress, self._comm = record, progress, comm
        self._fit, self._limit = request.settings.fit_snapshots, limit
        self._earlier = earlier if earlier is not None and earlier["problem"] is not None else None
        num_recent = history + self._fit  # labels may be known that much later
        self._arrivals = StreamingPartition(request.plan, comm, request.settings.seed, num_recent)
        self._job: Job | None = None
        self._state: TrainState | None = None
        self._run: RunContext | None = None
        self._saved_source: dict[str, Any] | None = None
        """The source's part of the checkpoint, until the source is made."""
        self._unsaved = False

    @property
    def num_learned(self) -> int:
        """Snapshots trained on."""
        return 0 if self._state is None else self._state.epoch

    @property
    def num_arrived(self) -> int:
        """How many snapshots have been placed."""
        return self._arrivals.num_arrived

    @property
    def is_done(self) -> bool:
        return self._limit is not None and self.num_learned >= self._limit

    def resume(self, open_graph: Callable[[int | None], DynamicGraph]) -> None:
        """Goes on where the run stopped. ``open_graph``: the first snapshots of the graph; None: all that are there."""
        if self._earlier is not None:
            self._start(open_graph(None))
            self._learn_pending(open_graph(self.num_arrived))

    def add_snapshot(self, graph: DynamicGraph) -> None:
        """The last snapshot of a graph has arrived; all before it had."""
        self._arrivals.place_next(graph[len(graph) - 1])
        self._learn_pending(graph)

    def _learn_pending(self, graph: DynamicGraph) -> None:
        """Learns from all snapshots whose answers are known."""
        if len(graph) < self._fit:
            return
        if self._job is None:
            self._start(graph)
        assert self._job is not None
        self._rebind(graph)
        newest = self._job.problem.split.validation.start
        for t in range(self.num_learned, newest + 1):
            if self.is_done:
                return
            self._learn(graph, t, evaluate=len(graph) > self._fit)

    def finish(self, rows: Mapping[str, int]) -> OnlineResult:
        """All that came of it; ``rows`` are those of the source, counted by what became of them."""
        job, state = self._job, self._state
        if job is None or state is None:
            raise OptionError(
                f"{pluralize(self.num_arrived, 'snapshot')} arrived, and scales are fitted to {self._fit}: "
                "resume when there are more, or fit scales to fewer (--fit-snapshots)"
            )
        self._save()
        watched = replace(self._result(job, state), rows=rows)
        self._record.finish(watched.to_json(), {ONLINE: watched.chart()})
        return watched

    def _result(self, job: Job, state: TrainState) -> OnlineResult:
        return OnlineResult(
            path=self._path,
            graph=job.source.name,
            model=job.choice.name,
            task=job.task.name,
            metric=job.problem.metric,
            higher_is_better=job.problem.higher_is_better,
            history=state.history,
            weights=state.weights(),
            services=job.services,
        )

    def _start(self, graph: DynamicGraph) -> None:
        """Weights, and what they are trained with; from a checkpoint, where there is one."""
        given = replace(self._request, graph=graph[: self._fit] if self._earlier is None else graph)
        # A graph that grows differs from what it was; one that is replayed must be the same.
        changed = {"fingerprint": None} if self._source is None else {}
        earlier = None if self._earlier is None else self._earlier | changed
        try:
            job = resolve(given, earlier, self._progress, self._comm)
        except InputError as error:
            about = f"the first {self._fit} snapshots, to which scales are fitted (--fit-snapshots)"
            raise InputError(f"{error}\nThis is about {about}.") from error
        self._job = replace(job, source=self._graph_source(graph))
        config = self._job.to_json() | changed | {"online": dict(self._source_config)}
        self._state, resumed = initial_state(self._job), self._earlier is not None
        start_record(self._job, self._record, self._state, resumed=resumed, config=config)
        arrived = self._comm.broadcast_object(self._state.parts.get("online"), kind="setup")
        if self._earlier is not None and arrived is not None:
            self._arrivals.load_state_dict(arrived, graph)
        self._saved_source = self._state.parts.get("source")
        self._state.parts = {}
        _check_num_ranks(self._saved_source, self._comm)

    def _graph_source(self, graph: DynamicGraph) -> GraphSource:
        if self._source is not None:
            return self._source
        assert self._path is not None
        name = str(self._source_config.get("name", GRAPH))
        return GraphSource(graph, {"path": str((self._path / GRAPH).resolve())}, name)

    def _rebind(self, graph: DynamicGraph) -> None:
        """The same run on a graph that has grown."""
        assert self._job is not None
        job = self._job
        problem = job.task.rebind(job.problem, graph)
        newest = len(graph) - 1 - problem.target_delay
        self._job = replace(job, source=replace(job.source, graph=graph), problem=problem.with_online_split(newest))
        self._job.set_partition(self._arrivals.partition_of(graph))

    def _learn(self, graph: DynamicGraph, t: int, *, evaluate: bool) -> None:
        """Judges the newest snapshot whose answers are known, then learns from it."""
        assert self._job is not None
        assert self._state is not None
        job, state = self._job, self._state
        if self._run is None:
            source = job.plan.batching.start(OnlineSources(job))
            state.parts = {"source": self._saved_source}
            self._run = RunContext.start(job, state, source, self._record, self._progress)
        self._run = replace(self._run, job=job)
        line: dict[str, Any] = {"epoch": t + 1, "snapshot": str(graph.times[t]), "arrived": len(graph)}
        began = perf_counter()
        if evaluate:
            line |= self._evaluate(t)
        trained = perf_counter()
        result = update(self._run, t)
        state.epoch = t + 1
        before = state.history[-1]["step"] if state.history else 0
        line |= {"step": before + result.num_steps, "loss": result.loss, **result.log()}
        line |= {"best": None, "best_epoch": 0, "lr": job.settings.lr}
        line |= {"train_s": round(perf_counter() - trained, 6), "evaluate_s": round(trained - began, 6)}
        line |= peak_bytes(job.device)
        line |= gather_ledgers(job)[0]
        if not state.is_finite():
            raise DivergedError("a weight of the model", state.epoch, job.settings)
        state.history.append(line)
        self._record.epoch(line)
        self._unsaved = True
        if self._comm.broadcast_object(self._record.is_due(), kind="setup"):
            self._save()
        self._progress.epoch(line)

    def save_pending(self) -> None:
        """Save the latest weights while no snapshot arrives."""
        if self._unsaved:
            self._save()

    def _evaluate(self, t: int) -> dict[str, Any]:
        assert self._job is not None
        assert self._state is not None
        assert self._run is not None
        source, model, part = self._run.source, self._state.model, range(t, t + 1)
        assert isinstance(source, StreamingSource)
        windows, states = source.evaluation_windows(self._job, part), source.carried_states
        started = model if states is None else StartedModel(model, states)
        found: Metrics = score(started, self._state.head, self._job, windows, part)
        with self._comm.rank_0_alone("evaluate"):
            baselines = self._job.problem.baselines("validation") if self._comm.rank == 0 else {}
        problem = self._job.problem
        metric = {"metric": problem.metric, "higher_is_better": problem.higher_is_better}
        return {**metric, "validation": found, "baselines": baselines}

    def _save(self) -> None:
        assert self._job is not None
        assert self._state is not None
        with self._comm.ledger.phase("save"):
            self._state.random = self._comm.all_gather_object(random_state(), kind="setup")
            saved = self._saved_source if self._run is None else source_state(self._run.source, self._comm)
            with self._comm.rank_0_alone("checkpoint"):
                parts = {"online": self._arrivals.state_dict(), "source": saved}
                self._state.parts = parts if self._comm.rank == 0 else {}
                self._record.save(self._state)
                self._state.parts = {}
                if self._comm.rank == 0:
                    self._record.draw({ONLINE: self._result(self._job, self._state).chart()})
        self._unsaved = False


def _check_num_ranks(saved: dict[str, Any] | None, comm: Comm) -> None:
    """Refuse to resume on another number of ranks where every rank has states of its own."""
    ranks = None if saved is None else saved["ranks"]
    if ranks is not None and len(ranks) != comm.num_ranks:
        raise OptionError(
            f"the states of the run's nodes are on {pluralize(len(ranks), 'rank')}: resume it with as many (ranks, "
            "--ranks)"
        )
