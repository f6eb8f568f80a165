"""Time stages: what a cell learns from the cells of its node that came before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.models.structure import columns_per_head
from strobe.ops.gru import gru
from strobe.ops.lstm import lstm, lstm_stack, lstm_stack_readout, lstm_weights
from strobe.ops.past import past_of, with_past
from strobe.ops.sequences import Sequences
from strobe.ops.time_attention import mapped_time_attention
from strobe.ops.time_linear import time_linear

Span = TypeVar("Span", int, int | None)


class Time(nn.Module, ABC):
    """Reads cells of the same node in order of time; a node that appears starts fresh, one that pauses waits.

    ``relays``: the state is a nest of tensors with one row per slot, and all that goes on; then a sequence may be cut
    anywhere and go on elsewhere from its row. ``hands_over``: it runs through ``ops.gru`` or ``ops.lstm`` alone, which
    can hand such rows over by themselves.
    """

    relays: ClassVar[bool] = False
    hands_over: ClassVar[bool] = False

    @abstractmethod
    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """Outputs of all cells and what the next window must know, as ``View.over_time`` wants them."""


class Recurrent(Time):
    """A torch GRU or LSTM, all its layers, or a cell, through kernels that skip absent cells and keep tiles in cache.

    The module's parameters are used as they are, so weights move freely between it and plain torch.
    """

    relays: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True

    def __init__(self, module: nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell) -> None:
        super().__init__()
        if getattr(module, "bidirectional", False):
            raise OptionError("a bidirectional time stage would read the future")
        if getattr(module, "proj_size", 0):
            raise OptionError("a projected LSTM is not supported: leave proj_size out")
        self.module = module

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        last = []
        module = self.module
        layers, dropout = (module.num_layers, module.dropout) if isinstance(module, nn.RNNBase) else (1, 0.0)
        for layer in range(layers):
            x, final = self._layer(layer, x, None if state is None else state[layer], sequences)
            last.append(final)
            if dropout and layer + 1 < layers:
                x = nn.functional.dropout(x, dropout, self.training)
        return x, tuple(last)

    def _layer(self, layer: int, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        suffix = f"_l{layer}" if isinstance(self.module, nn.RNNBase) else ""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights: list[Any] = [getattr(self.module, name + suffix, None) for name in names]
        if isinstance(self.module, nn.GRU | nn.GRUCell):
            return gru(x, state, sequences, *weights)
        zeros = x.new_zeros(sequences.num_slots, self.module.hidden_size)
        return lstm(x, (zeros, zeros) if state is None else state, sequences, *weights)


@dataclass(frozen=True)
class Stack:
    """LSTMs of one layer each, every one on top of the one before, as a time stage of several inputs.

    The first reads all inputs but the last, side by side; what comes out is the states of all LSTMs side by side,
    then the last input as it is.

    Args:
        modules: the LSTMs, all of one width.
        head: a readout's weight and bias; what it makes of all that comes out instead.
    """

    modules: Sequence[nn.Module]
    head: tuple[Tensor, Tensor] | None = None
    relays: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True

    def encode(self, x: Sequence[Tensor], state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        layers = [lstm_weights(*(getattr(module, name) for name in names)) for module in self.modules]
        if state is None:
            zeros = x[0].new_zeros(sequences.num_slots, layers[0][1].shape[1])
            state = [(zeros, zeros)] * len(layers)
        if self.head is None:
            return lstm_stack(x[:-1], state, sequences, layers, beside=x[-1])
        return lstm_stack_readout(x[:-1], state, sequences, layers, self.head, beside=x[-1])


class Linear(Time):
    """A linear map of the node's last ``span`` snapshots: out_t = sum of W_k x_(t - k) over k < span, plus b.

    Snapshots in which the node is absent add nothing. State: the inputs of the last ``span - 1`` snapshots.
    """

    def __init__(self, inputs: int, outputs: int, *, span: int = 4) -> None:
        super().__init__()
        self.span = check_span(span)
        self.linear = nn.Linear(span * inputs, outputs)

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        x, sequences, past = with_past(x, state, sequences)
        out = time_linear(x, sequences, self.linear.weight, self.linear.bias, span=self.span, past=past)
        return out, past_of(x, sequences, self.span)


class Attention(Time):
    """Multi-head self-attention of a cell over the present cells of its node up to itself, with learned positions.

    A cell seen d snapshots back enters as x + p_d: positions count back from the reading cell, not from the beginning
    of time, so that those learned on early snapshots mean the same on later ones. Heads stand side by side; no
    biases, no map after them (as in DySAT, Sankar et al. 2020).

    Args:
        span: a cell sees so many snapshots, its own included; None for all, and then all inputs are carried on.
        positions: distances with an embedding of their own, larger ones share the last; 0 for no positions at all.
    """

    def __init__(self, width: int, heads: int = 1, *, span: int | None = None, positions: int = 16) -> None:
        super().__init__()
        columns_per_head(width, heads)
        if positions < 0:
            raise OptionError(f"positions must be at least 0, not {positions}")
        self.heads, self.span = heads, check_span(span)
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.empty(width, width)) for _ in range(3))
        self.positions = nn.Parameter(torch.empty(min(positions, span or positions), width)) if positions else None
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        seen, sequences, past = with_past(x, state, sequences)
        weight, bias, table = torch.cat([self.w_q, self.w_k, self.w_v]), None, None
        if self.positions is not None:
            own = self.positions[0] @ self.w_q.t()  # queries are maps of x + p_0
            bias = torch.cat([own, own.new_zeros(2 * len(own))])
            table = self.positions @ self.w_k.t(), self.positions @ self.w_v.t()
        options: Any = {"span": self.span, "past": past, "positions": table}
        out = mapped_time_attention(seen, weight, bias, sequences, self.heads, **options)
        return out, past_of(seen, sequences, self.span)


class TorchAttention(Time):
    """torch's multi-head attention, each cell over the present cells of its node up to itself."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__()
        if module.in_proj_weight is None:
            raise OptionError("attention of a cell over its own past has one width: leave kdim and vdim out")
        if module.bias_k is not None or module.add_zero_attn:
            raise OptionError("add_bias_kv and add_zero_attn are not supported in a time stage: leave them out")
        self.module = module

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        seen, sequences, past = with_past(x, state, sequences)
        return self.attend(seen, sequences, past), past_of(seen, sequences, None)

    def attend(self, seen: Tensor, sequences: Sequences, past: int) -> Tensor:
        """Outputs of the cells after the past."""
        module = self.module
        dropout = module.dropout if self.training else 0.0
        weights = module.in_proj_weight, module.in_proj_bias
        y = mapped_time_attention(seen, *weights, sequences, module.num_heads, past=past, dropout=dropout)
        out: Tensor = module.out_proj(y)
        return out


