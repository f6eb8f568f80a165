"""GC-LSTM (Chen et al. 2018): an LSTM whose gates read the input and a Chebyshev convolution of the state.

Paper: GC-LSTM, graph convolution embedded LSTM for dynamic network link prediction. The same as ``GCLSTM`` of PyTorch
Geometric Temporal with its default normalization and λ_max = 2: no peepholes, and the cell state is not convolved. Its
two biases per gate are one here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.chebyshev import chebyshev_weight, check_filter_size, power_weight, powers
from strobe.models.stepping import step_through_time
from strobe.ops.dense.linear import linear
from strobe.view import View


class GCLSTM(Model):
    """i, f, o = σ(W x + conv(h) + b); c' = f c + i tanh(W x + conv(h) + b); h' = o tanh(c').

    All gates share the aggregates of the state: ``filter_size`` - 1 sparse products per snapshot, which depend on the
    previous snapshot.

    Args:
        inputs: input columns.
        hidden: columns of the state.
        filter_size: number K of Chebyshev polynomials: cells read the states of cells K - 1 hops away. The paper has 3.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, filter_size: int = 3) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden)
        check_filter_size(filter_size)
        self.width, self.filter_size = hidden, filter_size
        # Rows: input gate, forget gate, output gate, candidate. Columns of of_state: polynomials of ascending order.
        self.of_input = chebyshev_weight(inputs, hidden, 1, 4)
        self.of_state = chebyshev_weight(hidden, hidden, filter_size, 4)
        self.bias = nn.Parameter(torch.zeros(4 * hidden))

    def forward(self, view: View) -> Tensor:
        size = self.filter_size
        weight = torch.cat([self.of_input, power_weight(self.of_state, size)], 1)

        def step(snapshot: View, x: Tensor, state: Tensor) -> Tensor:
            h, c = state.chunk(2, 1)
            gates = linear(torch.cat([x, powers(snapshot, h, size)], 1), weight, self.bias)
            i, f, o = torch.sigmoid(gates[:, : 3 * self.width]).chunk(3, 1)
            c = f * c + i * torch.tanh(gates[:, 3 * self.width :])
            return torch.cat([o * torch.tanh(c), c], 1)

        states = step_through_time(view, step, view.x, 2 * self.width)
        return states[:, : self.width].contiguous()
