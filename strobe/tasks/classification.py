"""Node classification: which class a node belongs to, now or a few snapshots on."""

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
from strobe.graph.features import given
from strobe.ops.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.features import inputs_state, with_inputs
from strobe.tasks.fitted import fitted_classes, fitted_integer
from strobe.tasks.labels import NOT_STATED, check_label_delay, label_delay_of
from strobe.tasks.metrics import accuracy, macro_f1
from strobe.tasks.places import places
from strobe.tasks.readout import NodeReadout
from strobe.tasks.split import PARTS, Split, boundaries


@dataclass(frozen=True, kw_only=True)
class NodeClassification(Task):
    """Predict the class of a node: the label of the snapshot ``ahead`` of the one read.

    Labels are whole numbers per cell or per node; a negative one means unlabelled. A cell is asked about when its
    node is present at the label's time and labelled there.

    The label of snapshot s is known once snapshot s + ``label_delay`` has been read. Where neither the task nor the
    graph (``info["label_delay"]``) states the delay, no label is used as a baseline.

    Time is split for all. Where a node has one label for all time, labelled nodes are split too, at random in the
    same shares: otherwise a model could learn by heart in training what it is asked in the test. Training asks
    training nodes at training times, the test asks test nodes at test times.

    The classes a model can say are those of the training examples. One that appears only later is never said, so
    its cells count as wrong.
    """

    name: ClassVar[str] = "classification"
    ahead: int = 0
    label_delay: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ahead < 0:
            raise OptionError(f"a class cannot be predicted {self.ahead} snapshots ahead")
        check_label_delay(self.label_delay, self.ahead)

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> ClassificationProblem:
        return ClassificationProblem(self, graph, seed, state)


