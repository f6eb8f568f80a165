"""DCRNN (Li et al. 2018): a GRU whose gates see inputs and state diffuse along and against the edges."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.ops.linear import linear
from strobe.ops.normalise import Norm
from strobe.view import View

WALKS: tuple[Norm, Norm] = ("mean_out", "mean")
"""Along the edges, D_O⁻¹ W: the average over the arcs that leave a cell. Against them, D_I⁻¹ Wᵀ: over those that
reach it."""


class DCRNN(Model):
    """r, u = σ(conv([x, h])); c = tanh(conv([x, r h])); h' = u h + (1 - u) c.

    conv(x) = x A + Σ_k (D_O⁻¹ W)^k x B_k + (D_I⁻¹ Wᵀ)^k x C_k, k = 1 … ``hops``: the random walks that follow edges
    and that follow them backwards (section 2.2; its K is hops + 1, and its two terms of k = 0, which read the same,
    are one here).

    Diffusing the inputs needs no parameters and happens once a run. The state's 2 ``hops`` products per snapshot
    and convolution must wait for the snapshot before.
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
        bound = math.sqrt(6 / (terms * (inputs + hidden) + hidden))  # Glorot's, each gate one matrix over [x, h]
        for weight in (self.of_input, self.of_state):
            nn.init.uniform_(weight, -bound, bound)
        nn.init.ones_(self.bias.data[: 2 * hidden])  # gates start open, as in the authors' experiments

    def forward(self, view: View) -> Tensor:
        of_input, of_state = (self._weights(view, weight) for weight in (self.of_input, self.of_state))
        x = linear(self._diffused(view, view.x), of_input, self.bias)  # [C, 3H]
        h = view.carried()
        if h is None:
            h = x.new_zeros(view.num_slots, self.width)
        states: list[Tensor] = []
        outputs = []
        for step, rows in zip(view.steps(), view.split(x), strict=True):
            new = self._step(step, rows, step.recall(h), of_state)
            h = step.remember(h, new)
            states = [*states, h] if view.slides else [h]
            outputs.append(new)
        view.keep_each(states, per_node=True)
        return torch.cat(outputs) if outputs else x[:, : self.width]

    def _step(self, step: View, x: Tensor, h: Tensor, of_state: Tensor) -> Tensor:
        """The new states of one snapshot's cells, from their inputs' part of all gates and their old states."""
        split = 2 * self.width
        gates, candidate = of_state[:split], of_state[split:]
        r, u = torch.sigmoid(torch.addmm(x[:, :split], self._diffused(step, h), gates.t())).chunk(2, 1)
        c = torch.tanh(torch.addmm(x[:, split:], self._diffused(step, r * h), candidate.t()))
        return c + u * (h - c)

    def _diffused(self, view: View, x: Tensor) -> Tensor:
        """Rows as they are and after every number of hops, side by side, [C, (1 + walks * hops) F]."""
        terms = [x]
        for walk in _walks(view):
            walked = x
            for _ in range(self.hops):
                walked = view.aggregate(walked, walk)
                terms.append(walked)
        return torch.cat(terms, 1)

    def _weights(self, view: View, weight: Tensor) -> Tensor:
        """Weights [3H, …] of what ``_diffused`` gives: where both walks are one, theirs are added."""
        if len(_walks(view)) == len(WALKS):
            return weight
        width = weight.shape[1] // (1 + 2 * self.hops)
        itself, along, against = weight.split([width, self.hops * width, self.hops * width], 1)
        return torch.cat([itself, along + against], 1)


def _walks(view: View) -> tuple[Norm, ...]:
    """Without directions both walks are the same: half the products."""
    return WALKS if view.cells.graph.directed else WALKS[:1]
