"""Base classes of tasks: examples, loss, metrics and trivial baselines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.ops.graph.listed_pairs import DistinctNodes, ListedPairs
from strobe.ops.sparse.csr import IntArray
from strobe.options import check_options, option_types
from strobe.tasks.grid import CandidateGrid
from strobe.tasks.pair_batch import BatchDescription, PairBatch
from strobe.tasks.split import Split, check_shares

Metrics = dict[str, float]


@dataclass(frozen=True)
class Examples:
    """Examples of one snapshot or, concatenated, of a window.

    Args:
        cell_index: the cells that examples read, in one tensor; None for all cells in order. The engine adds it to
            pairs: rows of sources and of destinations.
        labels: targets of the head: rows of numbers for regression, class ids of the graph for classification, 1 or 0
            for pairs, each positive right before its negatives; weights where positives are ranked.
        offset: added to predictions; None without one.
        edge_label_index: sources and destinations of pairs as node ids, [2, n], whether or not the nodes are present
            in the snapshot; None for examples of cells.
        features: further inputs of the head, [n, K]; None without any.
        candidates: where positives are ranked, the node ids that they are ranked among, [M]; None otherwise.
        log_weight: logarithm of one over the probability that each candidate was sampled, [M]; None for 0.
        grids: where positives are ranked, one grid per snapshot, with its positives in order.
        pairs: what the head reads of pairs, where nodes are encoded once; then without ``cell_index`` and ``features``.
    """

    cell_index: tuple[Tensor, ...] | None
    labels: Tensor
    offset: Tensor | None = None
    edge_label_index: Tensor | None = None
    features: Tensor | None = None
    candidates: Tensor | None = None
    log_weight: Tensor | None = None
    grids: tuple[CandidateGrid, ...] = ()
    pairs: PairBatch | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        values = (self.labels, self.offset, self.edge_label_index, self.features, *(self.cell_index or ()))
        yield from (value for value in values if value is not None)
        for part in (*self.grids, *(() if self.pairs is None else (self.pairs,))):
            yield from part.tensors()

    def select(self, index: Tensor) -> Examples:
        """Some of the examples."""

        def rows(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.index_select(0, index)

        return Examples(
            None if self.cell_index is None else tuple(each.index_select(0, index) for each in self.cell_index),
            self.labels.index_select(0, index),
            rows(self.offset),
            None if self.edge_label_index is None else self.edge_label_index.index_select(1, index),
            rows(self.features),
            self.candidates,
            self.log_weight,
            pairs=None if self.pairs is None else self.pairs.select(index),
        )

    def astype(self, dtype: torch.dtype | None) -> Examples:
        """Floating-point numbers as ``dtype``; None: as they are."""

        def convert(value: Tensor | None) -> Tensor | None:
            return value.to(dtype) if value is not None and value.is_floating_point() else value

        if dtype is None:
            return self
        labels = convert(self.labels)
        assert labels is not None
        grids = tuple(grid.to(grid.sources.device, dtype) for grid in self.grids)
        return replace(self, labels=labels, offset=convert(self.offset), features=convert(self.features), grids=grids)


def edge_ends(pairs: Examples) -> tuple[IntArray, IntArray]:
    """Sources and destinations of pairs as node ids."""
    assert pairs.edge_label_index is not None
    src, dst = pairs.edge_label_index.numpy()
    return src, dst


class Problem(ABC):
    """A task bound to a graph: scales are fitted to training snapshots, and a seed fixes all samples.

    ``graph`` is the graph as the model reads it (features chosen and standardized); ``split`` divides its snapshots.
    Nothing that affects training is read from snapshots outside ``split.train``.
    """

    graph: DynamicGraph
    split: Split
    metric: ClassVar[str]
    """The metric that runs are compared by; defined wherever there are examples."""
    higher_is_better: ClassVar[bool]
    is_edge_level: ClassVar[bool] = False
    """Whether an example is a pair of nodes (``edge_label_index``). An end has the embedding of its latest cell; the
    head is an ``EdgeHead``."""
    ranks_candidates: ClassVar[bool] = False
    """Whether positives are ranked among candidates (``Examples.grids``); the head is a ``PairDecoder``."""
    encodes_nodes_once: ClassVar[bool] = False
    """Whether the head reads pairs as a ``PairBatch``, which ``describe_batch`` completes."""
    needs_offset: ClassVar[bool] = True
    """Whether loss and metrics read ``Examples.offset``."""
    thread_safe: ClassVar[bool] = False
    """Whether several threads may call ``examples`` at a time."""
    target_delay: int = 0
    """Snapshots after t that must be read before all targets of snapshot t are known."""
    note: str | None = None
    """A note for the user before training."""
    resamples_each_epoch: bool = False
    """Whether training examples differ between epochs. Otherwise, and in evaluation, they may be cached."""

    @property
    def starts_at_offset(self) -> bool:
        """Whether an untrained head predicts the offset alone, so that initial weights may be the best of a run."""
        return False

    @abstractmethod
    def head(self, width: int) -> nn.Module:
        """Make the head: ``head(z, *cell_index)``, or ``head(z, *cell_index, features)``, maps embeddings [cells,
        width] to predictions of examples."""

    @abstractmethod
    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        """The examples of snapshot t; deterministic in any order of calls.

        Args:
            t: the snapshot that is read.
            epoch: in training; negatives may differ between epochs. None in evaluation.

        Returns:
            Examples whose ``cell_index`` are positions in snapshot t; None without examples.
        """

    def sample_pairs(self, t: int, epoch: int | None = None) -> Examples | None:
        """The pairs of ``examples`` and their labels alone: all ranks sample the same pairs, and each computes the rest
        for its own."""
        return self.examples(t, epoch)

    def describe_pairs(self, t: int, pairs: Examples) -> Examples:
        """Add what ``examples`` has beside pairs and labels to some pairs of ``sample_pairs``."""
        del t
        return pairs

    def describe_batch(self, pairs: ListedPairs, ends: tuple[DistinctNodes, DistinctNodes]) -> BatchDescription:
        """What a ``PairBatch`` has beside rows of embeddings, and the offset, of pairs of ``sample_pairs``.

        Args:
            pairs: of several snapshots.
            ends: their distinct sources and destinations.
        """
        raise NotImplementedError

    def examples_for_loss(self, t: int, epoch: int | None, dtype: torch.dtype | None) -> Examples | None:
        """The parts of a snapshot's examples that loss and metrics read, floating-point labels as ``dtype``."""
        examples = self.examples(t, epoch)
        if examples is None:
            return None
        return replace(examples, offset=examples.offset if self.needs_offset else None).astype(dtype)

    @abstractmethod
    def unlabeled_examples(self, t: int) -> Examples | None:
        """Examples of snapshot t with unknown targets (``labels`` -1 or NaN): every cell or, for pairs, every edge;
        None without any."""

    def as_test_only(self) -> Problem:
        """A copy with all snapshots in the test part: for graphs that no run was trained on."""
        other = copy(self)
        other.split = Split(range(0), range(0), range(self.split.test.stop))
        return other

    def with_online_split(self, t: int) -> Self:
        """A copy for online training once snapshot t + ``target_delay`` has been read: snapshot t is for validation,
        all snapshots before it are for training."""
        other = copy(self)
        other.split = Split(range(t), range(t, t + 1), range(t + 1, t + 1))
        return other

    @abstractmethod
    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        """The loss summed over examples, so that losses of windows and ranks add up."""

    @abstractmethod
    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        """Metrics over the snapshots of a part, in the units of the data; empty without examples.

        A metric that is undefined for the examples is absent; NaN predictions give NaN.
        """

    def coverage(self, times: range, examples: Sequence[Examples]) -> Metrics:
        """How much of the snapshots' targets the scored examples are; empty where every target is an example."""
        del times, examples
        return {}

    @abstractmethod
    def baselines(self, part: str) -> dict[str, Metrics]:
        """Metrics of trivial predictors on the examples of a part, by name; empty without examples."""

    def baselines_of(self, part: str, scored: Mapping[int, Examples]) -> dict[str, Metrics]:
        """``baselines``, given the evaluation's examples of some snapshots, as the engine has completed them, so that
        nothing about them is computed twice."""
        del scored
        return self.baselines(part)

    def counts(self, part: str) -> dict[str, int]:
        """Numbers of snapshots and examples in the evaluation of a part, by name."""
        times = self.split.with_examples(part)
        sizes = [len(examples) for t in times if (examples := self.examples(t)) is not None]
        return {"snapshots": len(sizes), "examples": sum(sizes)}

    @abstractmethod
    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        """Columns of the table of predictions for snapshot t, without node ids."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Fitted values and the seed, for JSON: ``Task.bind(graph, state=...)`` gives equal examples."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What a model predicts. The fields are the configuration and survive JSON.

    Args:
        train: share of snapshots for training, or, from 1 on, their number.
        validation: the same for validation; the rest is the test part.
    """

    name: ClassVar[str]
    train: float = 0.7
    validation: float = 0.1

    def __post_init__(self) -> None:
        check_options(self.name, asdict(self), option_types(type(self)))
        check_shares(self.train, self.validation)

    def to_json(self) -> dict[str, Any]:
        """The name and all options; ``strobe.tasks.make_task(**values)`` gives an equal task."""
        return {"name": self.name, **asdict(self)}

    @property
    def shift(self) -> int:
        """Snapshots between the one read and the first one predicted."""
        return 0

    @abstractmethod
    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> Problem:
        """Bind the task to a graph.

        Args:
            graph: the graph.
            seed: of all samples.
            state: an earlier ``Problem.state()``, which replaces fitting and the seed.

        Raises:
            InputError: the graph has too few snapshots, or no targets.
        """

    def rebind(self, problem: Problem, graph: DynamicGraph) -> Problem:
        """Bind the task to a grown graph, whose first snapshots are those of ``problem``."""
        return self.bind(graph, state=problem.state())