class ClassificationProblem(Problem):
    """Node classification on a graph."""

    metric = "accuracy"
    higher_is_better = True
    asked_at_once = True

    def __init__(self, task: NodeClassification, graph: DynamicGraph, seed: int, state: dict[str, Any] | None) -> None:
        _refuse_without_classes(graph)
        self.task = task
        self.seed: int = seed if state is None else fitted_integer(state, "seed")
        self.delay = label_delay_of(graph, task.label_delay, task.ahead)
        self.note = NOT_STATED if self.delay is None and not isinstance(given(graph.labels), Static) else None
        self.reach = task.ahead + (self.delay or 0)
        self.split = Split.in_time(len(graph) - task.ahead, task.train, task.validation, max(self.reach - 1, 0))
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        carrier = given(graph.labels)
        self._part_of_node = self._split_nodes(carrier) if isinstance(carrier, Static) else None
        self.names: list[str] | None = graph.info.get("classes")
        if state is None:
            self.classes, self.frequent = self._fit()
        else:
            _refuse_other_names(self.names, state.get("names"))
            self.classes, self.frequent = fitted_classes(state, "classes"), fitted_integer(state, "frequent")

    def head(self, width: int) -> nn.Module:
        return NodeReadout(width, len(self.classes))

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        at, y = self._asked(t)
        if not len(at):
            return None
        rows = None if len(at) == self.graph[t].num_nodes else (torch.from_numpy(at),)
        return Examples(rows, torch.from_numpy(y))

    def questions(self, t: int) -> Examples | None:
        cells = self.graph[t].num_nodes
        return Examples(None, torch.full((cells,), -1)) if cells else None

    def all_test(self) -> ClassificationProblem:
        other = super().all_test()
        assert isinstance(other, ClassificationProblem)
        if self._part_of_node is not None:
            labelled = self._part_of_node >= 0
            other._part_of_node = np.where(labelled, PARTS.index("test"), -1).astype(np.int8)
        return other

    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        classes = torch.from_numpy(self.classes).to(answers.device)
        y = examples.y.to(answers.device)
        index = torch.searchsorted(classes, y).clamp(max=len(classes) - 1)
        # A class that no answer can be costs the same whatever is said, so it is left out.
        known = torch.where(classes[index] == y, index, -100)
        return nn.functional.cross_entropy(answers, known, reduction="sum", ignore_index=-100)

    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        if any(bool(torch.isnan(said).any()) for said in answers):
            return {"accuracy": np.nan, "macro_f1": np.nan}
        said = np.concatenate([self._said(each) for each in answers])
        return _scores(said, np.concatenate([each.y.cpu().numpy() for each in examples]))

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``most frequent``: the class that most training examples have. ``last label``: the last one of the node that
        is known when it is asked, only where it is known when labels become known."""
        asked = {t: self._asked(t) for t in self.split.with_examples(part)}
        true = np.concatenate([y for _, y in asked.values()])
        if not len(true):
            return {}
        found = {"most frequent": _scores(np.full_like(true, self.frequent), true)}
        if self.delay is not None:
            found["last label"] = _scores(self._last_labels(asked, self.delay), true)
        return found

    def table(self, answers: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        chance = torch.softmax(answers.detach().cpu().double(), 1).amax(1).numpy()
        said, actual = self._said(answers), examples.y.cpu().numpy()
        found = {"predicted": said, "probability": chance, "actual": actual}
        if self.names is None:
            return found
        names = np.array([*self.names, None], object)  # -1 is nobody's
        return found | {"predicted_name": names[said], "actual_name": names[actual]}

    def state(self) -> dict[str, Any]:
        fitted = {"classes": self.classes.tolist(), "frequent": self.frequent, "names": self.names}
        return {"inputs": inputs_state(self.graph), "seed": self.seed, **fitted}

    def _said(self, answers: Tensor) -> IntArray:
        best: IntArray = answers.detach().cpu().argmax(1).numpy()
        return self.classes[best]

    def _asked(self, t: int) -> tuple[IntArray, npt.NDArray[np.int64]]:
        """Positions in snapshot t of the nodes that are asked about, and their classes."""
        part = self.split.part_of(t)
        if part is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        read, aim = self.graph[t], self.graph[t + self.task.ahead]
        there = places(read.nodes, aim.nodes)
        labels = _labels(aim)
        y = np.where(there >= 0, labels[there], -1) if len(labels) else np.full(len(there), -1, np.int64)
        if self._part_of_node is not None:
            y = np.where(self._part_of_node[read.nodes] == PARTS.index(part), y, -1)
        at = np.flatnonzero(y >= 0)
        return at, y[at]

    def _split_nodes(self, labels: Static) -> npt.NDArray[np.int8]:
        """The part each node belongs to, by its place in ``PARTS``; -1 for nodes without a label, [N]."""
        labelled = labels.values.reshape(self.graph.num_nodes, -1)[:, 0] >= 0
        if self.graph.kept is not None:
            labelled &= np.isin(np.arange(self.graph.num_nodes), self.graph.kept)
        nodes = np.random.default_rng(self.seed).permutation(np.flatnonzero(labelled))
        if len(nodes) < len(PARTS):
            raise InputError(
                f"{len(nodes)} nodes have a class, at least {len(PARTS)} are needed: one each to train, to validate "
                f"and to test"
            )
        first, second = boundaries(len(nodes), self.task.train, self.task.validation)
        part = np.full(self.graph.num_nodes, -1, np.int8)
        for number, chosen in enumerate((nodes[:first], nodes[first:second], nodes[second:])):
            part[chosen] = number
        return part

    def _fit(self) -> tuple[npt.NDArray[np.int64], int]:
        """The classes of the training examples, ascending, and the most frequent (the smallest, if several are)."""
        times: dict[int, int] = {}
        for t in self.split.with_examples("train"):
            for label, count in zip(*np.unique(self._asked(t)[1], return_counts=True), strict=True):
                times[int(label)] = times.get(int(label), 0) + int(count)
        if not times:
            raise InputError(
                "no cell of the training snapshots that may be asked about is labelled: train on more snapshots, or "
                "label more nodes"
            )
        classes = np.array(sorted(times), np.int64)
        return classes, max(sorted(times), key=times.__getitem__)

    def _last_labels(
        self, asked: dict[int, tuple[IntArray, npt.NDArray[np.int64]]], delay: int
    ) -> npt.NDArray[np.int64]:
        """For every cell asked about the last label of its node known when it is asked, or the most frequent."""
        last = np.full(self.graph.num_nodes, self.frequent, np.int64)
        found, seen = [np.empty(0, np.int64)], 0
        for t, (at, _) in asked.items():
            known = max(t + 1 - delay, 0)
            for before in range(seen, known):
                snapshot = self.graph[before]
                labels = _labels(snapshot)
                last[snapshot.nodes[labels >= 0]] = labels[labels >= 0]
            seen = known
            found.append(last[self.graph[t].nodes[at]])
        return np.concatenate(found)


def _labels(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    assert snapshot.y is not None
    return snapshot.y.reshape(snapshot.num_nodes).astype(np.int64)


def _scores(said: IntArray, true: IntArray) -> Metrics:
    return {"accuracy": accuracy(said, true), "macro_f1": macro_f1(said, true)}


def _refuse_other_names(found: list[str] | None, trained_on: list[str] | None) -> None:
    """Classes are numbers in the order of their names: with other names, the same number is another class."""
    if found is not None and trained_on is not None and found != trained_on:
        raise InputError(
            f"the classes of this graph are {', '.join(found)}, the model was trained on {', '.join(trained_on)}: the "
            "same number means another class. Make the graph from labels with the same names, or from numbers"
        )


def _refuse_without_classes(graph: DynamicGraph) -> None:
    carrier = given(graph.labels)
    if carrier is None:
        raise InputError("the graph has no labels to tell classes from: give it some, or choose another task")
    if carrier.values.dtype.kind == "f":
        raise InputError(
            "the graph's labels are floating-point numbers, not classes: choose regression, or give whole numbers"
        )
    if carrier.shape not in ((), (1,)):
        raise InputError(f"a node has {carrier.shape[0]} labels, only one can be its class: choose one column")
