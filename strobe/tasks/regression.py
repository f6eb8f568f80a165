"""Node regression: degrees or features of later snapshots, or labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.format import pluralize
from strobe.graph import Degrees, DynamicGraph, FeatureProvider, Snapshot, Static
from strobe.graph.features import Concatenated, find_stored
from strobe.ops.graph.column_stats import (
    column_squared_differences,
    column_sums,
    rows_or_nan,
    scale_differences,
)
from strobe.ops.runtime.parallel import map_in_order
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.options import as_tuple
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.heads import NodeReadout
from strobe.tasks.inputs import inputs_state, with_inputs
from strobe.tasks.label_delay import UNKNOWN_DELAY_NOTE, check_label_delay, resolve_label_delay
from strobe.tasks.metrics import ErrorSums, mae, mse, sum_errors, sum_snapshot_errors
from strobe.tasks.positions import find_positions
from strobe.tasks.saved_state import read_numbers
from strobe.tasks.split import Split

Target = Literal["degrees", "features", "labels"]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class NodeRegression(Task):
    """Predict a number or a row of numbers per node, after snapshot t has been read.

    The targets are values of the ``horizon`` consecutive snapshots t + ahead, t + ahead + 1, …:

    - ``degrees``: log(1 + in-degree) and log(1 + out-degree); ``ahead`` is 1 by default.
    - ``features``: the graph's own features, as they are before they are standardized, or only ``column`` of them (a
      number, counted from 0, or several); ``ahead`` is 1 by default. With ``horizon=12`` the targets are
      x_{t+1}, …, x_{t+12}.
    - ``labels``: the graph's labels; ``ahead`` is 0 by default: a label is stored with the cell that predicts it.

    A cell has an example when its node is present in all snapshots of the horizon and all targets are known: none is
    NaN, or -1 where labels are integers.

    ``from_last``: True: predict the difference to the last value known at t (persistence), or to the training mean if
    there is none. False: to the training mean. None: to whichever is nearer to the training targets. Differences are
    divided by their root mean square over training, column by column.

    Degrees and features of snapshot t are known at t. Labels are not: the label of snapshot s is known once snapshot
    s + ``label_delay`` has been read. Where neither the task nor the graph (``info["label_delay"]``) states the delay,
    no label is used as an offset or as a baseline.
    """

    name: ClassVar[str] = "regression"
    target: Target = "degrees"
    ahead: int | None = None
    horizon: int = 1
    column: int | Sequence[int] | None = None
    label_delay: int | None = None
    from_last: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift < (0 if self.target == "labels" else 1):
            raise OptionError(f"{self.target} cannot be predicted {self.ahead} snapshots ahead")
        if self.horizon < 1:
            raise OptionError(f"horizon must be at least 1 snapshot, not {self.horizon}")
        if self.column is not None:
            if self.target != "features":
                raise OptionError(f"column needs target=features, not {self.target}")
            columns = as_tuple(self.column)
            if not columns or len(set(columns)) < len(columns) or min(columns) < 0:
                raise OptionError(f"column must be one or several different numbers, 0 or more, not {columns}")
            object.__setattr__(self, "column", columns if len(columns) > 1 else columns[0])
        if self.label_delay is not None and self.target != "labels":
            raise OptionError(f"label_delay needs target=labels, not {self.target}: leave it out")
        check_label_delay(self.label_delay, self.shift)

    @property
    def shift(self) -> int:
        """Snapshots between the one read and the first one predicted."""
        return self.ahead if self.ahead is not None else 0 if self.target == "labels" else 1

    @property
    def last_shift(self) -> int:
        """Snapshots between the one read and the last one predicted."""
        return self.shift + self.horizon - 1

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> RegressionProblem:
        del seed  # nothing is sampled
        return RegressionProblem(self, graph, state)


class SnapshotTargets(NamedTuple):
    """Positions of the cells with known targets (None: all), their targets and the last known values (NaN for none),
    [n, K], in the dtype of the graph."""

    cell_index: IntArray | None
    targets: FloatArray
    last_values: FloatArray


class RegressionProblem(Problem):
    """Node regression on a graph."""

    metric = "mse"
    higher_is_better = False
    needs_offset = False
    thread_safe = True

    def __init__(self, task: NodeRegression, graph: DynamicGraph, state: dict[str, Any] | None) -> None:
        self.task = task
        self._provider = _target_provider(task, graph)
        self.delay = resolve_label_delay(graph, task.label_delay, task.shift) if task.target == "labels" else 0
        if self.delay is None and task.from_last:
            raise OptionError(
                "from_last needs the delay of labels: give label_delay=1 if the label of a snapshot is known once the "
                "next one has been read"
            )
        self.note = (
            UNKNOWN_DELAY_NOTE if self.delay is None and not isinstance(find_stored(graph.labels), Static) else None
        )
        self.target_delay = task.last_shift + (self.delay or 0)
        samples, gap = len(graph) - task.last_shift, max(self.target_delay - 1, 0)
        self.split = Split.by_time(samples, task.train, task.validation, gap)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        if state is None:
            self.mean, self.std, self.from_last = self._fit()
        else:
            self.mean, self.std = (read_numbers(state, name, self.width) for name in ("mean", "std"))
            self.from_last = bool(state["from_last"])

    @cached_property
    def width(self) -> int:
        """Numbers per example, over all snapshots of the horizon."""
        return self.task.horizon * len(self._columns)

    @cached_property
    def _columns(self) -> tuple[int, ...]:
        """The predicted columns of the provider."""
        return tuple(range(math.prod(self._provider.shape))) if self.task.column is None else as_tuple(self.task.column)

    def head(self, width: int) -> nn.Module:
        return NodeReadout(width, self.width)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        targets = self._targets_with_examples(t)
        if targets is None:
            return None
        return Examples(_cell_index(targets), self._normalize(targets, torch.float64), self._offset(targets))

    def examples_for_loss(self, t: int, epoch: int | None, dtype: torch.dtype | None) -> Examples | None:
        del epoch  # nothing is sampled
        targets = self._targets_with_examples(t)
        return (
            None
            if targets is None
            else Examples(_cell_index(targets), self._normalize(targets, dtype or torch.float64))
        )

    def unlabeled_examples(self, t: int) -> Examples | None:
        nodes = self.graph[t].nodes
        if not len(nodes):
            return None
        unknown = np.full((len(nodes), self.width), np.nan)
        offset = self._offset(SnapshotTargets(None, unknown, self._last_known(t, nodes)))
        return Examples(None, torch.from_numpy(unknown), offset)

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        total = nn.functional.mse_loss(predictions, examples.labels.to(predictions), reduction="sum")
        return total if self.width == 1 else total / self.width

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        # The offset is equal on both sides.
        predicted, true = (torch.cat(list(each)) for each in (predictions, [of.labels for of in examples]))
        sizes = [each.shape[0] for each in predictions]
        return _scores([sum_snapshot_errors(_to_numpy(predicted), _to_numpy(true), sizes, units=self.std)])

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``last value``: persistence, the last known value (the training mean without one), if the delay of labels is
        known. ``mean``: the training mean."""

        def errors(snapshot: SnapshotTargets) -> tuple[ErrorSums, ErrorSums]:
            _, y, last = snapshot
            return sum_errors(last, y, fill_value=self.mean), sum_errors(np.broadcast_to(self.mean, y.shape), y)

        parts = list(self._map_targets(self.split.with_examples(part), errors))
        if not parts:
            return {}
        last, mean = zip(*parts, strict=True)
        known = {} if self.delay is None else {"last value": _scores(last)}
        return {**known, "mean": _scores(mean)}

    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        columns: dict[str, Any] = {}
        for kind, values in (("predicted", predictions), ("actual", examples.labels)):
            rows = self._denormalize(values, examples)
            columns |= {f"{kind}_{name}": rows[:, k] for k, name in enumerate(self._names)}
        return columns

    def state(self) -> dict[str, Any]:
        fitted = {"mean": self.mean.tolist(), "std": self.std.tolist(), "from_last": self.from_last}
        return {"inputs": inputs_state(self.graph), **fitted}

    @property
    def _names(self) -> list[str]:
        if self.task.target == "degrees":
            names = ["log_in_degree", "log_out_degree"]
        else:
            one = self.task.target.removesuffix("s")
            names = [f"{one}_{k}" for k in self._columns] if math.prod(self._provider.shape) > 1 else [one]
        if self.task.horizon == 1:
            return names
        first = self.task.shift
        return [f"{name}_ahead_{k}" for k in range(first, first + self.task.horizon) for name in names]

    def _map_targets(self, times: range, function: Callable[[SnapshotTargets], ResultT]) -> Iterator[ResultT]:
        """Apply a function to the targets of each snapshot that has any, with few snapshots in memory."""

        def at(k: int) -> ResultT | None:
            targets = self._read_targets(times[k])
            return function(targets) if len(targets.targets) else None

        return (result for result in map_in_order(at, len(times)) if result is not None)

    def _targets_with_examples(self, t: int) -> SnapshotTargets | None:
        targets = self._read_targets(t) if self.split.part_of(t) else None
        return targets if targets is not None and len(targets.targets) else None

    def _read_targets(self, t: int) -> SnapshotTargets:
        nodes, (at, y) = self.graph[t].nodes, self._known_targets(t)
        return SnapshotTargets(at, y, self._last_known(t, nodes if at is None else nodes[at]))

    def _known_targets(self, t: int) -> tuple[IntArray | None, FloatArray]:
        """Positions of the cells with known targets (None: all), and their targets, [n, horizon * K]."""
        nodes, first = self.graph[t].nodes, t + self.task.shift
        later = [self.graph[s] for s in range(first, first + self.task.horizon)]
        values = [_align_rows(nodes, snapshot, self._values(snapshot)) for snapshot in later]
        y = values[0] if len(values) == 1 else np.concatenate(values, axis=1)
        unknown = np.isnan(y)
        if not unknown.any():
            return None, y
        at = np.flatnonzero(~unknown.any(1))
        return at, y[at]

    def _last_known(self, t: int, nodes: IntArray) -> FloatArray:
        """The last values of nodes known once snapshot t has been read, repeated over the horizon; NaN for none."""
        if self.delay is None or t < self.delay:
            return np.full((len(nodes), self.width), np.nan)
        known = self.graph[t - self.delay]
        values = _align_rows(nodes, known, self._values(known))
        return values if self.task.horizon == 1 else np.tile(values, (1, self.task.horizon))

    def _values(self, snapshot: Snapshot) -> FloatArray:
        """The values of a snapshot's cells, [n, K]; NaN where unknown."""
        rows = self._provider.rows(snapshot)
        rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        if self.task.column is not None:
            rows = rows[:, list(self._columns)]
        values = rows if rows.dtype == np.float32 else rows.astype(np.float64)
        marked = self.task.target == "labels" and rows.dtype.kind in "iu"
        return np.where(rows == -1, np.nan, values) if marked else values

    def _offset(self, targets: SnapshotTargets) -> Tensor:
        """The offset of predictions; the mean is expanded without a copy."""
        if self.from_last:
            return torch.from_numpy(self._fill_missing(targets.last_values))
        return torch.from_numpy(self.mean).expand(targets.targets.shape)

    def _normalize(self, targets: SnapshotTargets, dtype: torch.dtype) -> Tensor:
        """The targets of the head: scaled differences to the offset."""
        y = torch.empty(targets.targets.shape, dtype=dtype)
        scale_differences(
            targets.targets, targets.last_values if self.from_last else None, self.mean, self.std, y.numpy()
        )
        return y

    def _fill_missing(self, last: FloatArray) -> FloatArray:
        return np.where(np.isnan(last), self.mean, last)

    def _denormalize(self, scaled: Tensor, examples: Examples) -> FloatArray:
        assert examples.offset is not None
        values: FloatArray = _to_numpy(scaled) * self.std + examples.offset.numpy()
        return values

    def _fit(self) -> tuple[FloatArray, FloatArray, bool]:
        """Fit the mean of the training targets, the root mean square of differences, and whether they are to the last
        value; in two passes with few snapshots in memory."""
        train = self.split.with_examples("train")

        def sums(k: int) -> tuple[int, FloatArray]:
            _, y = self._known_targets(train[k])
            return len(y), column_sums(y)

        count, total = 0, np.zeros(1)
        for number, summed in map_in_order(sums, len(train)):
            count, total = count + number, total + summed
        if not count:
            raise InputError("no target of the training snapshots is known: train on more snapshots, or add labels")
        if not np.isfinite(total).all():
            raise InputError("a target of the training snapshots is infinite: mark unknown ones as NaN")
        mean = self.mean = total / count
        from_mean, from_last = np.zeros_like(mean), np.zeros_like(mean)

        def squares(snapshot: SnapshotTargets) -> tuple[FloatArray, FloatArray]:
            _, y, last = snapshot
            return column_squared_differences(y, None, mean), column_squared_differences(y, last, mean)

        for about_mean, about_last in self._map_targets(train, squares):
            from_mean += about_mean
            from_last += about_last
        # Columns may have different units: compare relative to each column's variance.
        better = self.delay is not None and bool((from_last / np.where(from_mean > 0, from_mean, 1.0)).mean() <= 1)
        last = better if self.task.from_last is None else self.task.from_last
        spread = np.sqrt((from_last if last else from_mean) / count)
        return mean, np.where(spread > 0, spread, 1.0), last


