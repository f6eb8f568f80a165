"""Structure stages: convolutions over the arcs of a snapshot."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.ops.dense.linear import linear
from strobe.ops.sparse.attention import attend
from strobe.view import View


class Structure(nn.Module, ABC):
    """A convolution: computes new rows of cells from the rows they read along arcs of their snapshot."""

    def forward(self, view: View, x: Tensor) -> Tensor:
        """Run the convolution.

        Args:
            view: the cells.
            x: their rows, [C, F].

        Returns:
            New rows, [C, F'].
        """
        if not self.supports_chunking:
            return view.run_whole(self.convolve, x)
        if self.aggregates_only and view.data.is_input(x):
            return view.run_structure_on_inputs(self.convolve, x)
        return view.run_structure(self.convolve, list(self.parameters()), x)

    @abstractmethod
    async def convolve(self, view: View, x: Tensor) -> Tensor:
        """The convolution as a coroutine that awaits ``view.aggregate_async`` and ``view.pull_async``.

        While it waits for remote rows, other snapshots may compute. If it runs in chunks, x has the rows that the
        chunk's cells read, their own first.
        """

    aggregates_only: ClassVar[bool] = False
    """Whether it reads neighbors only through ``view.aggregate_async``, whose results on inputs are cached."""

    supports_chunking: bool = True
    """Whether a cell's result depends only on the rows it reads."""


class GCN(Structure):
    """Graph convolution (Kipf and Welling 2017): the normalized sum over neighbors and itself, then a linear map.

    Aggregates on the narrower side of the map; inputs always before it, because their aggregate is cached. ``relu``:
    apply ReLU to the result.
    """

    aggregates_only: ClassVar[bool] = True

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        nn.init.xavier_uniform_(self.weight)

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        outputs, inputs = self.weight.shape
        if inputs <= outputs or view.data.is_input(x):
            return linear(await view.aggregate_async(x), self.weight, self.bias, relu=self.relu)
        out = await view.aggregate_async(linear(x, self.weight))
        out = out if self.bias is None else out + self.bias
        return torch.relu(out) if self.relu else out


class GAT(Structure):
    """Graph attention (Veličković et al. 2018), the same as PyTorch Geometric's ``GATConv``.

    With h = W x per head, cell i gives cell j the weight softmax_j leaky(a_in · h_i + a_out · h_j) over those it
    reads and itself, with exactly one self loop per cell; the result is the weighted sum of h_j, heads concatenated or
    averaged, plus a bias. Parallel edges count separately; edge weights are ignored.

    Args:
        inputs: input columns.
        outputs: output columns per head.
        heads: number of heads.
        concat: concatenate heads instead of averaging them.
        slope: negative slope of the leaky ReLU.
        bias: add a bias.
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
        if inputs <= outputs:  # exchange the narrower rows
            h = linear(await view.pull_async(x), self.weight)
        else:
            h = await view.pull_async(linear(x, self.weight))
        out = attend(view.matrix("loops"), *self._scores(h, view.num_cells), h, self.slope)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return out if self.bias is None else out + self.bias

    def _scores(self, h: Tensor, num_cells: int) -> tuple[Tensor, Tensor]:
        """Scores a · h of each head for the reading cells, [C, heads], and for all rows.

        On a GPU as one product: sums over a few columns of many rows are slow there.
        """
        if h.is_cuda:
            both = linear(h, torch.cat([torch.block_diag(*self.a_in), torch.block_diag(*self.a_out)]))
            score_in, score_out = both.chunk(2, 1)
            return score_in[:num_cells], score_out
        by_head = h.unflatten(1, (self.heads, -1))
        return (by_head[:num_cells] * self.a_in).sum(2), (by_head * self.a_out).sum(2)


class SAGE(Structure):
    """GraphSAGE with the mean aggregator (Hamilton et al. 2017): W_self x + W_neigh mean(read cells) + b.

    The same as PyTorch Geometric's ``SAGEConv``, but the mean uses edge weights. It is 0 without neighbors. Aggregates
    on the narrower side of W_neigh; inputs always before it.
    """

    aggregates_only: ClassVar[bool] = True

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
        if inputs <= outputs or view.data.is_input(x):
            return own + linear(await view.aggregate_async(x, "mean"), self.w_neigh)
        return own + await view.aggregate_async(linear(x, self.w_neigh), "mean")


class Convolution(Structure):
    """A PyTorch Geometric convolution, run on all snapshots of the window at once."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        if getattr(convolution, "cached", False):
            name = type(convolution).__name__
            raise OptionError(f"{name} with cached=True would use the first window's edges in all windows: remove it")
        self.convolution = convolution
        self._uses_edge_weight = "edge_weight" in inspect.signature(convolution.forward).parameters
        self.supports_chunking = not getattr(convolution, "normalize", False)  # reads degrees of neighbors

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        if view.splits_snapshots and getattr(self.convolution, "normalize", False):
            raise OptionError(
                f"{type(self.convolution).__name__} divides by degrees of neighbors, which a rank does not know for "
                "remote cells: use strobe.models.structure.GCN, or a placement that keeps snapshots whole"
            )
        weights = {} if view.edge_weight is None or not self._uses_edge_weight else {"edge_weight": view.edge_weight}
        out: Tensor = self.convolution(await view.pull_async(x), view.edge_index, **weights)
        return out[: view.num_cells]


def as_structure(module: nn.Module) -> Structure:
    """Convert a module to a structure stage.

    Args:
        module: a ``Structure`` or a PyTorch Geometric convolution.

    Raises:
        OptionError: if it is neither.
    """
    if isinstance(module, Structure):
        return module
    parameters = list(inspect.signature(module.forward).parameters)
    if parameters[:2] != ["x", "edge_index"]:
        raise OptionError(
            f"{type(module).__name__} is not a structure stage: expected one of strobe.models.structure or a PyTorch "
            f"Geometric convolution, forward(x, edge_index, …), not forward({', '.join(parameters)})"
        )
    return Convolution(module)


def columns_per_head(width: int, heads: int) -> int:
    """Columns per head. Raises OptionError if ``heads`` does not divide ``width``."""
    if heads < 1 or width % heads:
        raise OptionError(f"{heads} heads cannot share a width of {width} equally: choose a divisor of {width}")
    return width // heads
