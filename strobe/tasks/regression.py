"""Node regression: the next snapshot's degrees, or targets that come with the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import Degrees, DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray
from strobe.ops.threads import each_in_order
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.features import inputs_state, with_inputs
from strobe.tasks.fitted import fitted_numbers
from strobe.tasks.metrics import Errors, errors, mae, mse
from strobe.tasks.places import places
from strobe.tasks.readout import NodeReadout
from strobe.tasks.split import Split

Target = Literal["degrees", "labels"]
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class NodeRegression(Task):
    """Predict a number or a row of numbers per node.

    ``degrees``: log(1 + in-degree, out-degree) of the snapshot ``ahead`` of the one read (1 unless said).
    ``labels``: the graph's labels, ``ahead`` of the one read (0 unless said: the label stands with the cell that is
    to predict it). A cell is asked about when its node is present at the target's time and the target is known: none
    of its numbers is NaN, or -1 where labels are whole numbers.

    ``from_last``: True lets the model say by how much the answer differs from the last value known when it answers
    (for degrees and for labels ahead that of the snapshot read, for labels of the snapshot read that of the one
    before, and the training mean where there is none); False by how much it differs from the training mean; None takes
    what comes nearer to the training targets. Always in units of the root mean square of that difference over
    training, column by column.
    """

    name: ClassVar[str] = "regression"
    target: Target = "degrees"
    ahead: int | None = None
    from_last: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ahead is not None and self.ahead < (1 if self.target == "degrees" else 0):
            raise OptionError(f"{self.target} cannot be predicted {self.ahead} snapshots ahead")

    @property
    def shift(self) -> int:
        """Snapshots between the one read and the one predicted."""
        return self.ahead if self.ahead is not None else 1 if self.target == "degrees" else 0

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
        if task.target == "labels" and graph.labels is None:
            raise InputError("the graph has no labels to regress on: ask for target 'degrees', or give it labels")
        self.task = task
        self.split = Split.in_time(len(graph) - task.shift, task.train, task.validation)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        if state is None:
            self.mean, self.std, self.from_last = self._fit()
        else:
            self.mean, self.std = (fitted_numbers(state, name, self.width) for name in ("mean", "std"))
            self.from_last = bool(state["from_last"])

    @property
    def width(self) -> int:
        """Numbers per target."""
        carrier = Degrees(log=True) if self.task.target == "degrees" else self.graph.labels
        assert carrier is not None
        return math.prod(carrier.shape)

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
        def trivial(asked: Asked) -> tuple[Errors, Errors]:
            mean = np.broadcast_to(self.mean, asked.y.shape)
            return errors(asked.last, asked.y, otherwise=self.mean), errors(mean, asked.y)

        found = list(self._of_all(self.split.part(part), trivial))
        if not found:
            return {}
        last, mean = zip(*found, strict=True)
        return {"last value": _scores(last), "mean": _scores(mean)}

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
            return ["log_in_degree", "log_out_degree"]
        return ["label"] if self.width == 1 else [f"label_{k}" for k in range(self.width)]

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
        """Which nodes have a known target (None: all), and their targets."""
        aim = self.graph[t + self.task.shift]
        y = _rows_of(self.graph[t].nodes, aim, self._values(aim))
        unknown = np.isnan(y)
        if not unknown.any():
            return None, y
        at = np.flatnonzero(~unknown.any(1))
        return at, y[at]

    def _last(self, t: int, nodes: IntArray) -> FloatArray:
        """The last values of nodes known when snapshot t has been read: with a shift its own, without one those before
        it; NaN where there is none."""
        if not self.task.shift and not t:
            return np.full((len(nodes), self.width), np.nan)
        known = self.graph[t] if self.task.shift else self.graph[t - 1]
        return _rows_of(nodes, known, self._values(known))

    def _values(self, snapshot: Snapshot) -> FloatArray:
        """Targets that stand at a snapshot, [n, K]; NaN where unknown."""
        rows = Degrees(log=True).rows(snapshot) if self.task.target == "degrees" else snapshot.y
        assert rows is not None
        rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        values = rows if rows.dtype == np.float32 else rows.astype(np.float64)
        return np.where(rows == -1, np.nan, values) if rows.dtype.kind in "iu" else values

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

        train = self.split.train

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
        better = bool((from_last / np.where(from_mean > 0, from_mean, 1.0)).mean() <= 1)
        last = better if self.task.from_last is None else self.task.from_last
        spread = np.sqrt((from_last if last else from_mean) / count)
        return mean, np.where(spread > 0, spread, 1.0), last


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
