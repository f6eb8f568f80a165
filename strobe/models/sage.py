"""GraphSAGE (Hamilton et al. 2017) on every snapshot, then a time stage over each node's last snapshots.

Paper: Inductive representation learning on large graphs, with the mean aggregator: h' = ReLU(W_self h + W_neigh mean
+ b) per layer, with the mean over the cells read. Rows are not normalized between layers. Then, over the last ``span``
snapshots of the node: a linear map (a matrix per distance, absent cells as 0) or self-attention.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from strobe.errors import UnknownNameError
from strobe.models.base import Model, check_sizes
from strobe.models.structure import SAGE
from strobe.models.time import Attention, TemporalLinear, Time
from strobe.view import View


class GraphSAGE(Model):
    """``layers`` of mean aggregation, then ``time`` over ``span`` snapshots; ``heads`` are those of attention."""

    def __init__(
        self,
        inputs: int,
        hidden: int = 32,
        *,
        layers: int = 2,
        time: Literal["linear", "attention"] = "linear",
        span: int = 4,
        heads: int = 1,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers, span=span, heads=heads)
        self.width, self.history = hidden, span - 1
        self.convolutions = nn.ModuleList(SAGE(a, b) for a, b in pairwise([inputs] + [hidden] * layers))
        if time == "linear":
            self.time: Time = TemporalLinear(hidden, hidden, span=span)
        elif time == "attention":
            self.time = Attention(hidden, heads, span=span, positions=span)
        else:
            raise UnknownNameError("time encoder of GraphSAGE", time, ["linear", "attention"])

    def forward(self, view: View) -> Tensor:
        x = view.x
        for convolution in self.convolutions:
            x = torch.relu(convolution(view, x))
        return view.over_time(self.time, x)