def _target_provider(task: NodeRegression, graph: DynamicGraph) -> FeatureProvider:
    """The provider of the target values."""
    if task.target == "degrees":
        return Degrees(log=True)
    provider = graph.labels if task.target == "labels" else graph.features
    if provider is None:
        raise InputError(f"the graph has no {task.target} to regress on: choose target=degrees, or add {task.target}")
    if task.target == "features":
        if isinstance(find_stored(provider), Static) and not isinstance(provider, Concatenated):
            raise InputError("the graph's features never change: there is nothing to predict")
        width = math.prod(provider.shape)
        if beyond := [column for column in as_tuple(task.column) if column is not None and column >= width]:
            raise InputError(
                f"the graph has {pluralize(width, 'feature')}, there is no column {beyond[0]} (the first is 0)"
            )
    return provider


def _align_rows(wanted: IntArray, snapshot: Snapshot, values: FloatArray) -> FloatArray:
    """The values of ``wanted`` nodes in a snapshot; NaN for absent nodes."""
    if len(wanted) == len(values) and (wanted is snapshot.nodes or snapshot.has_all_nodes):
        return values
    return rows_or_nan(values, find_positions(wanted, snapshot.nodes))


def _cell_index(targets: SnapshotTargets) -> tuple[Tensor] | None:
    return None if targets.cell_index is None else (torch.from_numpy(targets.cell_index),)


def _to_numpy(rows: Tensor) -> FloatArray:
    array: FloatArray = rows.detach().cpu().numpy()
    return array


def _scores(parts: Sequence[ErrorSums]) -> Metrics:
    """MSE and MAE over all numbers of several snapshots."""
    return {"mse": mse(parts), "mae": mae(parts)} if parts else {}
