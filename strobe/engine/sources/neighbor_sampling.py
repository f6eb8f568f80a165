"""Windows of sampled neighborhoods of some examples, and the features that a rank stores for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from strobe.batching.base import StreamingSource
from strobe.batching.sampled import Sampled
from strobe.comm import Comm
from strobe.comm.base import Work
from strobe.comm.rows import Route
from strobe.engine.example_cache import ExampleCache
from strobe.engine.examples import LocalExamples, all_examples
from strobe.engine.job import Job
from strobe.engine.sources.prepared import StreamedValidation
from strobe.engine.trace import traced_call_order
from strobe.engine.windows import Segment, Window
from strobe.errors import OptionError
from strobe.exchange.fetch import exchange_requests, send_features
from strobe.exchange.halo import find_halo
from strobe.ops.sparse.csr import IntArray, distinct
from strobe.ops.sparse.sampling import ALL_NEIGHBORS, Sample
from strobe.schedule.base import Pacer
from strobe.tasks.base import Examples, Problem, edge_ends
from strobe.tasks.positions import find_positions
from strobe.view.data.sampled import SampledData, SeedNodes, Topology


class _StoredSnapshot(NamedTuple):
    topology: Topology
    owner: IntArray  # [n]
    own: IntArray  # [n] which of the rank's rows each cell is, of cells that it has
    first: int  # the number of its first cell


@dataclass(frozen=True, eq=False)
class PendingFeatures:
    """Rows of features that this rank has, and those on their way."""

    rows: Tensor  # [C, F], filled where they are
    missing: IntArray  # rows that arrive, in order of sender
    pending: Sequence[Work]

    def wait(self) -> Tensor:
        """All of them."""
        if self.pending:
            self.rows[torch.from_numpy(self.missing)] = torch.cat([arrival.wait() for arrival in self.pending])
        return self.rows


class LocalFeatureStore:
    """Features and topology of the snapshots of the current window; a rank stores features of its own cells alone."""

    def __init__(self, job: Job) -> None:
        self._comm: Comm = job.comm
        self._dtype = job.settings.dtype
        self._rows_store = job.plan.store.row_store()
        self._snapshots: dict[int, _StoredSnapshot] = {}

    def __getitem__(self, t: int) -> Topology:
        return self._snapshots[t].topology

    def owners(self, t: int) -> IntArray:
        """The owner of every cell of a snapshot, [n]."""
        return self._snapshots[t].owner

    def slide(self, job: Job, times: range) -> None:
        """Move to the snapshots of another window. One that starts earlier is read again."""
        if any(t >= times.stop or (t < times.start and times.start not in self._snapshots) for t in self._snapshots):
            self._snapshots, self._rows_store = {}, job.plan.store.row_store()
        while self._snapshots and min(self._snapshots) < times.start:
            del self._snapshots[self._rows_store.drop()]
        for t in times:
            if t not in self._snapshots:
                self._add(job, t)

    def _add(self, job: Job, t: int) -> None:
        graph, placed = job.problem.graph, job.partitioned_graph.partition
        snapshot = graph[t]
        owner: IntArray = np.zeros(snapshot.num_nodes, np.int16)
        if job.partitioned_graph.is_partitioned and placed is not None:
            owner = placed.owners(graph, t)
        mine = owner == self._comm.rank
        own = np.cumsum(mine, dtype=np.int32) - 1
        x = np.asarray(snapshot.x)[mine].astype(torch.empty(0, dtype=self._dtype).numpy().dtype, copy=False)
        self._comm.ledger.count(rows_loaded=len(x))
        self._rows_store.add(t, snapshot.nodes[mine], x)
        self._snapshots[t] = _StoredSnapshot(Topology(snapshot), owner, own, int(graph.cell_ptr[t]))

    def fetch(self, times: range, drawn: Sequence[Sample], width: int) -> PendingFeatures:
        """Features of sampled cells: own rows at once, remote rows in flight. All ranks call it."""
        held = [self._snapshots[t] for t in times]
        numbers = np.concatenate(
            [s.first + each.position.astype(np.int64) for s, each in zip(held, drawn, strict=True)]
        )
        owner = np.concatenate([s.owner[each.position] for s, each in zip(held, drawn, strict=True)])
        rows = torch.empty(len(numbers), width, dtype=self._dtype)
        mine = np.flatnonzero(owner == self._comm.rank)
        rows[torch.from_numpy(mine)] = self._rows(numbers[mine], width)
        if self._comm.num_ranks == 1:
            return PendingFeatures(rows, mine[:0], [])
        places = [np.flatnonzero(owner == rank) if rank != self._comm.rank else mine[:0] for rank in self._ranks]
        wanted = [numbers[at] for at in places]
        sends = [self._rows(each, width) for each in exchange_requests(self._comm, wanted)]
        arrivals = send_features(self._comm, sends, [len(each) for each in wanted], rows)
        return PendingFeatures(rows, np.concatenate(places), arrivals)

    @property
    def _ranks(self) -> range:
        return range(self._comm.num_ranks)

    def _rows(self, numbers: IntArray, width: int) -> Tensor:
        """Rows of own cells, by their numbers, which come snapshot by snapshot, in any order within each."""
        found = []
        for t, snapshot in self._snapshots.items():
            size = len(snapshot.owner)
            first, last = np.searchsorted(numbers, (snapshot.first, snapshot.first + size))
            if first < last:
                found.append(self._rows_store.select(t, snapshot.own[numbers[first:last] - snapshot.first]))
        return torch.from_numpy(np.concatenate(found)) if found else torch.empty(0, width, dtype=self._dtype)


_EXAMPLES, _ARCS = 30, 31
"""What random numbers are for: streams of their own."""


@dataclass(frozen=True, eq=False)
class _ExampleBatch:
    """Examples ``at`` of snapshot t: batch ``number`` of pass ``draw``."""

    t: int
    draw: int
    number: int
    examples: Examples
    at: IntArray

    @cached_property
    def rows(self) -> tuple[IntArray, ...]:
        """Positions of the cells that each example reads."""
        if self.examples.cell_index is None:
            return (self.at,)
        here = torch.from_numpy(self.at)
        return tuple(each.index_select(0, here).numpy() for each in self.examples.cell_index)

    @cached_property
    def targets(self) -> IntArray:
        """Positions of all cells that are read, ascending."""
        return distinct(np.concatenate(self.rows))


@dataclass(frozen=True, eq=False)
class _SampledBatch:
    """A sampled batch; its features may still be in flight."""

    batch: _ExampleBatch
    times: range
    cells: list[Sample]
    topologies: list[Topology]
    targets: SeedNodes
    x: PendingFeatures


class NeighborSamplingSource(StreamingSource):
    """Batches of one rank. All ranks go through the same batches: each has the examples of nodes whose newest cell it
    owns, and computes its own cells of the seed nodes, or all cells of those nodes."""

    ranks_share_cells = False

    def __init__(self, job: Job, sampling: Sampled) -> None:
        _ = job.partitioned_graph  # all ranks must ask
        self._job, self._sampling = job, sampling
        graph = job.problem.graph
        if job.problem.ranks_candidates:
            raise OptionError(
                f"batching {sampling} samples neighbors of listed pairs, {job.task.name} scores all candidates: take "
                "the task link-prediction, or batching full or windows"
            )
        order = traced_call_order(job.choice, graph)
        if "gather_state" in order or ("over_time" in order and "pull" in order[order.index("over_time") :]):
            raise OptionError(
                f"{job.choice.name} convolves what it has made of sequences, and cells that are drawn have no past: "
                "take a model that convolves first, or batching windows (of 1 snapshot where snapshots arrive: "
                "windows:size=1)"
            )
        self._fanouts = [fanout or ALL_NEIGHBORS for fanout in sampling.fanouts_by_hop(order.count("pull"))]
        fetch = job.plan.exchange.structure
        self._prefetch, self._gather_sequences = fetch.prefetch, fetch.gather_sequences
        self._features = LocalFeatureStore(job)
        self._examples = ExampleCache()

    @cached_property
    def steps_per_epoch(self) -> int:
        examples = (self._examples_of(t, 0) for t in self._job.problem.split.train)
        sizes = [0 if each is None else len(each) for each in examples]
        return self._sampling.passes * sum(-(-size // self._sampling.size) for size in sizes)

    @property
    def validation_windows(self) -> Iterable[Window]:
        return StreamedValidation(self._job)

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        del pacer
        yield from self.windows_of(self._job, self._job.problem.split.train, epoch)

    def windows_of(self, job: Job, times: range, epoch: int) -> Iterator[dict[int, Window]]:
        """The windows of each step over snapshots ``times`` of ``job``, whose graph may have grown. Features of the
        next step may be under way when a window is yielded."""
        if job.problem is not self._job.problem:
            self._examples = ExampleCache()  # those of another problem would hold it
        self._job = job
        waiting: _SampledBatch | None = None
        number = 0
        for batch in self._batches(times, epoch):
            with job.comm.ledger.phase("draw"):
                drawn = self._sample(batch)
            if not self._prefetch:
                yield {number: self._window(drawn)}
                number += 1
                continue
            if waiting is not None:
                yield {number: self._window(waiting)}
                number += 1
            waiting = drawn
        if waiting is not None:
            yield {number: self._window(waiting)}

    def _batches(self, times: range, epoch: int) -> Iterator[_ExampleBatch]:
        seed, passes, size = self._job.settings.seed, self._sampling.passes, self._sampling.size
        for t in times:
            for draw in range(epoch * passes, (epoch + 1) * passes):
                examples = self._examples_of(t, draw)
                if examples is None:
                    continue
                order = np.random.default_rng([seed, _EXAMPLES, t, draw]).permutation(len(examples))
                for number, first in enumerate(range(0, len(order), size)):
                    yield _ExampleBatch(t, draw, number, examples, np.sort(order[first : first + size]))

    def _examples_of(self, t: int, draw: int) -> Examples | None:
        problem = self._job.problem
        if problem.is_edge_level:
            return _present_pairs(problem, t, draw)
        if problem.resamples_each_epoch:
            return problem.examples(t, draw)
        found = self._examples.get(problem, t, lambda: all_examples(problem.examples(t, draw)))
        return None if found is None else found.examples

    def _sample(self, batch: _ExampleBatch) -> _SampledBatch:
        job, graph = self._job, self._job.problem.graph
        times = self._sampling.times(batch.t)
        self._features.slide(job, times)
        nodes = self._features[batch.t].nodes[batch.targets]
        home = self._features.owners(batch.t)[batch.targets]
        cells, present, owners = [], [], []
        for t in times:
            there, at = self._features[t].positions(nodes)
            owner = home[there] if self._gather_sequences else self._features.owners(t)[at]
            key = _key(job.settings.seed, _ARCS, batch.t, batch.draw, batch.number, t)
            cells.append(self._features[t].sample(at[owner == job.comm.rank], self._fanouts, key))
            present.append(there)
            owners.append(owner)
        assert graph.features is not None
        x = self._features.fetch(times, cells, graph.features.shape[0])
        topologies = [self._features[t] for t in times]
        return _SampledBatch(batch, times, cells, topologies, SeedNodes(present, owners, home), x)

    def _window(self, drawn: _SampledBatch) -> Window:
        job = self._job
        with job.comm.ledger.phase("fetch"):
            x = drawn.x.wait().to(job.device)
        graph = job.problem.graph[drawn.times.start : drawn.times.stop]
        cells = SampledData(graph, x, drawn.cells, drawn.topologies, drawn.targets, comm=job.comm)
        return (
            Segment(
                drawn.times,
                cells,
                target_times=range(drawn.batch.t, drawn.batch.t + 1),
                resets_state=True,
                examples_fn=partial(_batch_examples, drawn, cells),
            ),
        )


def _batch_examples(drawn: _SampledBatch, cells: SampledData) -> LocalExamples:
    """The examples whose first node's newest cell this rank owns. Remote rows of pairs follow its own."""
    batch, rank, home = drawn.batch, cells.comm.rank, drawn.targets.home
    target_index = [np.searchsorted(batch.targets, rows) for rows in batch.rows]  # numbers of targets
    own = np.flatnonzero(home == rank)
    rows = np.full(len(home), -1, np.int64)
    rows[own] = cells.cell_ptr[-2] + np.arange(len(own))  # targets come first in a snapshot, in order
    slots, route = None, None
    if len(target_index) == 2:
        found = find_halo(rank, [home], [(target_index[0], target_index[1])], [own], cells.device)
        send = {to: each + cells.cell_ptr[-2] for to, each in found.route.send.items()}
        slots, route = torch.empty(0, dtype=torch.int64, device=cells.device), Route(send, found.route.receive)
        rows[found.positions[0]] = cells.num_cells + found.places[0]
    mine = np.flatnonzero(home[target_index[0]] == rank)
    whole = batch.examples.select(torch.from_numpy(batch.at[mine]))
    examples = replace(
        whole,
        cell_index=tuple(torch.from_numpy(rows[each[mine]]).to(cells.device) for each in target_index),
        labels=whole.labels.to(cells.device),
        features=None if whole.features is None else whole.features.to(cells.device),
    )
    return LocalExamples(examples, slots, route)


def _present_pairs(problem: Problem, t: int, draw: int) -> Examples | None:
    """Pairs of nodes that are both present in snapshot t, as positions in it: cells are sampled for present nodes."""
    pairs = problem.examples(t, draw)
    if pairs is None:
        return None
    nodes = problem.graph[t].nodes
    ends = [find_positions(each, nodes) for each in edge_ends(pairs)]
    present = np.flatnonzero((ends[0] >= 0) & (ends[1] >= 0))
    if not len(present):
        return None
    rows = tuple(torch.from_numpy(each[present]) for each in ends)
    return replace(pairs.select(torch.from_numpy(present)), cell_index=rows)


def _key(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
