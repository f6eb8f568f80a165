"""GAT-LSTM (Wu et al. 2018): graph attention on every snapshot, then an LSTM along every node.

Paper: Graph attention LSTM network, a new model for traffic flow forecasting. Each layer is h' = ELU(GAT(h)) with
heads concatenated; the LSTM reads the last layer's h along each node's sequence.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.structure import GAT, columns_per_head
from strobe.models.time import Recurrent
from strobe.view import View


class GATLSTM(Model):
    """``layers`` attentions shared by all snapshots, then one LSTM shared by all nodes."""

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers, heads=heads)
        depth = columns_per_head(hidden, heads)
        self.width = hidden
        self.attentions = nn.ModuleList(GAT(a, depth, heads=heads) for a, _ in pairwise([inputs] + [hidden] * layers))
        self.time = Recurrent(nn.LSTM(hidden, hidden))

    def forward(self, view: View) -> Tensor:
        x = view.x
        for attention in self.attentions:
            x = nn.functional.elu(attention(view, x))
        return view.over_time(self.time, x)
