"""T-GCN's traffic forecast on Los-loop: speeds of the next 15 minutes on 207 road sensors.

Zhao et al., "T-GCN: A Temporal Graph Convolutional Network for Traffic Prediction", IEEE T-ITS 2020, and the authors'
code (lehaifeng/T-GCN, ``T-GCN-TensorFlow/main.py`` and ``input_data.py``). The first 80 % of the 2,016 steps of 5
minutes are for training. Every window of 12 steps of the test part, except the last one, predicts the 3 steps after it;
RMSE and MAE are over all sensors and all 3 steps together.

Different from the authors:

- a model reads all steps before the target with carried states, not 12 at a time from a zero state; gradients go back
  12 steps;
- weights are chosen on the last tenth of the training part; the authors' code prints the best test RMSE of all epochs;
- inputs are standardized over the training steps, and the model predicts the difference to the last speed; the authors
  divide by the largest speed of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.api import train
from strobe.engine.run import Run
from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.graph.datasets import load
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.model_names import names_from
from strobe.protocols.training_progress import ReportedEpochs
from strobe.tasks import NodeRegression

Speeds = npt.NDArray[np.float64]

SCORED = ("validation", "test")
TRAINING: Mapping[str, Any] = {"epochs": 20, "lr": 0.003, "patience": 5}
"""Settings of training, chosen on the validation part with T-GCN."""
HIDDEN = 64
"""Columns of the hidden state, as the authors' code has."""


@dataclass(frozen=True, kw_only=True)
class ForecastWindows:
    """Windows of a protocol by the last step that each reads.

    Attributes:
        train_size: steps of the training part.
        validation, test: last steps that the windows of a part read.
    """

    train_size: int
    validation: range
    test: range

    def part(self, name: str) -> range:
        return self.validation if name == "validation" else self.test


def last_values(speeds: Speeds, t: int, history: int, horizon: int) -> Speeds:
    """Predict the speed of step t for all steps of the horizon, [horizon, N]."""
    del history
    return np.repeat(speeds[t : t + 1], horizon, axis=0)


def historical_average(speeds: Speeds, t: int, history: int, horizon: int) -> Speeds:
    """Predict the mean of the last ``history`` steps, each prediction counted in the next (the authors' HA)."""
    read = speeds[t + 1 - history : t + 1]
    for _ in range(horizon):
        read = np.concatenate([read, read[-history:].mean(axis=0, keepdims=True)])
    return read[-horizon:]


BASELINES: Mapping[str, Callable[[Speeds, int, int, int], Speeds]] = {
    "last-value": last_values,
    "historical-average": historical_average,
}


