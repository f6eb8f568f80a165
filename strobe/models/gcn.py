"""GCN (Kipf and Welling 2017) on every snapshot, without a time stage: the baseline of models with one."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.structure import GCN
from strobe.view import View


class StaticGCN(Model):
    """``layers`` convolutions shared by all snapshots, with ReLU between them. A cell reads its snapshot alone."""

    history = 0

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 2) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.width = hidden
        widths = list(pairwise([inputs] + [hidden] * layers))
        self.convolutions = nn.ModuleList(GCN(a, b, relu=k + 1 < layers) for k, (a, b) in enumerate(widths))

    def forward(self, view: View) -> Tensor:
        x = view.x
        for convolution in self.convolutions:
            x = convolution(view, x)
        return x
