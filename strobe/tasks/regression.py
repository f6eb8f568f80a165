"""Node regression: the next snapshot's degrees, or targets that come with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import Degrees, DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.features import inputs_state, with_inputs
from strobe.tasks.split import Split

Target = Literal["degrees", "labels"]


@dataclass(frozen=True, kw_only=True)
class NodeRegression(Task):
    """Predict a number or a row of numbers per node.

    ``degrees``: log(1 + in-degree, out-degree) of the snapshot ``ahead`` of the one read (1 unless said).
    ``labels``: the graph's labels, ``ahead`` of the one read (0 unless said: the label stands with the cell that is
    to predict it). A cell is asked about when its node is present at the target's time and the target is known.

    ``from_last``: the model says by how much the answer differs from the last value known when it answers (for
    degrees the current ones, for labels those of the snapshot before, the training mean where there is none);
    otherwise by how much it differs from the training mean. Either way in units of the training deviation.
    """

    name: ClassVar[str] = "regression"
    target: Target = "degrees"
    ahead: int | None = None
    from_last: bool = True

    def __post_init__(self) -> None:
        if self.target not in ("degrees", "labels"):
            raise OptionError(f"a regression's target is 'degrees' or 'labels', not {self.target!r}")
        if self.ahead is not None and self.ahead < (1 if self.target == "degrees" else 0):
            raise OptionError(f"{self.target} cannot be predicted {self.ahead} snapshots ahead")

    @property
    def shift(self) -> int:
        """Snapshots between the one read and the one predicted."""
        return self.ahead if self.ahead is not None else 1 if self.target == "degrees" else 0

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> RegressionProblem:
        del seed  # nothing is drawn
        return RegressionProblem(self, graph, state)


class RegressionProblem(Problem):
    """Node regression on a graph."""

    metric = "mse"
    higher_is_better = False

    def __init__(self, task: NodeRegression, graph: DynamicGraph, state: dict[str, Any] | None) -> None:
        if task.target == "labels" and (graph.labels is None or len(graph.labels.shape) > 1):
            raise InputError("the graph has no labels to regress on: ask for target 'degrees', or give it labels")
        self.task = task
        self.split = Split.in_time(len(graph) - task.shift, task.train, task.validation)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        if state is None:
            self.mean, self.std = self._fit()
        else:
            self.mean, self.std = np.array(state["mean"]), np.array(state["std"])

    @property
    def width(self) -> int:
        return len(self.mean)

    def head(self, width: int) -> nn.Module:
        return nn.Sequential(nn.ReLU(), nn.Linear(width, self.width))

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        at, y, last = self._asked(t)
        if not len(at):
            return None
        base = self._filled(last) if self.task.from_last else np.broadcast_to(self.mean, y.shape).copy()
        rows = None if len(at) == self.graph[t].num_nodes else (torch.from_numpy(at),)
        return Examples(rows, torch.from_numpy((y - base) / self.std), torch.from_numpy(base))

    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        return nn.functional.mse_loss(answers, examples.y.to(answers), reduction="sum") / self.width

    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        said = np.concatenate([self._in_units(a, e) for a, e in zip(answers, examples, strict=True)])
        return _errors(said, np.concatenate([self._in_units(e.y, e) for e in examples]))

    def baselines(self, part: str) -> dict[str, Metrics]:
        asked = [self._asked(t) for t in self.split.part(part)]
        true = np.concatenate([y for _, y, _ in asked])
        if not len(true):
            return {}
        last = np.concatenate([self._filled(last) for _, _, last in asked])
        return {"last value": _errors(last, true), "mean": _errors(np.broadcast_to(self.mean, true.shape), true)}

    def table(self, answers: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        columns: dict[str, Any] = {}
        for kind, values in (("predicted", answers), ("actual", examples.y)):
            rows = self._in_units(values, examples)
            columns |= {f"{kind}_{name}": rows[:, k] for k, name in enumerate(self._names)}
        return columns

    def state(self) -> dict[str, Any]:
        return {"inputs": inputs_state(self.graph), "mean": self.mean.tolist(), "std": self.std.tolist()}

    @property
    def _names(self) -> list[str]:
        if self.task.target == "degrees":
            return ["log_in_degree", "log_out_degree"]
        return ["label"] if self.width == 1 else [f"label_{k}" for k in range(self.width)]

    def _asked(self, t: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Positions in snapshot t of the nodes whose target is known, their targets, and the last values known.

        A last value is NaN where there is none.
        """
        read, aim = self.graph[t], self.graph[t + self.task.shift]
        # What is known when snapshot t has been read: with a shift its own values, without one those before it.
        known = read if self.task.shift else self.graph[t - 1] if t else None
        y = _rows_of(read.nodes, aim.nodes, self._values(aim))
        at = np.flatnonzero(~np.isnan(y).any(1))
        if known is None:
            return at, y[at], np.full_like(y[at], np.nan)
        return at, y[at], _rows_of(read.nodes[at], known.nodes, self._values(known))

    def _values(self, snapshot: Snapshot) -> FloatArray:
        """Targets that stand at a snapshot, [n, K], in double precision."""
        rows = Degrees(log=True).rows(snapshot) if self.task.target == "degrees" else snapshot.y
        assert rows is not None
        return rows.reshape(len(rows), -1).astype(np.float64)

    def _filled(self, last: FloatArray) -> FloatArray:
        return np.where(np.isnan(last), self.mean, last)

    def _in_units(self, scaled: Tensor, examples: Examples) -> FloatArray:
        assert examples.base is not None
        said: FloatArray = scaled.detach().cpu().double().numpy() * self.std + examples.base.numpy()
        return said

    def _fit(self) -> tuple[FloatArray, FloatArray]:
        """The mean of the training targets, and the deviation of what the model is to say from nothing."""
        asked = [self._asked(t) for t in self.split.train]
        y, last = (np.concatenate([found[k] for found in asked]) for k in (1, 2))
        if not len(y):
            raise InputError("no target of the training snapshots is known")
        self.mean = y.mean(0)
        left = y - (self._filled(last) if self.task.from_last else self.mean)
        spread = np.sqrt((left**2).mean(0))
        return self.mean, np.where(spread > 0, spread, 1.0)


def _rows_of(wanted: IntArray, nodes: IntArray, values: FloatArray) -> FloatArray:
    """The values of wanted nodes, NaN where a node is absent; both lists ascend."""
    at = np.minimum(np.searchsorted(nodes, wanted), max(len(nodes) - 1, 0))
    if not len(nodes):
        return np.full((len(wanted), values.shape[1]), np.nan)
    return np.where((nodes[at] == wanted)[:, None], values[at], np.nan)


def _errors(said: FloatArray, true: FloatArray) -> Metrics:
    off = said - true
    return {"mse": float((off**2).mean()), "mae": float(np.abs(off).mean())}
