"""A small network that learns seconds from sizes: three hidden layers of 256, ReLU between (Chen et al. 2023, 6).

As in the paper the loss is the mean absolute percentage error and the optimiser Adam. Settled otherwise: the paper
learns from 50,000 chunks, here a few hundred, measured beside other work, must do. So sizes and seconds enter as
logarithms, standardised; the network learns only what a straight line through the logarithms, fitted first, leaves
over; weights decay, and the learning rate rises and falls to 0. 50 epochs instead of 100: with so few chunks twice as
many told those never seen no better (0.3 to 0.5 points worse, for three models on a busy machine).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from strobe.ops.csr import FloatArray

UNITS = 256
LAYERS = 3
EPOCHS = 50
BATCH = 16
LEARNING_RATE = 1e-3
DECAY = 3.0

_AT_A_TIME = 16_384  # rows: there may be as many as a graph has cells


@dataclass(frozen=True, eq=False)
class Mlp:
    """Seconds from positive sizes, [I] each time."""

    mean: FloatArray
    std: FloatArray
    line: FloatArray  # [I + 1], the last is where it begins
    net: nn.Sequential

    @torch.no_grad()
    def seconds(self, sizes: FloatArray) -> FloatArray:
        """What each row of sizes takes, [K] from [K, I]."""
        scaled = (np.log(sizes) - self.mean) / self.std
        parts = [self.net(part) for part in torch.from_numpy(scaled).float().split(_AT_A_TIME)]
        said = torch.cat(parts).squeeze(1).double().numpy()
        seconds: FloatArray = np.exp(scaled @ self.line[:-1] + self.line[-1] + said)
        return seconds

    def state(self) -> dict[str, Any]:
        """All of it as arrays and tensors."""
        named = {name: torch.from_numpy(getattr(self, name)) for name in ("mean", "std", "line")}
        return named | {"net": self.net.state_dict()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Mlp:
        net = _net(len(state["mean"]))
        net.load_state_dict(state["net"])
        mean, std, line = (state[name].numpy() for name in ("mean", "std", "line"))
        return cls(mean, std, line, net)


def fit_mlp(sizes: FloatArray, seconds: FloatArray, *, seed: int = 0, epochs: int = EPOCHS) -> Mlp:
    """The network that has learned these [M, I] and [M]; the same for the same measurements and seed."""
    logs = np.log(sizes)
    mean, std = logs.mean(0), logs.std(0)
    std = np.where(std > 1e-6, std, 1.0)
    scaled = (logs - mean) / std
    line = _line(scaled, np.log(seconds))
    over = np.log(seconds) - scaled @ line[:-1] - line[-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([]), torch.enable_grad():
            torch.manual_seed(seed)
            net = _net(sizes.shape[1])
            _learn(net, torch.from_numpy(scaled).float(), torch.from_numpy(over).float(), epochs)
    finally:
        torch.set_num_threads(threads)
    return Mlp(mean, std, line, net)


def _net(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(inputs, UNITS), nn.ReLU()]
        inputs = UNITS
    last = nn.Linear(UNITS, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def _line(scaled: FloatArray, logs: FloatArray) -> FloatArray:
    """Least squares; a column that never changes has no slope."""
    with_one = np.hstack([scaled, np.ones((len(scaled), 1))])
    line: FloatArray = np.linalg.lstsq(with_one, logs, rcond=None)[0]
    return line


def _learn(net: nn.Sequential, x: Tensor, y: Tensor, epochs: int) -> None:
    batches = math.ceil(len(x) / BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=DECAY)
    falling = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=epochs * batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).chunk(batches):
            optimiser.zero_grad()
            # Seconds are exp(y): what is said, divided by what is so, less 1.
            torch.expm1(net(x[batch]).squeeze(1) - y[batch]).abs().mean().backward()
            optimiser.step()
            falling.step()
