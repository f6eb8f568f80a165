"""What a task is: the question asked of cells, how an answer is scored, and what a trivial answer scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.tasks.split import Split

Metrics = dict[str, float]


@dataclass(frozen=True)
class Examples:
    """What is asked about one snapshot (or, joined, about a window).

    ``rows`` says which cells an example reads: one index per cell for nodes, two for pairs (sources, destinations);
    None stands for all cells in order. ``y`` is what the head should say. ``base`` is what the answer starts from,
    where the head only says by how much it differs.
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
    higher_is_better: ClassVar[bool]
    changes_with_epoch: bool = False
    """Whether training examples are drawn anew every epoch."""

    @abstractmethod
    def head(self, width: int) -> nn.Module:
        """Turns embeddings into answers: ``head(z)`` for nodes, ``head(z_source, z_destination)`` for pairs."""

    @abstractmethod
    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        """What is asked of the cells of snapshot t, as positions in it; None where there is nothing to ask.

        ``epoch`` is given in training only: then negatives may be drawn anew.
        """

    @abstractmethod
    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        """The loss summed over the examples: windows and ranks add up exactly."""

    @abstractmethod
    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        """Metrics over the snapshots of a part, in the units of the data; empty where nothing was asked."""

    @abstractmethod
    def baselines(self, part: str) -> dict[str, Metrics]:
        """What answers that need no learning score on a part: by name."""

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

    @abstractmethod
    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> Problem:
        """The task on a graph. ``state`` (of an earlier ``Problem.state()``) takes the place of fitting."""
