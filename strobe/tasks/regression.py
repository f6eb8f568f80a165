"""Node regression: degrees or features of the snapshots that follow, or labels that come with the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import Carrier, Degrees, DynamicGraph, Snapshot, Static
from strobe.graph.features import Beside, given
from strobe.numbers import number_of
from strobe.ops.csr import FloatArray, IntArray
from strobe.ops.threads import each_in_order
from strobe.options import several
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.features import inputs_state, with_inputs
from strobe.tasks.fitted import fitted_numbers
from strobe.tasks.labels import NOT_STATED, check_label_delay, label_delay_of
from strobe.tasks.metrics import Errors, errors, mae, mse
from strobe.tasks.places import places
from strobe.tasks.readout import NodeReadout
from strobe.tasks.split import Split

Target = Literal["degrees", "features", "labels"]
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class NodeRegression(Task):
    """Predict a number or a row of numbers per node, after snapshot t has been read.

    The targets are values of the ``horizon`` consecutive snapshots t + ahead, t + ahead + 1, …:

    - ``degrees``: log(1 + in-degree) and log(1 + out-degree); ``ahead`` is 1 by default.
    - ``features``: the graph's own features, as they are before they are standardized, or only ``column`` of them (a
      number, counted from 0, or several); ``ahead`` is 1 by default. With ``horizon=12`` the targets are
      x_{t+1}, …, x_{t+12}.
    - ``labels``: the graph's labels; ``ahead`` is 0 by default: the label is stored with the cell that is to predict
      it.

    A cell has an example when its node is present in all snapshots of the horizon and all targets are known: none is
    NaN, or -1 where labels are integers.

    ``from_last``: True has the model predict the difference to the last value that is known at t (persistence); where a
    node has none, to the training mean. False: the difference to the training mean. None: whichever is nearer to the
    training targets. Always in units of the root mean square of that difference over training, column by column.

    Degrees and features of snapshot t are known at t. Labels are not: the label of snapshot s is known once snapshot
    s + ``label_delay`` has been read. Where neither the task nor the graph (``info["label_delay"]``) states the delay,
    no label is ever used as a last value, as a start or as a baseline.
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
                raise OptionError(f"column is of features, and the target is {self.target}: say target=features")
            columns = several(self.column)
            if not columns or len(set(columns)) < len(columns) or min(columns) < 0:
                raise OptionError(f"column must be a feature's number, 0 or more, or several different ones: {columns}")
            object.__setattr__(self, "column", columns if len(columns) > 1 else columns[0])
        if self.label_delay is not None and self.target != "labels":
            raise OptionError(f"label_delay is of labels, and the target is {self.target}: leave it out")
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
        del seed  # nothing is drawn
        return RegressionProblem(self, graph, state)


class Asked(NamedTuple):
    """Positions in a snapshot of the nodes whose target is known (None: of all), their targets, and the last values
    known (NaN where there is none), [n, K]. Values are as the graph has them: what is computed with them is double."""

    at: IntArray | None
    y: FloatArray
    last: FloatArray


