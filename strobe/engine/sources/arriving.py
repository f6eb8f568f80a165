"""Snapshots that arrive, each a window of its own, with states carried from the snapshot before.

A share of a snapshot's examples may be for validation: by hash, so it is the same in every sample and on every rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from strobe.batching.base import StreamingSource
from strobe.engine.example_cache import ExampleCache
from strobe.engine.examples import LocalExamples, training_examples
from strobe.engine.job import Job
from strobe.engine.sources.carried_states import find_node_states, move_node_rows, run_window, tensors
from strobe.engine.sources.prepared import StreamedValidation
from strobe.engine.windows import Segment, Window
from strobe.errors import FormatError
from strobe.ops.sparse.csr import IntArray
from strobe.schedule.base import Pacer
from strobe.tasks.base import Examples, edge_ends
from strobe.view import Carry, WindowData

_REPLAY = 32
"""Number of this random stream, which no other use of the seed shares."""


class SnapshotStart(NamedTuple):
    """The states before a snapshot.

    Attributes:
        t: the snapshot.
        states: None for the initial states.
        nodes: the nodes that have a row in the states, ascending.
    """

    t: int
    states: Carry | None
    nodes: IntArray


class ReplayMemory:
    """The starts of the latest ``size`` snapshots that were trained on.

    Memory: the states of all nodes for each of them.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._kept: deque[SnapshotStart] = deque(maxlen=size)
        self._seed = seed

    def add(self, start: SnapshotStart) -> None:
        """Keep the start of the snapshot that was just trained on; beyond ``size`` the oldest is dropped."""
        self._kept.append(start)

    def draw(self, number: int, t: int, step: int) -> list[SnapshotStart]:
        """``number`` distinct starts, or all if there are fewer, at random for each snapshot t and step on it."""
        rng = np.random.default_rng([self._seed, t, step, _REPLAY])
        chosen = rng.choice(len(self._kept), min(number, len(self._kept)), replace=False, shuffle=False)
        return [self._kept[k] for k in sorted(chosen.tolist())]

    def state_dict(self) -> list[dict[str, Any]]:
        """The starts as tensors and plain values."""
        return [{"t": start.t, "states": start.states, "nodes": torch.from_numpy(start.nodes)} for start in self._kept]

    def load_state_dict(self, state: list[dict[str, Any]], device: torch.device) -> None:
        """Continue with the starts of a checkpoint."""
        for each in state:
            self.add(SnapshotStart(each["t"], to_device(each["states"], device), each["nodes"].numpy()))


def to_device(states: Carry | None, device: torch.device) -> Carry | None:
    """States on a device."""
    moved: Carry | None = torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), states)
    return moved


Mask = npt.NDArray[np.bool_]


