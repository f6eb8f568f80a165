"""Time stages: what a cell learns from the cells of its node that came before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.ops.gru import gru
from strobe.ops.lstm import lstm
from strobe.ops.sequences import Sequences


class Time(nn.Module, ABC):
    """Reads cells of the same node in order of time; a node that appears starts fresh, one that pauses waits."""

    @abstractmethod
    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """Outputs of all cells and what the next window must know, as ``View.over_time`` wants them."""


class Recurrent(Time):
    """A torch GRU or LSTM, all its layers, through kernels that skip absent cells and keep tiles in cache.

    The module's parameters are used as they are, so weights move freely between it and plain torch.
    """

    def __init__(self, module: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        if module.bidirectional:
            raise OptionError("a bidirectional time stage would read the future")
        if module.proj_size:
            raise OptionError("a projected LSTM is not supported: leave proj_size out")
        self.module = module

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        last = []
        for layer in range(self.module.num_layers):
            x, final = self._layer(layer, x, None if state is None else state[layer], sequences)
            last.append(final)
            if self.module.dropout and layer + 1 < self.module.num_layers:
                x = nn.functional.dropout(x, self.module.dropout, self.training)
        return x, tuple(last)

    def _layer(self, layer: int, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights: list[Any] = [getattr(self.module, f"{name}_l{layer}", None) for name in names]
        zeros = x.new_zeros(sequences.num_slots, self.module.hidden_size)
        if isinstance(self.module, nn.GRU):
            return gru(x, zeros if state is None else state, sequences, *weights)
        return lstm(x, (zeros, zeros) if state is None else state, sequences, *weights)


def as_time(module: nn.Module) -> Time:
    """A time stage from one of ours or a torch module."""
    if isinstance(module, Time):
        return module
    if isinstance(module, nn.GRU | nn.LSTM):
        return Recurrent(module)
    raise OptionError(
        f"{type(module).__name__} is no time stage: expected one of strobe.models.time, or torch's GRU or LSTM"
    )
