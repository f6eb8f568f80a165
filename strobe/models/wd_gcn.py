"""WD-GCN (Manessi et al. 2020): graph convolutions with ReLU on every snapshot, then an LSTM over every node."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.structure import GCN
from strobe.models.time import Recurrent
from strobe.view import View


class WDGCN(Model):
    """``layers`` convolutions shared by all snapshots, then one LSTM shared by all nodes.

    The paper has one convolution, and a final fully connected layer per node, which is the task's head here.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 1) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.width = hidden
        self.convolutions = nn.ModuleList(GCN(a, b, relu=True) for a, b in pairwise([inputs] + [hidden] * layers))
        self.time = Recurrent(nn.LSTM(hidden, hidden))

    def forward(self, view: View) -> Tensor:
        x = view.x
        for convolution in self.convolutions:
            x = convolution(view, x)
        return view.over_time(self.time, x)
