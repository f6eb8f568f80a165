"""DCRNN (Li et al. 2018): a GRU whose gates read diffusions of inputs and state along and against the edges."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.stepping import graph_gru_step, step_through_time
from strobe.ops.dense.linear import linear
from strobe.ops.sparse.normalize import Norm
from strobe.view import View

WALKS: tuple[Norm, Norm] = ("mean_out", "mean")
"""Norms of both random walks: D_O⁻¹ W, the mean over outgoing arcs, and D_I⁻¹ Wᵀ, over incoming arcs."""


class DCRNN(Model):
    """r, u = σ(conv([x, h])); c = tanh(conv([x, r h])); h' = u h + (1 - u) c.

    conv(x) = x A + Σ_k (D_O⁻¹ W)^k x B_k + (D_I⁻¹ Wᵀ)^k x C_k, k = 1 … ``hops``: random walks along and against the
    edges (section 2.2; its K is hops + 1, and its two equal terms of k = 0 are one here).

    Diffusions of the inputs have no parameters and are computed once a run. The 2 ``hops`` products of the state per
    snapshot and convolution depend on the previous snapshot.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, hops: int = 2) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, hops=hops)
        self.width = hidden
        self.hops = hops
        terms = 1 + 2 * hops
        # Rows: reset, update, candidate. Columns: the cell itself, hops along the edges, hops against them.
        self.of_input = nn.Parameter(torch.empty(3 * hidden, terms * inputs))
        self.of_state = nn.Parameter(torch.empty(3 * hidden, terms * hidden))
        self.bias = nn.Parameter(torch.zeros(3 * hidden))
        bound = math.sqrt(6 / (terms * (inputs + hidden) + hidden))  # Glorot, each gate one matrix over [x, h]
        for weight in (self.of_input, self.of_state):
            nn.init.uniform_(weight, -bound, bound)
        nn.init.ones_(self.bias.data[: 2 * hidden])  # gates start open, as in the authors' experiments

    def forward(self, view: View) -> Tensor:
        of_input, of_state = (self._weights(view, weight) for weight in (self.of_input, self.of_state))
        x = linear(self._diffuse(view, view.x), of_input, self.bias)  # [C, 3H]

        def step(snapshot: View, x: Tensor, h: Tensor) -> Tensor:
            return graph_gru_step(x, h, of_state, partial(self._diffuse, snapshot))

        return step_through_time(view, step, x, self.width)

    def _diffuse(self, view: View, x: Tensor) -> Tensor:
        """Concatenate rows with their diffusions of 1 … hops hops, [C, (1 + walks * hops) F]."""
        terms = [x]
        for walk in _walks(view):
            diffused = x
            for _ in range(self.hops):
                diffused = view.aggregate(diffused, walk)
                terms.append(diffused)
        return torch.cat(terms, 1)

    def _weights(self, view: View, weight: Tensor) -> Tensor:
        """Weights [3H, …] of ``_diffuse``; summed over both walks if these are equal."""
        if len(_walks(view)) == len(WALKS):
            return weight
        width = weight.shape[1] // (1 + 2 * self.hops)
        itself, along, against = weight.split([width, self.hops * width, self.hops * width], 1)
        return torch.cat([itself, along + against], 1)


def _walks(view: View) -> tuple[Norm, ...]:
    """Both walks, or one if the graph is undirected and they are equal."""
    return WALKS if view.data.graph.directed else WALKS[:1]