class RegressionProblem(Problem):
    """Node regression on a graph."""

    metric = "mse"
    higher_is_better = False
    judged_by_base = False
    asked_at_once = True

    def __init__(self, task: NodeRegression, graph: DynamicGraph, state: dict[str, Any] | None) -> None:
        self.task = task
        self._carrier = _carrier_of(task, graph)
        self.delay = label_delay_of(graph, task.label_delay, task.shift) if task.target == "labels" else 0
        if self.delay is None and task.from_last:
            raise OptionError(
                "from_last starts from the last label known, and when labels become known was not said: say "
                "label_delay=1 if the label of a snapshot is known once the next one has been read"
            )
        self.note = NOT_STATED if self.delay is None and not isinstance(given(graph.labels), Static) else None
        self.reach = task.last_shift + (self.delay or 0)
        samples, gap = len(graph) - task.last_shift, max(self.reach - 1, 0)
        self.split = Split.in_time(samples, task.train, task.validation, gap)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        if state is None:
            self.mean, self.std, self.from_last = self._fit()
        else:
            self.mean, self.std = (fitted_numbers(state, name, self.width) for name in ("mean", "std"))
            self.from_last = bool(state["from_last"])

    @property
    def width(self) -> int:
        """Numbers per example: those of every snapshot of the horizon."""
        return self.task.horizon * len(self._columns)

    @property
    def _columns(self) -> tuple[int, ...]:
        """Which columns of the carrier are predicted."""
        return tuple(range(math.prod(self._carrier.shape))) if self.task.column is None else several(self.task.column)

    def head(self, width: int) -> nn.Module:
        return NodeReadout(width, self.width)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        asked = self._asked(t) if self.split.part_of(t) else None
        if asked is None or not len(asked.y):
            return None
        return Examples(_rows(asked), self._scaled(asked, torch.float64), self._base(asked))

    def to_judge(self, t: int, epoch: int | None, dtype: torch.dtype | None) -> Examples | None:
        del epoch  # nothing is drawn
        asked = self._asked(t) if self.split.part_of(t) else None
        if asked is None or not len(asked.y):
            return None
        return Examples(_rows(asked), self._scaled(asked, dtype or torch.float64))

    def questions(self, t: int) -> Examples | None:
        nodes = self.graph[t].nodes
        if not len(nodes):
            return None
        unknown = np.full((len(nodes), self.width), np.nan)
        base = self._base(Asked(None, unknown, self._last(t, nodes)))
        return Examples(None, torch.from_numpy(unknown), base)

    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        return nn.functional.mse_loss(answers, examples.y.to(answers), reduction="sum") / self.width

    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        # What answers start from is the same on both sides.
        pairs = ((_numbers(said), _numbers(asked.y)) for said, asked in zip(answers, examples, strict=True))
        return _scores([errors(*pair, units=self.std) for pair in pairs])

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``last value``: persistence, the last value known (the training mean where there is none), only where it is
        known when labels become known. ``mean``: of the training targets."""

        def trivial(asked: Asked) -> tuple[Errors, Errors]:
            mean = np.broadcast_to(self.mean, asked.y.shape)
            return errors(asked.last, asked.y, otherwise=self.mean), errors(mean, asked.y)

        found = list(self._of_all(self.split.with_examples(part), trivial))
        if not found:
            return {}
        last, mean = zip(*found, strict=True)
        known = {} if self.delay is None else {"last value": _scores(last)}
        return {**known, "mean": _scores(mean)}

    def table(self, answers: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        columns: dict[str, Any] = {}
        for kind, values in (("predicted", answers), ("actual", examples.y)):
            rows = self._in_units(values, examples)
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
            names = [f"{one}_{k}" for k in self._columns] if math.prod(self._carrier.shape) > 1 else [one]
        if self.task.horizon == 1:
            return names
        first = self.task.shift
        return [f"{name}_ahead_{k}" for k in range(first, first + self.task.horizon) for name in names]

    def _of_all(self, times: range, look: Callable[[Asked], Found]) -> Iterator[Found]:
        """What is seen in what is asked of each snapshot, which is in memory only while it is looked at."""

        def at(k: int) -> Found | None:
            asked = self._asked(times[k])
            return look(asked) if len(asked.y) else None

        return (found for found in each_in_order(at, len(times)) if found is not None)

    def _asked(self, t: int) -> Asked:
        nodes, (at, y) = self.graph[t].nodes, self._known(t)
        return Asked(at, y, self._last(t, nodes if at is None else nodes[at]))

    def _known(self, t: int) -> tuple[IntArray | None, FloatArray]:
        """Which nodes have known targets (None: all), and their targets, [n, horizon * K]."""
        nodes, first = self.graph[t].nodes, t + self.task.shift
        aims = [self.graph[s] for s in range(first, first + self.task.horizon)]
        values = [_rows_of(nodes, aim, self._values(aim)) for aim in aims]
        y = values[0] if len(values) == 1 else np.concatenate(values, axis=1)
        unknown = np.isnan(y)
        if not unknown.any():
            return None, y
        at = np.flatnonzero(~unknown.any(1))
        return at, y[at]

    def _last(self, t: int, nodes: IntArray) -> FloatArray:
        """The last values of nodes that are known when snapshot t has been read, repeated for every snapshot of the
        horizon; NaN where there is none."""
        if self.delay is None or t < self.delay:
            return np.full((len(nodes), self.width), np.nan)
        known = self.graph[t - self.delay]
        values = _rows_of(nodes, known, self._values(known))
        return values if self.task.horizon == 1 else np.tile(values, (1, self.task.horizon))

    def _values(self, snapshot: Snapshot) -> FloatArray:
        """The values of a snapshot that targets are made of, [n, K]; NaN where unknown."""
        rows = self._carrier.rows(snapshot)
        rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        if self.task.column is not None:
            rows = rows[:, list(self._columns)]
        values = rows if rows.dtype == np.float32 else rows.astype(np.float64)
        marked = self.task.target == "labels" and rows.dtype.kind in "iu"
        return np.where(rows == -1, np.nan, values) if marked else values

    def _base(self, asked: Asked) -> Tensor:
        """What answers start from; where that is the mean it is in memory once."""
        if self.from_last:
            return torch.from_numpy(self._filled(asked.last))
        return torch.from_numpy(self.mean).expand(asked.y.shape)

    def _scaled(self, asked: Asked, dtype: torch.dtype) -> Tensor:
        """What the head should say."""
        from strobe.ops.columns import scaled_between  # loads numba, which who trains nothing does not need

        y = torch.empty(asked.y.shape, dtype=dtype)
        scaled_between(asked.y, asked.last if self.from_last else None, self.mean, self.std, y.numpy())
        return y

    def _filled(self, last: FloatArray) -> FloatArray:
        return np.where(np.isnan(last), self.mean, last)

    def _in_units(self, scaled: Tensor, examples: Examples) -> FloatArray:
        assert examples.base is not None
        said: FloatArray = _numbers(scaled) * self.std + examples.base.numpy()
        return said

    def _fit(self) -> tuple[FloatArray, FloatArray, bool]:
        """The mean of the training targets, the root mean square of what the model is to say, and what it starts from.

        Two passes with few snapshots in memory at a time.
        """
        from strobe.ops.columns import column_squares, column_squares_between, column_sums

        train = self.split.with_examples("train")

        def sums(k: int) -> tuple[int, FloatArray]:
            _, y = self._known(train[k])
            return len(y), column_sums(y)

        count, total = 0, np.zeros(1)
        for number, summed in each_in_order(sums, len(train)):
            count, total = count + number, total + summed
        if not count:
            raise InputError("no target of the training snapshots is known: train on more of them, or label some")
        if not np.isfinite(total).all():
            raise InputError("a target of the training snapshots is infinite: mark unknown ones as NaN")
        mean = self.mean = total / count
        from_mean, from_last = np.zeros_like(mean), np.zeros_like(mean)

        def squares(asked: Asked) -> tuple[FloatArray, FloatArray]:
            return column_squares(asked.y, mean), column_squares_between(asked.y, asked.last, mean)

        for about_mean, about_last in self._of_all(train, squares):
            from_mean += about_mean
            from_last += about_last
        # Columns may have different units: each counts by what is left of its own variance.
        better = self.delay is not None and bool((from_last / np.where(from_mean > 0, from_mean, 1.0)).mean() <= 1)
        last = better if self.task.from_last is None else self.task.from_last
        spread = np.sqrt((from_last if last else from_mean) / count)
        return mean, np.where(spread > 0, spread, 1.0), last


def _carrier_of(task: NodeRegression, graph: DynamicGraph) -> Carrier:
    """What the targets are values of."""
    if task.target == "degrees":
        return Degrees(log=True)
    carrier = graph.labels if task.target == "labels" else graph.features
    if carrier is None:
        raise InputError(
            f"the graph has no {task.target} to regress on: choose target degrees, or give the graph {task.target}"
        )
    if task.target == "features":
        if isinstance(given(carrier), Static) and not isinstance(carrier, Beside):
            raise InputError("the graph's features are the same for all time: there is no change to predict")
        width = math.prod(carrier.shape)
        if beyond := [column for column in several(task.column) if column is not None and column >= width]:
            raise InputError(
                f"the graph has {number_of(width, 'feature')}, there is no column {beyond[0]} (the first is 0)"
            )
    return carrier


def _rows_of(wanted: IntArray, snapshot: Snapshot, values: FloatArray) -> FloatArray:
    """The values of wanted nodes in a snapshot, NaN where a node is absent from it."""
    if len(wanted) == len(values) and (wanted is snapshot.nodes or snapshot.has_all_nodes):
        return values  # those of all nodes, in order
    at = places(wanted, snapshot.nodes)
    rows = np.full((len(wanted), values.shape[1]), np.nan)
    rows[at >= 0] = values[at[at >= 0]]
    return rows


def _rows(asked: Asked) -> tuple[Tensor] | None:
    return None if asked.at is None else (torch.from_numpy(asked.at),)


def _numbers(rows: Tensor) -> FloatArray:
    found: FloatArray = rows.detach().cpu().numpy()
    return found


def _scores(parts: Sequence[Errors]) -> Metrics:
    """Of several snapshots, every number counting the same."""
    return {"mse": mse(parts), "mae": mae(parts)} if parts else {}
