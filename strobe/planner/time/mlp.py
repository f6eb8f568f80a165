"""MLP that predicts seconds from sizes: three hidden layers of 256 units with ReLU (Chen et al. 2023, section 6).

As in the paper, the loss is the mean absolute percentage error and the optimizer Adam. The paper trains on 50,000
chunks, here a few hundred noisy ones must do. Therefore inputs and outputs are standardized logarithms, the network
fits the residual of a linear fit, weights decay, and the learning rate follows one cycle. 50 epochs instead of 100:
with few chunks, more did not improve the held-out error (0.3 to 0.5 points worse for three models).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from strobe.ops.sparse.csr import FloatArray

UNITS = 256
LAYERS = 3
EPOCHS = 50
BATCH = 16
LEARNING_RATE = 1e-3
DECAY = 3.0

_CHUNK_ROWS = 16_384  # of a prediction: there may be as many rows as cells


@dataclass(frozen=True, eq=False)
class MLP:
    """Predicts seconds from positive sizes, [I] each."""

    mean: FloatArray
    std: FloatArray
    line: FloatArray  # [I + 1], the last is the intercept
    net: nn.Sequential

    @torch.no_grad()
    def seconds(self, sizes: FloatArray) -> FloatArray:
        """Predict seconds [K] from sizes [K, I]."""
        scaled = (np.log(sizes) - self.mean) / self.std
        parts = [self.net(part) for part in torch.from_numpy(scaled).float().split(_CHUNK_ROWS)]
        residual = torch.cat(parts).squeeze(1).double().numpy()
        seconds: FloatArray = np.exp(scaled @ self.line[:-1] + self.line[-1] + residual)
        return seconds

    def state_dict(self) -> dict[str, Any]:
        named = {name: torch.from_numpy(getattr(self, name)) for name in ("mean", "std", "line")}
        return named | {"net": self.net.state_dict()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> MLP:
        net = _net(len(state["mean"]))
        net.load_state_dict(state["net"])
        mean, std, line = (state[name].numpy() for name in ("mean", "std", "line"))
        return cls(mean, std, line, net)


def fit_mlp(sizes: FloatArray, seconds: FloatArray, *, seed: int = 0, epochs: int = EPOCHS) -> MLP:
    """Fit sizes [M, I] to seconds [M]; deterministic for a seed."""
    logs = np.log(sizes)
    mean, std = logs.mean(0), logs.std(0)
    std = np.where(std > 1e-6, std, 1.0)
    scaled = (logs - mean) / std
    line = _fit_line(scaled, np.log(seconds))
    residual = np.log(seconds) - scaled @ line[:-1] - line[-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([]), torch.enable_grad():
            torch.manual_seed(seed)
            net = _net(sizes.shape[1])
            _train(net, torch.from_numpy(scaled).float(), torch.from_numpy(residual).float(), epochs)
    finally:
        torch.set_num_threads(threads)
    return MLP(mean, std, line, net)


def _net(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(inputs, UNITS), nn.ReLU()]
        inputs = UNITS
    last = nn.Linear(UNITS, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def _fit_line(scaled: FloatArray, logs: FloatArray) -> FloatArray:
    """Fit a line by least squares; a constant column has slope 0."""
    with_one = np.hstack([scaled, np.ones((len(scaled), 1))])
    line: FloatArray = np.linalg.lstsq(with_one, logs, rcond=None)[0]
    return line


def _train(net: nn.Sequential, x: Tensor, y: Tensor, epochs: int) -> None:
    batches = math.ceil(len(x) / BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=DECAY)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).chunk(batches):
            optimizer.zero_grad()
            # Relative error of exp(prediction) to exp(y).
            torch.expm1(net(x[batch]).squeeze(1) - y[batch]).abs().mean().backward()
            optimizer.step()
            scheduler.step()
