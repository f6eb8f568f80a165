"""What a task is: the question asked of cells, how an answer is scored, and what a trivial answer scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.options import check_options, hints_of
from strobe.tasks.split import Split, check_shares

Metrics = dict[str, float]


@dataclass(frozen=True)
class Examples:
    """What is asked about one snapshot (or, joined, about a window).

    ``rows`` says which cells an example reads: one index per cell for nodes, two for pairs (sources, destinations);
    None stands for all cells in order. ``y`` is what the head should say: for regression a row of numbers, for
    classification the class as the graph has it, for pairs 1 or 0, each positive right before its own negatives.
    ``base`` is what the answer starts from, where the head only says by how much it differs.
    """

    rows: tuple[Tensor, ...] | None
    y: Tensor
    base: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)


class Problem(ABC):
    """A task bound to a graph: what is fitted to training snapshots is fitted, everything asked is fixed by a seed.

    ``graph`` is the graph as the model reads it (features chosen and standardised); ``split`` says which snapshots
    may be learnt from. Nothing here reads a snapshot outside ``split.train`` to decide how training goes.
    """

    graph: DynamicGraph
    split: Split
    metric: ClassVar[str]
    """What runs are compared by; defined wherever anything was asked."""
    higher_is_better: ClassVar[bool]
    asks_pairs: ClassVar[bool] = False
    """Whether an example reads two cells."""
    judged_by_base: ClassVar[bool] = True
    """Whether loss and metrics must know what answers start from."""
    asked_at_once: ClassVar[bool] = False
    """Whether several threads may ask for examples of different snapshots at a time."""
    reach: int = 0
    """Snapshots after t that must have been read before all targets of snapshot t are known."""
    note: str | None = None
    """What a user should know about the problem before training, if anything."""
    changes_with_epoch: bool = False
    """Whether training examples are drawn anew every epoch. Where not, and in evaluation, they may be kept."""

    @abstractmethod
    def head(self, width: int) -> nn.Module:
        """Turns the embeddings of all cells into answers: ``head(z, *rows)``, rows as examples have them."""

    @abstractmethod
    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        """What is asked of the cells of snapshot t, as positions in it; None where there is nothing to ask.

        ``epoch`` is given in training only: then negatives may be drawn anew. The same arguments give the same
        examples, in any order of asking; snapshots in no part of the split are asked nothing.
        """

    def to_judge(self, t: int, epoch: int | None, dtype: torch.dtype | None) -> Examples | None:
        """What loss and metrics read of a snapshot's examples. Numbers are as models compute with them, where their
        ``dtype`` is given; classes stay whole."""
        examples = self.examples(t, epoch)
        if examples is None:
            return None
        base = examples.base if self.judged_by_base else None
        if dtype is None:
            return replace(examples, base=base)
        y = examples.y.to(dtype) if examples.y.is_floating_point() else examples.y
        return replace(examples, y=y, base=None if base is None else base.to(dtype))

    @abstractmethod
    def questions(self, t: int) -> Examples | None:
        """What can be asked of snapshot t while nobody knows the answers (``y`` is -1 or NaN): of every cell, or, for
        pairs, of every edge it has. None where there is nothing to ask."""

    def all_test(self) -> Problem:
        """The same problem with everything that has an answer in its test part: for graphs no run has learnt from."""
        other = copy(self)
        other.split = Split(range(0), range(0), range(self.split.test.stop))
        return other

    def at(self, t: int) -> Problem:
        """The same problem when the targets of snapshot t have just become known, because snapshot t + ``reach`` has
        been read: snapshot t is scored, and the targets of all snapshots before it are known."""
        other = copy(self)
        other.split = Split(range(t), range(t, t + 1), range(t + 1, t + 1))
        return other

    @abstractmethod
    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        """The loss summed over the examples: windows and ranks add up exactly."""

    @abstractmethod
    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        """Metrics over the snapshots of a part, in the units of the data; empty where nothing was asked.

        A metric that is not defined for what was asked is absent; answers that are not numbers give NaN.
        """

    @abstractmethod
    def baselines(self, part: str) -> dict[str, Metrics]:
        """What answers that need no learning score on the examples of a part, by name; empty where nothing is asked."""

    def counts(self, part: str) -> dict[str, int]:
        """How much is asked in evaluating a part, and what cannot be, by name."""
        times = self.split.with_examples(part)
        sizes = [len(examples) for t in times if (examples := self.examples(t)) is not None]
        return {"snapshots": len(sizes), "examples": sum(sizes)}

    @abstractmethod
    def table(self, answers: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        """Columns of a table of predictions for snapshot t, without node ids."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What JSON needs, beside the task's options, to ask the same questions of the same graph again."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """The question, as a value: its fields are its configuration and survive JSON."""

    name: ClassVar[str]
    train: float = 0.7
    validation: float = 0.1

    def __post_init__(self) -> None:
        check_options(self.name, asdict(self), hints_of(type(self)))
        check_shares(self.train, self.validation)

    def to_json(self) -> dict[str, Any]:
        """The name and all options: ``strobe.tasks.make_task(**values)`` makes an equal task again."""
        return {"name": self.name, **asdict(self)}

    @abstractmethod
    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> Problem:
        """The task on a graph. ``state`` (of an earlier ``Problem.state()``) takes the place of fitting and of the
        seed."""

    def rebind(self, problem: Problem, graph: DynamicGraph) -> Problem:
        """A problem of this task on a graph that has grown since: its first snapshots are the same."""
        return self.bind(graph, state=problem.state())
