"""T-GCN (Zhao et al. 2019): a GRU whose three gates each have their own graph convolutions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.ops.dense.linear import linear
from strobe.ops.time.gru import gru, gru_readout
from strobe.ops.time.sequences import Sequences
from strobe.view import View


class TGCN(Model):
    """z, r = σ(L [conv(x), h]); candidate = tanh(L [conv(x), r h]); h' = z h + (1 - z) candidate.

    All gates share the aggregate of the inputs. With one layer per gate, convolution and gate are fused into one small
    matrix, so that nothing wider than the inputs is aggregated or stored. With more layers, ReLU follows each but the
    last, and all gates share one sparse product per layer.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 1) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.width = hidden
        self.gates = nn.ModuleList(GraphGate(inputs, hidden, layers) for _ in ("reset", "update", "candidate"))

    def forward(self, view: View) -> Tensor:
        return self._encode(view)

    def forward_readout(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        return self._encode(view, (weight, bias))

    def _encode(self, view: View, head: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """States of the cells, or a head's outputs."""
        gates: list[GraphGate] = list(self.gates)  # type: ignore[arg-type]
        x = view.aggregate_x()
        if len(gates[0].weights) > 1:
            x = view.run_per_snapshot(self._later_layers, torch.relu(_apply_gates(gates, 0, x)))
        return view.over_time(_Gates(gates, head, shared=len(gates[0].weights) == 1), x)

    async def _later_layers(self, view: View, x: Tensor) -> Tensor:
        """The layers after the first, without the last layer's weights, which are fused into the recurrence."""
        gates: list[GraphGate] = list(self.gates)  # type: ignore[arg-type]
        for layer in range(1, len(gates[0].weights) - 1):
            x = torch.relu(_apply_gates(gates, layer, await view.aggregate_async(x)))
        return await view.aggregate_async(x)


class GraphGate(nn.Module):
    """One gate: convolutions [W_1 … W_n], then a linear map of the convolved input and the state."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        widths = [inputs] + [hidden] * layers
        self.weights = nn.ParameterList(torch.empty(b, a) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(hidden) for _ in range(layers))
        self.linear = nn.Linear(2 * hidden, hidden)
        for weight in self.weights:
            nn.init.xavier_uniform_(weight)

    def fold(self) -> tuple[Tensor, Tensor, Tensor]:
        """Fuse the last convolution and the linear map: weights of the aggregated input and of the state, and bias."""
        of_input, of_state = self.linear.weight.chunk(2, 1)
        return of_input @ self.weights[-1], of_state, self.linear.bias + of_input @ self.biases[-1]


class _Gates:
    """The recurrence, over aggregated inputs that are shared by the gates or concatenated per gate. With a ``head``
    (weight, bias) it returns the head's outputs instead of the states."""

    has_row_state: ClassVar[bool] = True
    supports_state_transport: ClassVar[bool] = True

    def __init__(self, gates: list[GraphGate], head: tuple[Tensor, Tensor] | None, *, shared: bool) -> None:
        self.head = head
        of_input, of_state, bias = zip(*(gate.fold() for gate in gates), strict=True)
        self.of_input = torch.cat(of_input) if shared else torch.block_diag(*of_input)
        self.of_state, self.bias = torch.cat(of_state), torch.cat(bias)

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        weights = self.of_input, self.of_state, self.bias
        if self.head is None:
            return gru(x, state, sequences, *weights, reset_state=True)
        return gru_readout(x, state, sequences, weights, self.head, reset_state=True)


def _apply_gates(gates: list[GraphGate], layer: int, x: Tensor) -> Tensor:
    """Layer ``layer`` of all gates, [C, 3H]: the first on the shared input, others on each gate's columns."""
    weights = [gate.weights[layer] for gate in gates]
    weight = torch.cat(weights) if layer == 0 else torch.block_diag(*weights)
    return linear(x, weight, torch.cat([gate.biases[layer] for gate in gates]))
