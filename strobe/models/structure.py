"""Structure stages: what a cell learns from the cells of its snapshot that it reads."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.view import View


class Structure(nn.Module, ABC):
    """Reads cells of the same snapshot along edges."""

    @abstractmethod
    def forward(self, view: View, x: Tensor) -> Tensor:
        """New rows of the view's cells, [C, F'], from their old ones."""


class GCN(Structure):
    """Graph convolution (Kipf and Welling 2017): the normalised sum over neighbours and itself, then a linear map.

    Both are linear, so the narrower side of the map is aggregated; inputs without parameters always are, because
    their aggregate is computed once a run.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        nn.init.xavier_uniform_(self.weight)

    def forward(self, view: View, x: Tensor) -> Tensor:
        outputs, inputs = self.weight.shape
        if inputs <= outputs or view.cells.is_input(x):
            return nn.functional.linear(view.aggregate(x), self.weight, self.bias)
        out = view.aggregate(nn.functional.linear(x, self.weight))
        return out if self.bias is None else out + self.bias


class Convolution(Structure):
    """Any PyTorch Geometric convolution, run on all snapshots of the window at once."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution
        self._weighs = "edge_weight" in inspect.signature(convolution.forward).parameters

    def forward(self, view: View, x: Tensor) -> Tensor:
        weights = {} if view.edge_weight is None or not self._weighs else {"edge_weight": view.edge_weight}
        out: Tensor = self.convolution(view.pull(x), view.edge_index, **weights)
        return out[: view.num_cells]


def as_structure(module: nn.Module) -> Structure:
    """A structure stage from one of ours or a PyTorch Geometric convolution."""
    if isinstance(module, Structure):
        return module
    parameters = list(inspect.signature(module.forward).parameters)
    if parameters[:2] != ["x", "edge_index"]:
        raise OptionError(
            f"{type(module).__name__} is no structure stage: expected one of strobe.models.structure or a PyTorch "
            f"Geometric convolution, forward(x, edge_index, …), not forward({', '.join(parameters)})"
        )
    return Convolution(module)
