"""Node classification: the class of a node, now or a few snapshots ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, Snapshot, Static
from strobe.graph.features import find_stored
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.heads import NodeReadout
from strobe.tasks.inputs import inputs_state, with_inputs
from strobe.tasks.label_delay import UNKNOWN_DELAY_NOTE, check_label_delay, resolve_label_delay
from strobe.tasks.metrics import accuracy, macro_f1
from strobe.tasks.positions import find_positions
from strobe.tasks.saved_state import read_classes, read_integer
from strobe.tasks.split import PARTS, Split, split_points


@dataclass(frozen=True, kw_only=True)
class NodeClassification(Task):
    """Predict the class of a node: the label of the snapshot ``ahead`` of the one read.

    Labels are whole numbers per cell or per node; negative ones mean unlabeled. A cell has an example if its node is
    present and labeled in the snapshot of the label.

    The label of snapshot s is known once snapshot s + ``label_delay`` has been read. Where neither the task nor the
    graph (``info["label_delay"]``) states the delay, no label is used as a baseline.

    Snapshots are split by time. If a node has one label for all time, labeled nodes are split at random in the same
    shares, too, so that a model cannot memorize test labels: training has training nodes in training snapshots, the
    test has test nodes in test snapshots.

    A model can predict the classes of the training examples. Cells of a class that appears later count as wrong.
    """

    name: ClassVar[str] = "classification"
    ahead: int = 0
    label_delay: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ahead < 0:
            raise OptionError(f"a class cannot be predicted {self.ahead} snapshots ahead")
        check_label_delay(self.label_delay, self.ahead)

    @property
    def shift(self) -> int:
        return self.ahead

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> ClassificationProblem:
        return ClassificationProblem(self, graph, seed, state)


class ClassificationProblem(Problem):
    """Node classification on a graph."""

    metric = "accuracy"
    higher_is_better = True
    thread_safe = True

    def __init__(self, task: NodeClassification, graph: DynamicGraph, seed: int, state: dict[str, Any] | None) -> None:
        _check_has_classes(graph)
        self.task = task
        self.seed: int = seed if state is None else read_integer(state, "seed")
        self.delay = resolve_label_delay(graph, task.label_delay, task.ahead)
        self.note = (
            UNKNOWN_DELAY_NOTE if self.delay is None and not isinstance(find_stored(graph.labels), Static) else None
        )
        self.target_delay = task.ahead + (self.delay or 0)
        self.split = Split.by_time(len(graph) - task.ahead, task.train, task.validation, max(self.target_delay - 1, 0))
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        stored = find_stored(graph.labels)
        self._node_part = self._split_nodes(stored) if isinstance(stored, Static) else None
        self.names: list[str] | None = graph.info.get("classes")
        if state is None:
            self.classes, self.most_frequent = self._fit()
        else:
            _check_class_names(self.names, state.get("names"))
            self.classes, self.most_frequent = read_classes(state, "classes"), read_integer(state, "most_frequent")

    def head(self, width: int) -> nn.Module:
        return NodeReadout(width, len(self.classes))

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        at, y = self._labeled_cells(t)
        if not len(at):
            return None
        rows = None if len(at) == self.graph[t].num_nodes else (torch.from_numpy(at),)
        return Examples(rows, torch.from_numpy(y))

    def unlabeled_examples(self, t: int) -> Examples | None:
        cells = self.graph[t].num_nodes
        return Examples(None, torch.full((cells,), -1)) if cells else None

    def as_test_only(self) -> ClassificationProblem:
        other = super().as_test_only()
        assert isinstance(other, ClassificationProblem)
        if self._node_part is not None:
            labeled = self._node_part >= 0
            other._node_part = np.where(labeled, PARTS.index("test"), -1).astype(np.int8)
        return other

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        classes = torch.from_numpy(self.classes).to(predictions.device)
        y = examples.labels.to(predictions.device)
        index = torch.searchsorted(classes, y).clamp(max=len(classes) - 1)
        # Classes that were not in training cannot be predicted: their examples are left out.
        known = torch.where(classes[index] == y, index, -100)
        return nn.functional.cross_entropy(predictions, known, reduction="sum", ignore_index=-100)

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        joined = torch.cat(list(predictions))
        if bool(torch.isnan(joined).any()):
            return {"accuracy": np.nan, "macro_f1": np.nan}
        return _scores(self._predicted_classes(joined), torch.cat([each.labels for each in examples]).cpu().numpy())

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``most frequent``: the most frequent class of the training examples. ``last label``: the last known label of
        the node, if the delay of labels is known."""
        labeled = {t: self._labeled_cells(t) for t in self.split.with_examples(part)}
        true = np.concatenate([y for _, y in labeled.values()])
        if not len(true):
            return {}
        scores = {"most frequent": _scores(np.full_like(true, self.most_frequent), true)}
        if self.delay is not None:
            scores["last label"] = _scores(self._last_labels(labeled, self.delay), true)
        return scores

    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        probability = torch.softmax(predictions.detach().cpu().double(), 1).amax(1).numpy()
        predicted, actual = self._predicted_classes(predictions), examples.labels.cpu().numpy()
        columns = {"predicted": predicted, "probability": probability, "actual": actual}
        if self.names is None:
            return columns
        names = np.array([*self.names, None], object)  # -1, unlabeled, has no name
        return columns | {"predicted_name": names[predicted], "actual_name": names[actual]}

    def state(self) -> dict[str, Any]:
        fitted = {"classes": self.classes.tolist(), "most_frequent": self.most_frequent, "names": self.names}
        return {"inputs": inputs_state(self.graph), "seed": self.seed, **fitted}

    def _predicted_classes(self, predictions: Tensor) -> IntArray:
        best: IntArray = predictions.detach().cpu().argmax(1).numpy()
        return self.classes[best]

    def _labeled_cells(self, t: int) -> tuple[IntArray, npt.NDArray[np.int64]]:
        """Positions in snapshot t of the cells with examples, and their classes."""
        part = self.split.part_of(t)
        if part is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        read, target = self.graph[t], self.graph[t + self.task.ahead]
        position = find_positions(read.nodes, target.nodes)
        labels = _labels(target)
        y = np.where(position >= 0, labels[position], -1) if len(labels) else np.full(len(position), -1, np.int64)
        if self._node_part is not None:
            y = np.where(self._node_part[read.nodes] == PARTS.index(part), y, -1)
        at = np.flatnonzero(y >= 0)
        return at, y[at]

    def _split_nodes(self, labels: Static) -> npt.NDArray[np.int8]:
        """The part of each node, as an index of ``PARTS``; -1 for unlabeled nodes, [N]."""
        labeled = labels.values.reshape(self.graph.num_nodes, -1)[:, 0] >= 0
        if self.graph.node_subset is not None:
            labeled &= np.isin(np.arange(self.graph.num_nodes), self.graph.node_subset)
        nodes = np.random.default_rng(self.seed).permutation(np.flatnonzero(labeled))
        if len(nodes) < len(PARTS):
            raise InputError(
                f"{len(nodes)} nodes have a class, at least {len(PARTS)} are needed: one each to train, to validate "
                f"and to test"
            )
        first, second = split_points(len(nodes), self.task.train, self.task.validation)
        part = np.full(self.graph.num_nodes, -1, np.int8)
        for number, chosen in enumerate((nodes[:first], nodes[first:second], nodes[second:])):
            part[chosen] = number
        return part

    def _fit(self) -> tuple[npt.NDArray[np.int64], int]:
        """The classes of the training examples, ascending, and the most frequent (the smallest of several)."""
        times: dict[int, int] = {}
        for t in self.split.with_examples("train"):
            for label, count in zip(*np.unique(self._labeled_cells(t)[1], return_counts=True), strict=True):
                times[int(label)] = times.get(int(label), 0) + int(count)
        if not times:
            raise InputError(
                "no cell of the training snapshots has a known label: train on more snapshots, or label more nodes"
            )
        classes = np.array(sorted(times), np.int64)
        return classes, max(sorted(times), key=times.__getitem__)

    def _last_labels(
        self, labeled_cells: dict[int, tuple[IntArray, npt.NDArray[np.int64]]], delay: int
    ) -> npt.NDArray[np.int64]:
        """The last known label of the node of every labeled cell, else the most frequent class."""
        last = np.full(self.graph.num_nodes, self.most_frequent, np.int64)
        predicted, seen = [np.empty(0, np.int64)], 0
        for t, (at, _) in labeled_cells.items():
            known = max(t + 1 - delay, 0)
            for before in range(seen, known):
                snapshot = self.graph[before]
                labels = _labels(snapshot)
                last[snapshot.nodes[labels >= 0]] = labels[labels >= 0]
            seen = known
            predicted.append(last[self.graph[t].nodes[at]])
        return np.concatenate(predicted)


def _labels(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    assert snapshot.y is not None
    return snapshot.y.reshape(snapshot.num_nodes).astype(np.int64)


def _scores(predicted: IntArray, true: IntArray) -> Metrics:
    return {"accuracy": accuracy(predicted, true), "macro_f1": macro_f1(predicted, true)}


def _check_class_names(names: list[str] | None, trained_on: list[str] | None) -> None:
    """Raise InputError if class ids of the graph have other names than in training."""
    if names is not None and trained_on is not None and names != trained_on:
        raise InputError(
            f"the classes of this graph are {', '.join(names)}, the model was trained on {', '.join(trained_on)}: the "
            "same number means another class. Make the graph from labels with the same names, or from numbers"
        )


def _check_has_classes(graph: DynamicGraph) -> None:
    stored = find_stored(graph.labels)
    if stored is None:
        raise InputError("the graph has no labels for classification: add labels, or choose another task")
    if stored.values.dtype.kind == "f":
        raise InputError(
            "the graph's labels are floating-point numbers, not classes: choose regression, or give whole numbers"
        )
    if stored.shape not in ((), (1,)):
        raise InputError(f"a node has {stored.shape[0]} labels, only one can be its class: choose one column")