class TorchTransformer(Time):
    """torch's transformer encoder layer, attention as above, normalised before or after as the layer says."""

    def __init__(self, module: nn.TransformerEncoderLayer) -> None:
        super().__init__()
        self.module = module
        self._attention = [TorchAttention(module.self_attn)]  # in a list: its parameters are the module's

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        layer, attention = self.module, self._attention[0].train(self.training)
        seen, sequences, past = with_past(x, state, sequences)
        if layer.norm_first:
            x = x + layer.dropout1(attention.attend(layer.norm1(seen), sequences, past))
            x = x + self._feed_forward(layer.norm2(x))
        else:
            x = layer.norm1(x + layer.dropout1(attention.attend(seen, sequences, past)))
            x = layer.norm2(x + self._feed_forward(x))
        return x, past_of(seen, sequences, None)

    def _feed_forward(self, x: Tensor) -> Tensor:
        layer = self.module
        out: Tensor = layer.dropout2(layer.linear2(layer.dropout(layer.activation(layer.linear1(x)))))
        return out


def as_time(module: nn.Module) -> Time:
    """A time stage from one of ours or a torch module; whether it is batch-first does not matter here."""
    if isinstance(module, Time):
        return module
    if isinstance(module, nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell):
        return Recurrent(module)
    if isinstance(module, nn.MultiheadAttention):
        return TorchAttention(module)
    if isinstance(module, nn.TransformerEncoderLayer):
        return TorchTransformer(module)
    raise OptionError(
        f"{type(module).__name__} is no time stage: expected one of strobe.models.time, or torch's GRU, LSTM, GRUCell, "
        "LSTMCell, MultiheadAttention or TransformerEncoderLayer"
    )


def check_span(span: Span) -> Span:
    """Refuses to look at less than the cell itself."""
    if span is not None and span < 1:
        raise OptionError(f"span must be at least 1, the cell's own snapshot, not {span}")
    return span
