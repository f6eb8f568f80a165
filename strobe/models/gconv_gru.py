"""GConvGRU (Seo et al. 2018): a GRU whose gates read Chebyshev convolutions of inputs and state.

Paper: Structured sequence modeling with graph convolutional recurrent networks. The same as ``GConvGRU`` of PyTorch
Geometric Temporal with its default normalization and λ_max = 2. Its two biases per gate are one here.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.chebyshev import chebyshev_weight, check_filter_size, power_weight, powers
from strobe.models.stepping import graph_gru_step, step_through_time
from strobe.ops.dense.linear import linear
from strobe.view import View


class GConvGRU(Model):
    """r, z = σ(conv(x) + conv(h)); candidate = tanh(conv(x) + conv(r h)); h' = z h + (1 - z) candidate.

    Gates share the aggregates of inputs, which are computed once a run, and those of the state: 2 (``filter_size`` - 1)
    sparse products per snapshot, which depend on the previous snapshot.

    Args:
        inputs: input columns.
        hidden: columns of the state.
        filter_size: number K of Chebyshev polynomials: cells read K - 1 hops far. ROLAND's experiments have 7.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, filter_size: int = 3) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden)
        check_filter_size(filter_size)
        self.width, self.filter_size = hidden, filter_size
        # Rows: reset, update, candidate. Columns: polynomials of ascending order.
        self.of_input = chebyshev_weight(inputs, hidden, filter_size, 3)
        self.of_state = chebyshev_weight(hidden, hidden, filter_size, 3)
        self.bias = nn.Parameter(torch.zeros(3 * hidden))

    def forward(self, view: View) -> Tensor:
        size = self.filter_size
        of_input, of_state = (power_weight(weight, size) for weight in (self.of_input, self.of_state))

        def step(snapshot: View, x: Tensor, h: Tensor) -> Tensor:
            return graph_gru_step(x, h, of_state, partial(powers, snapshot, filter_size=size))

        return step_through_time(view, step, linear(powers(view, view.x, size), of_input, self.bias), self.width)
