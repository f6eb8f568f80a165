"""Batches of targets that are drawn while training goes on, with a part of what they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from strobe.comm.rows import Route
from strobe.engine.asked import Asked, whole
from strobe.engine.held import Fetched, Held
from strobe.engine.kept import KeptExamples
from strobe.engine.trace import watched_order
from strobe.engine.windows import Segment, Window
from strobe.errors import OptionError
from strobe.exchange.fetch import Fetch
from strobe.exchange.halo import Neighbours, neighbours
from strobe.ops.csr import IntArray, distinct
from strobe.ops.sampling import ALL, Sample
from strobe.tasks.base import Examples
from strobe.view.sampled import SampledCells, Targets, Topology

if TYPE_CHECKING:
    from strobe.engine.job import Job

_EXAMPLES, _ARCS = 30, 31
"""What random numbers are for: streams of their own."""


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some examples of snapshot t, the ``number``-th batch of its ``draw``-th pass; ``at`` says which."""

    t: int
    draw: int
    number: int
    examples: Examples
    at: IntArray

    @cached_property
    def rows(self) -> tuple[IntArray, ...]:
        """Positions of the cells that each example reads."""
        if self.examples.rows is None:
            return (self.at,)
        here = torch.from_numpy(self.at)
        return tuple(each.index_select(0, here).numpy() for each in self.examples.rows)

    @cached_property
    def targets(self) -> IntArray:
        """Positions of all cells that are read, ascending."""
        return distinct(np.concatenate(self.rows))


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A batch with all that was drawn for it; its features may still be on their way."""

    batch: _Batch
    times: range
    cells: list[Sample]
    topologies: list[Topology]
    targets: Targets
    x: Fetched


class SampledSteps:
    """One rank's batches. All ranks go through the same ones: each has the examples of nodes whose newest cell it has,
    and computes cells of targets that it owns, or all of those nodes', with what was drawn for them.

    What is drawn for a cell does not depend on who draws it, so any number of ranks computes the same.
    """

    def __init__(self, job: Job) -> None:
        sampling = job.plan.batching.sampling
        assert sampling is not None
        self._job, self._sampling = job, sampling
        graph = job.problem.graph
        order = watched_order(job.choice, graph)
        if "recall" in order or ("over_time" in order and "pull" in order[order.index("over_time") :]):
            raise OptionError(
                f"{job.choice.name} convolves what it has made of sequences, and cells that are drawn have no past: "
                "take a model that convolves first, or batching windows"
            )
        self._fanouts = [fanout or ALL for fanout in sampling.by_hop(order.count("pull"))]
        fetch = job.plan.exchange.structure
        self._fetch = fetch if isinstance(fetch, Fetch) else Fetch(ahead=False)
        self._held = Held(job)
        self._examples = KeptExamples()

    @cached_property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        asked = (self._asked(t, 0) for t in self._job.problem.split.train)
        sizes = [0 if each is None else len(each) for each in asked]
        return self._sampling.passes * sum(-(-size // self._sampling.size) for size in sizes)

    def steps(self, epoch: int) -> Iterator[dict[int, Window]]:
        """The window of each step of an epoch, with its number."""
        yield from self.windows(self._job, self._job.problem.split.train, epoch)

    def windows(self, job: Job, times: range, epoch: int) -> Iterator[dict[int, Window]]:
        """The same of some snapshots, each of which ends windows of its own; ``job`` knows them. Features of the step
        after may be under way already when one is given."""
        if job.problem is not self._job.problem:
            self._examples = KeptExamples()  # those of another problem would hold it
        self._job = job
        waiting: _Drawn | None = None
        number = 0
        for batch in self._batches(times, epoch):
            with job.comm.ledger.phase("draw"):
                drawn = self._drawn(batch)
            if not self._fetch.ahead:
                yield {number: self._window(drawn)}
                number += 1
                continue
            if waiting is not None:
                yield {number: self._window(waiting)}
                number += 1
            waiting = drawn
        if waiting is not None:
            yield {number: self._window(waiting)}

    def start(self) -> None:
        """Nothing runs beside training."""

    def close(self) -> None:
        """Nothing runs beside training."""

    def remembered(self) -> dict[str, Any]:
        """Nothing: what is drawn follows from the seed, the epoch and the snapshot."""
        return {}

    def recall(self, found: dict[str, Any]) -> None:
        """Nothing was remembered."""

    def _batches(self, times: range, epoch: int) -> Iterator[_Batch]:
        seed, passes, size = self._job.settings.seed, self._sampling.passes, self._sampling.size
        for t in times:
            for draw in range(epoch * passes, (epoch + 1) * passes):
                examples = self._asked(t, draw)
                if examples is None:
                    continue
                order = np.random.default_rng([seed, _EXAMPLES, t, draw]).permutation(len(examples))
                for number, first in enumerate(range(0, len(order), size)):
                    yield _Batch(t, draw, number, examples, np.sort(order[first : first + size]))

    def _asked(self, t: int, draw: int) -> Examples | None:
        problem = self._job.problem
        if problem.changes_with_epoch:
            return problem.examples(t, draw)
        found = self._examples.get(problem, t, lambda: whole(problem.examples(t, draw)))
        return None if found is None else found.examples

    def _drawn(self, batch: _Batch) -> _Drawn:
        job, graph = self._job, self._job.problem.graph
        times = self._sampling.times(batch.t)
        self._held.slide(job, times)
        nodes = self._held[batch.t].nodes[batch.targets]
        home = self._held.owners(batch.t)[batch.targets]
        cells, present, owners = [], [], []
        for t in times:
            there, at = self._held[t].positions(nodes)
            owner = home[there] if self._fetch.sequences else self._held.owners(t)[at]
            key = _key(job.settings.seed, _ARCS, batch.t, batch.draw, batch.number, t)
            cells.append(self._held[t].sample(at[owner == job.comm.rank], self._fanouts, key))
            present.append(there)
            owners.append(owner)
        assert graph.features is not None
        x = self._held.fetch(times, cells, graph.features.shape[0])
        topologies = [self._held[t] for t in times]
        return _Drawn(batch, times, cells, topologies, Targets(present, owners, home), x)

    def _window(self, drawn: _Drawn) -> Window:
        job = self._job
        with job.comm.ledger.phase("fetch"):
            x = drawn.x.wait().to(job.device)
        graph = job.problem.graph[drawn.times.start : drawn.times.stop]
        cells = SampledCells(graph, x, drawn.cells, drawn.topologies, drawn.targets, comm=job.comm)
        asked = range(drawn.batch.t, drawn.batch.t + 1)
        return (Segment(drawn.times, cells, asked=asked, fresh=True, question=partial(_question, drawn, cells)),)


def _question(drawn: _Drawn, cells: SampledCells) -> Asked:
    """The examples whose first node's newest cell this rank has. Rows of others that pairs need stand behind them."""
    batch, rank, home = drawn.batch, cells.comm.rank, drawn.targets.home
    asked = [np.searchsorted(batch.targets, rows) for rows in batch.rows]  # numbers of targets
    own = np.flatnonzero(home == rank)
    rows = np.full(len(home), -1, np.int64)
    rows[own] = cells.cell_ptr[-2] + np.arange(len(own))  # targets come first in a snapshot, in order
    around = None
    if len(asked) == 2 and cells.comm.num_ranks > 1:
        found = neighbours(rank, [home], [(asked[0], asked[1])], [own], cells.device)
        send = {to: each + cells.cell_ptr[-2] for to, each in found.route.send.items()}
        around = Neighbours(Route(send, found.route.receive), found.positions, found.places)
        rows[found.positions[0]] = cells.num_cells + found.places[0]
    mine = np.flatnonzero(home[asked[0]] == rank)
    at = torch.from_numpy(batch.at[mine])
    whole = batch.examples
    examples = replace(
        whole,
        rows=tuple(torch.from_numpy(rows[each[mine]]).to(cells.device) for each in asked),
        y=whole.y.index_select(0, at).to(cells.device),
        base=None if whole.base is None else whole.base.index_select(0, at),
    )
    return Asked(examples, around)


def _key(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
