"""Structure stages: what a cell learns from the cells of its snapshot that it reads."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.ops.attention import attend
from strobe.ops.linear import linear
from strobe.view import View


class Structure(nn.Module, ABC):
    """Reads cells of the same snapshot along edges."""

    def forward(self, view: View, x: Tensor) -> Tensor:
        """New rows of the view's cells, [C, F'], from their old ones."""
        if not self.works_in_pieces:
            return view.at_once(self.convolve, x)
        if self.aggregates and view.cells.is_input(x):
            return view.of_inputs(self.convolve, x)
        return view.through(self.convolve, list(self.parameters()), x)

    @abstractmethod
    async def convolve(self, view: View, x: Tensor) -> Tensor:
        """The same, awaiting ``view.aggregated`` and ``view.pulled``: where snapshots run one by one, others compute
        meanwhile. Where it runs in pieces, x has the rows that the cells read, their own first."""

    aggregates: ClassVar[bool] = False
    """Whether it reads others through ``view.aggregated`` alone: aggregates of inputs are computed once a run, for all
    cells."""

    works_in_pieces: bool = True
    """Whether it looks at nothing but the rows that a cell reads."""


class GCN(Structure):
    """Graph convolution (Kipf and Welling 2017): the normalised sum over neighbours and itself, then a linear map.

    Both are linear, so the narrower side of the map is aggregated; inputs without parameters always are, because
    their aggregate is computed once a run. ``relu``: what is positive of the result.
    """

    aggregates: ClassVar[bool] = True

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        nn.init.xavier_uniform_(self.weight)

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        outputs, inputs = self.weight.shape
        if inputs <= outputs or view.cells.is_input(x):
            return linear(await view.aggregated(x), self.weight, self.bias, relu=self.relu)
        out = await view.aggregated(linear(x, self.weight))
        out = out if self.bias is None else out + self.bias
        return torch.relu(out) if self.relu else out


class GAT(Structure):
    """Graph attention (Veličković et al. 2018), the same as PyTorch Geometric's ``GATConv``.

    With h = W x per head, cell i gives cell j the weight softmax_j leaky(a_in · h_i + a_out · h_j) over those it
    reads and itself, each cell's own loop counted once whatever the graph has; the result is the weighted sum of h_j,
    heads side by side, or their mean, plus a bias. Parallel edges count each; weights of edges do not count.

    Args:
        outputs: columns per head; heads: side by side (``concat``) or averaged; slope: of the leaky rectifier.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        heads: int = 1,
        concat: bool = True,
        slope: float = 0.2,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.concat, self.slope = heads, concat, slope
        self.weight = nn.Parameter(torch.empty(heads * outputs, inputs))
        self.a_in = nn.Parameter(torch.empty(heads, outputs))
        self.a_out = nn.Parameter(torch.empty(heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if concat else outputs)) if bias else None
        for weight in (self.weight, self.a_in, self.a_out):
            nn.init.xavier_uniform_(weight)

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        outputs, inputs = self.weight.shape
        if inputs <= outputs:  # whatever is narrower travels
            h = linear(await view.pulled(x), self.weight)
        else:
            h = await view.pulled(linear(x, self.weight))
        out = attend(view.matrix("loops"), *self._scores(h, view.num_cells), h, self.slope)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return out if self.bias is None else out + self.bias

    def _scores(self, h: Tensor, num_cells: int) -> tuple[Tensor, Tensor]:
        """What each head says of the cells that read and of all rows, a · h: [C, heads] from heads side by side.

        On a GPU by one product, since there sums over a few columns of many rows are much slower than memory.
        """
        if h.is_cuda:
            both = linear(h, torch.cat([torch.block_diag(*self.a_in), torch.block_diag(*self.a_out)]))
            of_reading, of_read = both.chunk(2, 1)
            return of_reading[:num_cells], of_read
        by_head = h.unflatten(1, (self.heads, -1))
        return (by_head[:num_cells] * self.a_in).sum(2), (by_head * self.a_out).sum(2)


class SAGE(Structure):
    """GraphSAGE with the mean aggregator (Hamilton et al. 2017): W_self x + W_neigh mean(those it reads) + b.

    The same as PyTorch Geometric's ``SAGEConv``, but that edges with weights weigh in the mean. A cell that reads
    nobody has the mean 0. The narrower side of W_neigh is aggregated, inputs without parameters always.
    """

    aggregates: ClassVar[bool] = True

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.w_self = nn.Parameter(torch.empty(outputs, inputs))
        self.w_neigh = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        for weight in (self.w_self, self.w_neigh):
            nn.init.xavier_uniform_(weight)

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        outputs, inputs = self.w_neigh.shape
        own = linear(x[: view.num_cells], self.w_self, self.bias)
        if inputs <= outputs or view.cells.is_input(x):
            return own + linear(await view.aggregated(x, "mean"), self.w_neigh)
        return own + await view.aggregated(linear(x, self.w_neigh), "mean")


class Convolution(Structure):
    """Any PyTorch Geometric convolution, run on all snapshots of the window at once."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        if getattr(convolution, "cached", False):
            name = type(convolution).__name__
            raise OptionError(
                f"{name} with cached=True would use the first window's edges for all others: leave it out"
            )
        self.convolution = convolution
        self._weighs = "edge_weight" in inspect.signature(convolution.forward).parameters
        self.works_in_pieces = not getattr(convolution, "normalize", False)  # which asks for degrees of neighbours

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        if view.splits_snapshots and getattr(self.convolution, "normalize", False):
            raise OptionError(
                f"{type(self.convolution).__name__} divides by degrees of neighbours, which a rank does not know of "
                "those elsewhere: take strobe.models.structure.GCN, or a placement that keeps snapshots whole"
            )
        weights = {} if view.edge_weight is None or not self._weighs else {"edge_weight": view.edge_weight}
        out: Tensor = self.convolution(await view.pulled(x), view.edge_index, **weights)
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


def columns_per_head(width: int, heads: int) -> int:
    """Columns of each of so many heads side by side."""
    if heads < 1 or width % heads:
        raise OptionError(f"{heads} heads cannot share a width of {width} equally: choose a divisor of {width}")
    return width // heads
