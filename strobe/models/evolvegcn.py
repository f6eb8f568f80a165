"""EvolveGCN (Pareja et al. 2020): a graph convolution whose weight is the state of a recurrent network.

The weight evolves by one step per snapshot, also per empty one, before the convolution. As in PyTorch Geometric
Temporal, whose numbers these models reproduce, the recurrent network is a torch GRU and the rows of
the weight [inputs, outputs] are its batch. The paper (section 3.1) differs in three ways: its GRU takes the columns
as the batch and has a bias per entry of the weight, it applies the reset gate to the state instead of to the projected
state, and version -O evolves by an LSTM.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.ops.dense.linear import linear
from strobe.ops.dense.segments import densify_gradient, segment_matmul, segment_readout
from strobe.view import View


class EvolvingConv(nn.Module):
    """One convolution without bias; its weight evolves from window to window."""

    def __init__(self, inputs: int, outputs: int, read: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.cell = nn.GRUCell(read, outputs)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, view: View, x: Tensor) -> Tensor:
        x = densify_gradient(x)
        return view.run_per_snapshot(self._convolve, x, self.weights(view, x))

    def forward_readout(self, view: View, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """``readout(self(view, x), weight, bias)``."""
        x = densify_gradient(x)
        evolved = self.weights(view, x)
        return segment_readout(view.aggregate(x), evolved, view.data.cell_ptr, weight, bias)

    async def _convolve(self, view: View, x: Tensor, weights: Tensor) -> Tensor:
        # Aggregate first: x is never wider than the outputs, unless it is the input, whose aggregate is cached.
        return segment_matmul(await view.aggregate_async(x), weights, view.data.cell_ptr)

    def weights(self, view: View, x: Tensor) -> Tensor:
        """The weight of every snapshot, [T, inputs, outputs]."""
        carried = view.load_state()
        weight: Tensor = self.weight if carried is None else carried
        evolved = []
        for read in self.read(view, x):
            weight = self.cell(weight if read is None else read, weight)
            evolved.append(weight)
        view.save_states(evolved)
        return torch.stack(evolved) if evolved else self.weight.new_empty(0, *self.weight.shape)

    @abstractmethod
    def read(self, view: View, x: Tensor) -> list[Tensor] | list[None]:
        """Input of the recurrent network at every snapshot; None: the weight itself."""


class EvolvingConvO(EvolvingConv):
    """W' = GRU(W, W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, outputs)

    def read(self, view: View, x: Tensor) -> list[None]:
        return [None] * view.num_snapshots


class EvolvingConvH(EvolvingConv):
    """W' = GRU(top rows, W): row i of the weight reads the cell with the i-th highest score x·p / |p|.

    Each selected row is multiplied by the tanh of its score, through which p is learned. Snapshots with fewer cells
    than the weight has rows are padded with zeros.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, inputs)
        self.direction = nn.Parameter(torch.empty(inputs))
        nn.init.uniform_(self.direction, -(inputs**-0.5), inputs**-0.5)

    def read(self, view: View, x: Tensor) -> list[Tensor]:
        return list(view.top_rows(x, self.direction, len(self.weight)).unbind())


class _EvolveGCN(Model):
    def __init__(
        self,
        evolving: type[EvolvingConvO] | type[EvolvingConvH],
        inputs: int,
        hidden: int,
        layers: int,
        lift: bool,
        skip: bool,
    ):
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.skip = skip
        self.width = hidden + inputs if skip else hidden
        self.lift = nn.Linear(inputs, hidden) if lift else None
        widths = [hidden if lift else inputs] + [hidden] * layers
        self.layers = nn.ModuleList(evolving(a, b) for a, b in pairwise(widths))

    def forward(self, view: View) -> Tensor:
        out: Tensor = self.layers[-1](view, self._before_last(view))
        return torch.cat([out, view.x.to(out)], 1) if self.skip else out

    def forward_readout(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        if self.skip:
            return super().forward_readout(view, weight, bias)
        last = self.layers[-1]
        assert isinstance(last, EvolvingConv)
        return last.forward_readout(view, self._before_last(view), weight, bias)

    def _before_last(self, view: View) -> Tensor:
        """Input of the last layer."""
        x = view.x if self.lift is None else linear(view.x, self.lift.weight, self.lift.bias, relu=True)
        for layer in self.layers[:-1]:
            x = layer(view, x).relu_()
        return x


class EvolveGCNO(_EvolveGCN):
    """EvolveGCN-O: the weight evolves from itself alone, independent of the graph.

    ``lift``: a linear layer and ReLU map the features to ``hidden`` columns before the first convolution.
    ``skip``: the embedding of a cell also has its features (``skipfeats`` in the authors' code).
    """

    def __init__(
        self, inputs: int, hidden: int = 32, *, layers: int = 1, lift: bool = True, skip: bool = False
    ) -> None:
        super().__init__(EvolvingConvO, inputs, hidden, layers, lift, skip)


class EvolveGCNH(_EvolveGCN):
    """EvolveGCN-H: the weight evolves from the highest-scoring cells of each snapshot.

    ``lift`` and ``skip`` as in EvolveGCN-O.
    """

    def __init__(
        self, inputs: int, hidden: int = 32, *, layers: int = 1, lift: bool = True, skip: bool = False
    ) -> None:
        super().__init__(EvolvingConvH, inputs, hidden, layers, lift, skip)
