"""EvolveGCN (Pareja et al. 2020): a graph convolution whose weight is itself the state of a recurrent network.

One step of evolution per snapshot, also per empty one, then the convolution with the weight of that snapshot. As in
PyTorch Geometric Temporal, whose numbers these models reproduce, the recurrent network is a torch GRU and the rows of
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
from strobe.ops.linear import linear
from strobe.ops.segments import segment_matmul, segment_readout, with_dense_gradient
from strobe.view import View


class Evolving(nn.Module):
    """One convolution without bias; its weight goes on evolving from window to window."""

    def __init__(self, inputs: int, outputs: int, read: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.cell = nn.GRUCell(read, outputs)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, view: View, x: Tensor) -> Tensor:
        x = with_dense_gradient(x)
        return view.by_snapshot(self._convolve, x, self.weights(view, x))

    def answers(self, view: View, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """``readout(self(view, x), weight, bias)``."""
        x = with_dense_gradient(x)
        evolved = self.weights(view, x)
        return segment_readout(view.aggregate(x), evolved, view.cells.cell_ptr, weight, bias)

    async def _convolve(self, view: View, x: Tensor, weights: Tensor) -> Tensor:
        # x is never wider than the outputs unless it is the input, whose aggregate is kept: aggregate first.
        return segment_matmul(await view.aggregated(x), weights, view.cells.cell_ptr)

    def weights(self, view: View, x: Tensor) -> Tensor:
        """The weight of every snapshot, [T, inputs, outputs]."""
        carried = view.carried()
        weight: Tensor = self.weight if carried is None else carried
        evolved = []
        for read in self.read(view, x):
            weight = self.cell(weight if read is None else read, weight)
            evolved.append(weight)
        view.keep_each(evolved)
        return torch.stack(evolved) if evolved else self.weight.new_empty(0, *self.weight.shape)

    @abstractmethod
    def read(self, view: View, x: Tensor) -> list[Tensor] | list[None]:
        """What the recurrent network reads at every snapshot; None: the weight itself."""


class EvolvingO(Evolving):
    """W' = GRU(W, W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, outputs)

    def read(self, view: View, x: Tensor) -> list[None]:
        return [None] * view.num_snapshots


class EvolvingH(Evolving):
    """W' = GRU(top rows, W): row i of the weight reads the cell with the i-th highest score x·p / |p|.

    Each chosen row is weighed with the tanh of its score, which is how p learns. The rows of a snapshot with fewer
    cells than the weight has rows are filled up with zeros.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, inputs)
        self.direction = nn.Parameter(torch.empty(inputs))
        nn.init.uniform_(self.direction, -(inputs**-0.5), inputs**-0.5)

    def read(self, view: View, x: Tensor) -> list[Tensor]:
        return list(view.top_rows(x, self.direction, len(self.weight)).unbind())


class _EvolveGCN(Model):
    def __init__(self, evolving: type[EvolvingO] | type[EvolvingH], inputs: int, hidden: int, layers: int, lift: bool):
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.width = hidden
        self.lift = nn.Linear(inputs, hidden) if lift else None
        widths = [hidden if lift else inputs] + [hidden] * layers
        self.layers = nn.ModuleList(evolving(a, b) for a, b in pairwise(widths))

    def forward(self, view: View) -> Tensor:
        out: Tensor = self.layers[-1](view, self._before_last(view))
        return out

    def answers(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        last = self.layers[-1]
        assert isinstance(last, Evolving)
        return last.answers(view, self._before_last(view), weight, bias)

    def _before_last(self, view: View) -> Tensor:
        """What the last layer reads."""
        x = view.x if self.lift is None else linear(view.x, self.lift.weight, self.lift.bias, relu=True)
        for layer in self.layers[:-1]:
            x = layer(view, x).relu_()
        return x


class EvolveGCNO(_EvolveGCN):
    """EvolveGCN-O: the weight evolves from itself alone, so the graph never steers it.

    ``lift``: a linear layer and ReLU bring the features to ``hidden`` columns before the first convolution; without
    it that convolution reads them as they are.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 1, lift: bool = True) -> None:
        super().__init__(EvolvingO, inputs, hidden, layers, lift)


class EvolveGCNH(_EvolveGCN):
    """EvolveGCN-H: the weight evolves from the most telling cells of each snapshot.

    ``lift`` as in EvolveGCN-O.
    """

    def __init__(self, inputs: int, hidden: int = 32, *, layers: int = 1, lift: bool = True) -> None:
        super().__init__(EvolvingH, inputs, hidden, layers, lift)