@dataclass(frozen=True, kw_only=True)
class TrafficForecast(Protocol):
    """Forecast of a signal on a fixed graph.

    Attributes:
        train_share: share of the steps for training and validation.
        validation_share: share of that part's windows that weights are chosen on, the last ones.
        history: steps of a window.
        horizon: steps that are predicted.
        training: settings of training.
    """

    train_share: float = 0.8
    validation_share: float = 0.1
    history: int = 12
    horizon: int = 3
    training: Mapping[str, Any] = field(default_factory=lambda: dict(TRAINING))

    def windows(self, num_steps: int) -> ForecastWindows:
        """Cut the steps into windows as the authors' code does; no training or validation target is a test step."""
        train_size, span = int(num_steps * self.train_share), self.history + self.horizon
        last = train_size - self.horizon - 1  # its targets end the training part
        validation = max(int(last * self.validation_share), 1)
        test = range(train_size + self.history - 1, num_steps - self.horizon - 1)
        if last - validation < span or not len(test):
            raise InputError(f"{num_steps} steps are too few to train, validate and test on windows of {span}")
        return ForecastWindows(train_size=train_size, validation=range(last + 1 - validation, last + 1), test=test)

    def task(self, num_steps: int) -> NodeRegression:
        """The regression task whose split has these windows."""
        windows = self.windows(num_steps)
        # The task leaves out the last horizon - 1 snapshots of training and of validation, whose targets reach into
        # the next part, and gives shares of the rest.
        gap = self.horizon - 1
        number = num_steps - self.horizon - 2 * gap
        train = windows.validation.start - gap
        return NodeRegression(
            target="features",
            horizon=self.horizon,
            train=train / number,
            validation=len(windows.validation) / number,
        )

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method = self.choose_model(request.model)
        if method in BASELINES:
            return next(each for each in self.run_baselines(request) if each.method == method)
        began, graph = perf_counter(), self._read(request)
        errors, epochs = [], []
        for seed in request.seed_values:
            run = self._train(graph, method, seed, request)
            errors.append({part: self._model_errors(run, graph, part) for part in SCORED})
            epochs.append(run.best_epoch)
        settings = {
            **self.training,
            "hidden": HIDDEN,
            "window": self.history,
            "device": request.device or "cpu",
            "best_epochs": epochs,
        }
        return self._result(method, graph, request, errors, settings, perf_counter() - began)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        graph = self._read(request)
        speeds, windows, results = read_signal(graph), self.windows(len(graph)), []
        for number, (name, predict) in enumerate(BASELINES.items()):
            request.report("baselines", number, len(BASELINES))
            began = perf_counter()
            errors = {}
            for part in SCORED:
                times = windows.part(part)
                predicted = np.stack([predict(speeds, t, self.history, self.horizon) for t in times])
                errors[part] = predicted - self._targets(speeds, times)
            results.append(self._result(name, graph, request, [errors], {}, perf_counter() - began))
        return results

    def _read(self, request: ProtocolRequest) -> DynamicGraph:
        return load(self.choose_data(request.data), data_dir=request.data_dir)

    def _train(self, graph: DynamicGraph, model: str, seed: int, request: ProtocolRequest) -> Run:
        changes = dict(self.training) | ({} if request.epochs is None else {"epochs": request.epochs})
        return train(
            graph,
            model,
            self.task(len(graph)),
            model_options={"hidden": HIDDEN},
            window=self.history,
            seed=seed,
            device=request.device or "cpu",
            progress=ReportedEpochs(
                request, f"training, seed {seed + 1 - request.first_seed} of {request.seeds}: epochs"
            ),
            **changes,
        )

    def _model_errors(self, run: Run, graph: DynamicGraph, part: str) -> Speeds:
        """Predicted less actual speeds of a part's windows, [W, horizon, N]."""
        times, table = self.windows(len(graph)).part(part), run.predict(part)
        t, node = (table.column(name).to_numpy() for name in ("t", "node"))
        kept = (t >= times.start) & (t < times.stop)
        predicted = np.full((len(times), self.horizon, graph.num_nodes), np.nan)
        for ahead in range(self.horizon):
            values = table.column(f"predicted_feature_ahead_{ahead + 1}").to_numpy()
            predicted[t[kept] - times.start, ahead, node[kept]] = values[kept]
        return predicted - self._targets(read_signal(graph), times)

    def _targets(self, speeds: Speeds, times: range) -> Speeds:
        """Speeds after each window, [W, horizon, N]."""
        return np.stack([speeds[t + 1 : t + 1 + self.horizon] for t in times])

    def _result(
        self,
        method: str,
        graph: DynamicGraph,
        request: ProtocolRequest,
        errors: Sequence[Mapping[str, Speeds]],
        settings: dict[str, Any],
        seconds: float,
    ) -> ProtocolResult:
        """Build the result from the errors of every seed."""
        windows = self.windows(len(graph))
        mae = {part: [float(np.abs(each[part]).mean()) for each in errors] for part in SCORED}
        fixed = {
            "windows": {part: len(windows.part(part)) for part in SCORED},
            "train_steps": windows.train_size,
            "history": self.history,
            "horizon": self.horizon,
            "mae": mae,
            "rmse_per_step_ahead": [np.sqrt(np.square(each["test"]).mean(axis=(0, 2))).tolist() for each in errors],
        }
        rmse = {part: tuple(sqrt(np.square(each[part]).mean()) for each in errors) for part in SCORED}
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=(0,) if method in BASELINES else request.seed_values,
            validation=rmse["validation"],
            test=rmse["test"],
            more={"MAE": tuple(mae["test"])},
            coverage=1.0,  # every window of the authors' test part
            settings=fixed | settings,
            seconds=seconds,
        )


def read_signal(graph: DynamicGraph) -> Speeds:
    """Read the first feature of all nodes, [T, N]."""
    assert graph.features is not None
    return np.stack([graph.features.rows(snapshot)[:, 0] for snapshot in graph]).astype(np.float64)


LOS_LOOP = TrafficForecast(
    name="tgcn-los-loop",
    description="T-GCN's traffic forecast on Los-loop: speeds of 207 road sensors in the next 15 minutes.",
    citation="Zhao et al., T-GCN: A Temporal Graph Convolutional Network for Traffic Prediction, IEEE T-ITS 2020",
    data_sets=("metr_la_week",),
    models=(*names_from("tgcn"), *BASELINES),
    metric="RMSE",
    more_metrics=("MAE",),
    higher_is_better=False,
    snapshots="2,016 steps of 5 minutes; windows of 12 steps, the next 3 are predicted",
    split="first 80 % of the steps for training, the rest for the test; the last tenth of the training windows for "
    "validation. RMSE over all sensors and all 3 steps; MAE is that of the test part",
    negatives="none",
    update="models read every step before the target with carried states (the authors: 12 steps from a zero "
    "state); weights are trained on the training part only",
)
