"""MPNN-LSTM (Panagopoulos et al. 2021): convolutions whose outputs all feed a stack of LSTMs."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from strobe.errors import OptionError, UnknownNameError
from strobe.models.base import Model, check_sizes
from strobe.models.structure import GCN
from strobe.models.time import Recurrent, StackedLSTM
from strobe.ops.runtime.autograd import in_recompute
from strobe.view import View

CellNorm = Literal["batch", "layer", "none"]
"""Normalization after a convolution: over the snapshot, over the cell, or none."""


class MPNNLSTM(Model):
    """Layers of convolution, ReLU, norm and dropout, concatenated as the input of stacked LSTMs.

    A cell's embedding is the state of every LSTM and its raw features, ``stacked * hidden + inputs`` columns. The LSTMs
    continue across snapshots and windows; PyTorch Geometric Temporal restarts them in every call and returns only the
    last output.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 32,
        *,
        layers: int = 2,
        stacked: int = 2,
        norm: CellNorm = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers, stacked=stacked)
        if not 0 <= dropout < 1:
            raise OptionError(f"dropout must be at least 0 and less than 1, not {dropout}")
        self.width = stacked * hidden + inputs
        self.dropout = dropout
        self.convolutions = nn.ModuleList(GCN(a, b, relu=True) for a, b in pairwise([inputs] + [hidden] * layers))
        self.norms = nn.ModuleList(_norm(norm, hidden) for _ in range(layers))
        widths = [layers * hidden] + [hidden] * stacked
        self.recurrent = nn.ModuleList(Recurrent(nn.LSTM(a, b)) for a, b in pairwise(widths))

    def forward(self, view: View) -> Tensor:
        return self._encode(view)

    def forward_readout(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        return self._encode(view, (weight, bias))

    def _encode(self, view: View, head: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Embeddings of the cells, or a head's outputs."""
        x, convolved = view.x, []
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(view, convolution(view, x))
            x = nn.functional.dropout(x, self.dropout, self.training) if self.dropout else x
            convolved.append(x)
        layers = [each.module for each in self.recurrent if isinstance(each, Recurrent)]
        return view.over_time(StackedLSTM(layers, head), *convolved, view.x)


class BatchNorm(nn.Module):
    """Batch normalization whose batch is a snapshot: torch's BatchNorm1d called once per snapshot, in order of time.

    Snapshots with fewer than two cells, which have no variance, do not update the running moments.
    """

    def __init__(self, width: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, view: View, x: Tensor) -> Tensor:
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        x, means, variances = view.snapshot_norm(x, self.weight, self.bias, self.eps)
        if not in_recompute():
            for mean, variance in zip(means, variances, strict=True):
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance, self.momentum)
        return x


class _CellWise(nn.Module):
    """A norm of each cell by itself."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, view: View, x: Tensor) -> Tensor:
        del view
        normed: Tensor = self.norm(x)
        return normed


def _norm(name: CellNorm, width: int) -> nn.Module:
    if name not in get_args(CellNorm):
        raise UnknownNameError("norm", name, get_args(CellNorm))
    if name == "batch":
        return BatchNorm(width)
    return _CellWise(nn.LayerNorm(width) if name == "layer" else nn.Identity())