class ArrivingSnapshotsSource(StreamingSource):
    """All cells of one snapshot in a step, from the states after the snapshot before it.

    Every pass over a snapshot starts from the same states, however many steps are taken on it; ``advance`` runs it once
    more and carries the states on. Every node's state stays on the rank of the node.

    With the setting ``replay`` a step has windows of that many earlier snapshots, too, each from the states that it was
    trained from. These states come from earlier weights: they are not computed again.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.ranks_share_cells = job.partitioned_graph.is_partitioned
        self._states: Carry | None = None
        self._nodes: IntArray = np.empty(0, np.int64)  # that have a row in the states, ascending
        self._per_node: list[bool] | None = None  # whether each tensor of the states has a row per node
        self._segment: Segment | None = None
        settings = job.settings
        self._memory = ReplayMemory(settings.replay_memory if settings.replay else 0, settings.seed)
        self._replayed: dict[int, Segment] = {}

    @property
    def carried_states(self) -> Carry | None:
        return self._states

    @property
    def steps_per_epoch(self) -> int:
        return len(self._job.problem.split.train)

    @property
    def validation_windows(self) -> Iterable[Window]:
        return StreamedValidation(self._job)

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        del epoch, pacer
        raise AssertionError("snapshots arrive one by one: windows_of gives the steps of each")

    def windows_of(self, job: Job, times: range, epoch: int) -> Iterator[dict[int, Window]]:
        for t in times:
            windows = [_window(job, self._started(self._snapshot(job, t)), epoch, validation=False)]
            for start in self._memory.draw(job.settings.replay, t, epoch):
                again = epoch + job.settings.steps_per_snapshot * (t - start.t)  # with other negatives than before
                windows.append(_window(job, self._replay(job, start), again, validation=False))
            yield dict(enumerate(windows))

    def evaluation_windows(self, job: Job, times: range) -> list[Window]:
        return [(self._snapshot(job, t),) for t in times]

    def snapshot_validation_windows(self, job: Job, times: range) -> list[Window]:
        """Windows whose negatives are those of the first step."""
        started = (self._started(self._snapshot(job, t)) for t in times if job.settings.validation_share)
        return [_window(job, segment, 0, validation=True) for segment in started]

    def advance(self, job: Job, times: range, model: nn.Module, head: nn.Module) -> None:
        for t in times:
            segment = self._snapshot(job, t)
            if self._per_node is None:
                self._per_node = find_node_states(model, head, job.problem, segment.data)
            self._memory.add(SnapshotStart(t, self._states, self._nodes))
            self._states = run_window(model, head, job.problem, (self._started(segment),))
            self._nodes, self._segment, self._replayed = _nodes_with_slots(segment.data), None, {}

    def state_dict(self) -> dict[str, Any]:
        if self._states is None:
            return {"carried": None}
        nodes = torch.from_numpy(self._nodes)
        carried = {"states": self._states, "per_node": self._per_node, "nodes": nodes}
        return {"carried": carried | {"replay": self._memory.state_dict()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["carried"] is None:
            return
        nodes, per_node, states = (state["carried"][name] for name in ("nodes", "per_node", "states"))
        rows = {len(each) for each, is_per_node in zip(tensors(states), per_node, strict=True) if is_per_node}
        if rows - {len(nodes)}:
            raise FormatError("the checkpoint's batches are damaged: states are not those of its nodes")
        self._nodes, self._per_node = nodes.numpy(), per_node
        self._states = to_device(states, self._job.device)
        self._memory.load_state_dict(state["carried"].get("replay", []), self._job.device)

    def _snapshot(self, job: Job, t: int) -> Segment:
        """Snapshot t, prepared once for all passes over it; the states have rows of its nodes."""
        if self._segment is None or self._segment.times.start != t:
            times = range(t, t + 1)
            self._job = job
            self._segment = Segment(times, job.partitioned_graph.window_data(times), ExampleCache())
            nodes = _nodes_with_slots(self._segment.data)
            self._states, self._nodes = self._move(self._states, self._nodes, nodes), nodes
        return self._segment

    def _move(self, states: Carry | None, old: IntArray, new: IntArray) -> Carry | None:
        """States with rows of the nodes ``new`` instead of ``old``."""
        if states is None or np.array_equal(old, new):
            return states
        assert self._per_node is not None
        return move_node_rows(states, self._per_node, old, new)

    def _started(self, segment: Segment) -> Segment:
        return replace(segment, resets_state=True, initial_state=self._states)

    def _replay(self, job: Job, start: SnapshotStart) -> Segment:
        """An earlier snapshot from the states before it, prepared once for all steps on the newest one."""
        if start.t not in self._replayed:
            times = range(start.t, start.t + 1)
            segment = Segment(times, job.partitioned_graph.window_data(times), ExampleCache())
            states = self._move(start.states, start.nodes, _nodes_with_slots(segment.data))
            self._replayed[start.t] = replace(segment, resets_state=True, initial_state=states)
        return self._replayed[start.t]


def _window(job: Job, segment: Segment, epoch: int, *, validation: bool) -> Window:
    examples = partial(_examples, job, segment, epoch, validation=validation)
    return (replace(segment, examples_fn=examples, example_cache=ExampleCache()),)


def _examples(job: Job, segment: Segment, epoch: int, *, validation: bool) -> LocalExamples | None:
    """The examples of a snapshot on this rank: those to train on, or those for validation."""
    local = training_examples(job.problem, segment, segment.times, epoch)
    if local is None or not job.settings.validation_share:
        return local
    key = job.settings.seed, segment.times.start
    return split_examples(local, segment.data, job.settings.validation_share, key)[validation]


def _nodes_with_slots(data: WindowData) -> IntArray:
    """The nodes whose states this rank stores, ascending; one row each."""
    if data.local_partition is None:
        return np.arange(data.graph.num_nodes)
    return np.flatnonzero(data.local_partition.sequence_owner == data.comm.rank)


def split_examples(
    local: LocalExamples, data: WindowData, share: float, key: tuple[int, int]
) -> tuple[LocalExamples, LocalExamples]:
    """The examples of one snapshot to train on, and those for validation, each with the probability ``share``.

    Nodes are chosen by their id, pairs by the positive, with all its negatives; ``key``: seed and snapshot.
    """
    out = _are_validation(local.examples, data, share, key)
    return _select(local, ~out), _select(local, out)


def _are_validation(examples: Examples, data: WindowData, share: float, key: tuple[int, int]) -> Mask:
    if examples.edge_label_index is None:
        nodes = data.graph[0].nodes
        nodes = nodes if data.local_partition is None else nodes[data.local_partition.own[0]]
        cells = slice(None) if examples.cell_index is None else examples.cell_index[0].cpu().numpy()
        return hash_uniform(key, nodes[cells]) < share
    positive = examples.labels.cpu().numpy() > 0
    ends = [each[positive] for each in edge_ends(examples)]
    if not data.graph.directed:
        ends = [np.minimum(*ends), np.maximum(*ends)]  # samples differ in their direction
    out: Mask = (hash_uniform(key, *ends) < share)[np.cumsum(positive) - 1]
    return out


def hash_uniform(key: tuple[int, ...], *ids: IntArray) -> npt.NDArray[np.float64]:
    """A number of [0, 1) for each row of ids, by splitmix64."""
    value = np.zeros(len(ids[0]), np.uint64)
    for number in (*map(np.array, key), *ids):
        value = (value ^ number.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    uniform: npt.NDArray[np.float64] = (value >> np.uint64(11)).astype(np.float64) / 2.0**53
    return uniform


def _select(local: LocalExamples, mask: Mask) -> LocalExamples:
    index = torch.from_numpy(np.flatnonzero(mask)).to(local.examples.labels.device)
    chosen = replace(local.examples, edge_label_index=None).select(index)
    if chosen.cell_index is None and local.examples.edge_label_index is None:
        chosen = replace(chosen, cell_index=(index,))
    return replace(local, examples=chosen, example_index=None)
