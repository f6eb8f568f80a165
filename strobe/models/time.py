"""Time stages: encoders over each node's sequence of cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.models.structure import columns_per_head
from strobe.ops.time.attention import time_self_attention
from strobe.ops.time.gru import gru
from strobe.ops.time.linear import time_linear
from strobe.ops.time.lstm import lstm, lstm_stack, lstm_stack_readout, lstm_weights
from strobe.ops.time.sequences import Sequences
from strobe.ops.time.windowed import extract_history, prepend_history

Span = TypeVar("Span", int, int | None)


class Time(nn.Module, ABC):
    """Encodes each node's cells in order of time. New nodes start from the initial state; absent ones keep theirs."""

    has_row_state: ClassVar[bool] = False
    """Whether the state is a nest of tensors with one row per slot: a sequence may then continue on another rank."""

    supports_state_transport: ClassVar[bool] = False
    """Whether it runs only through ``ops.time.gru`` or ``ops.time.lstm``, whose kernels can send and receive rows."""

    @abstractmethod
    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """Encode cells.

        Args:
            x: inputs, [C, F].
            state: the state after the previous window; None at the first.
            sequences: the cells of each node, in order of time.

        Returns:
            Outputs of all cells, [C, F'], and the state for the next window.
        """


class Recurrent(Time):
    """A torch GRU, LSTM, GRUCell or LSTMCell, run by kernels that skip absent cells and keep tiles in cache.

    It uses the module's own parameters, so weights are interchangeable with plain torch.
    """

    has_row_state: ClassVar[bool] = True
    supports_state_transport: ClassVar[bool] = True

    def __init__(self, module: nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell) -> None:
        super().__init__()
        if getattr(module, "bidirectional", False):
            raise OptionError("a bidirectional time stage would read the future: leave bidirectional out")
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
class StackedLSTM:
    """Stacked one-layer LSTMs as a time stage of several inputs.

    The first reads all inputs but the last, concatenated. Outputs are the states of all LSTMs and the last input,
    concatenated.

    Args:
        modules: the LSTMs, all of one width.
        head: weight and bias of a readout that replaces the outputs by its own.
    """

    modules: Sequence[nn.Module]
    head: tuple[Tensor, Tensor] | None = None
    has_row_state: ClassVar[bool] = True
    supports_state_transport: ClassVar[bool] = True

    def encode(self, x: Sequence[Tensor], state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        layers = [lstm_weights(*(getattr(module, name) for name in names)) for module in self.modules]
        if state is None:
            zeros = x[0].new_zeros(sequences.num_slots, layers[0][1].shape[1])
            state = [(zeros, zeros)] * len(layers)
        if self.head is None:
            return lstm_stack(x[:-1], state, sequences, layers, extra_columns=x[-1])
        return lstm_stack_readout(x[:-1], state, sequences, layers, self.head, extra_columns=x[-1])


class TemporalLinear(Time):
    """A linear map of the node's last ``span`` snapshots: out_t = sum of W_k x_(t - k) over k < span, plus b.

    Absent cells count as 0. State: the inputs of the last ``span - 1`` snapshots.
    """

    def __init__(self, inputs: int, outputs: int, *, span: int = 4) -> None:
        super().__init__()
        self.span = check_span(span)
        self.linear = nn.Linear(span * inputs, outputs)

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        x, sequences, past = prepend_history(x, state, sequences)
        out = time_linear(x, sequences, self.linear.weight, self.linear.bias, span=self.span, past=past)
        return out, extract_history(x, sequences, self.span)


class Attention(Time):
    """Causal multi-head self-attention over the present cells of a node, with learned positions.

    A cell d snapshots back enters as x + p_d: positions count back from the reading cell, so that those learned on
    early snapshots apply to later ones. Heads are concatenated, without biases or output projection (as in DySAT,
    Sankar et al. 2020).

    Args:
        width: columns of inputs and outputs.
        heads: number of heads.
        span: number of snapshots that a cell reads, its own included; None for all, which carries all inputs.
        positions: number of position embeddings; larger distances share the last; 0 for none.
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
        seen, sequences, past = prepend_history(x, state, sequences)
        weight, bias, table = torch.cat([self.w_q, self.w_k, self.w_v]), None, None
        if self.positions is not None:
            own = self.positions[0] @ self.w_q.t()  # queries are projections of x + p_0
            bias = torch.cat([own, own.new_zeros(2 * len(own))])
            table = self.positions @ self.w_k.t(), self.positions @ self.w_v.t()
        options: Any = {"span": self.span, "past": past, "positions": table}
        out = time_self_attention(seen, weight, bias, sequences, self.heads, **options)
        return out, extract_history(seen, sequences, self.span)


class TorchAttention(Time):
    """torch's multi-head attention, causal, over the present cells of each node."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__()
        if module.in_proj_weight is None:
            raise OptionError("kdim and vdim are not supported in a time stage: leave them out")
        if module.bias_k is not None or module.add_zero_attn:
            raise OptionError("add_bias_kv and add_zero_attn are not supported in a time stage: leave them out")
        self.module = module

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        seen, sequences, past = prepend_history(x, state, sequences)
        return self.attend(seen, sequences, past), extract_history(seen, sequences, None)

    def attend(self, seen: Tensor, sequences: Sequences, past: int) -> Tensor:
        """Outputs of the cells after the first ``past`` ones."""
        module = self.module
        dropout = module.dropout if self.training else 0.0
        weights = module.in_proj_weight, module.in_proj_bias
        y = time_self_attention(seen, *weights, sequences, module.num_heads, past=past, dropout=dropout)
        out: Tensor = module.out_proj(y)
        return out


class TorchTransformer(Time):
    """torch's transformer encoder layer, causal, over the present cells of each node."""

    def __init__(self, module: nn.TransformerEncoderLayer) -> None:
        super().__init__()
        self.module = module
        self._attention = [
            TorchAttention(module.self_attn)
        ]  # in a list: not a submodule, its parameters belong to ``module``

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        layer, attention = self.module, self._attention[0].train(self.training)
        seen, sequences, past = prepend_history(x, state, sequences)
        if layer.norm_first:
            x = x + layer.dropout1(attention.attend(layer.norm1(seen), sequences, past))
            x = x + self._feed_forward(layer.norm2(x))
        else:
            x = layer.norm1(x + layer.dropout1(attention.attend(seen, sequences, past)))
            x = layer.norm2(x + self._feed_forward(x))
        return x, extract_history(seen, sequences, None)

    def _feed_forward(self, x: Tensor) -> Tensor:
        layer = self.module
        out: Tensor = layer.dropout2(layer.linear2(layer.dropout(layer.activation(layer.linear1(x)))))
        return out


def as_time(module: nn.Module) -> Time:
    """Convert a module to a time stage; ``batch_first`` is ignored.

    Args:
        module: a ``Time``, or a torch GRU, LSTM, GRUCell, LSTMCell, MultiheadAttention or TransformerEncoderLayer.

    Raises:
        OptionError: if it is none of these.
    """
    if isinstance(module, Time):
        return module
    if isinstance(module, nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell):
        return Recurrent(module)
    if isinstance(module, nn.MultiheadAttention):
        return TorchAttention(module)
    if isinstance(module, nn.TransformerEncoderLayer):
        return TorchTransformer(module)
    raise OptionError(
        f"{type(module).__name__} is not a time stage: expected one of strobe.models.time, or torch's GRU, LSTM, "
        "GRUCell, LSTMCell, MultiheadAttention or TransformerEncoderLayer"
    )


def check_span(span: Span) -> Span:
    """Check that a span includes the cell's own snapshot."""
    if span is not None and span < 1:
        raise OptionError(f"span must be at least 1, the cell's own snapshot, not {span}")
    return span
