"""ROLAND (You et al. 2022): each layer of a static graph network has a state per node, which is updated over time.

Paper: ROLAND, graph learning framework for dynamic graphs. Features pass a linear layer with ReLU. Then layer l of a
snapshot convolves the states of layer l - 1 of the same snapshot, applies ReLU, and updates the states h of layer l
with the result x:
- ``gru``: r, z = σ(W [x, h] + b), h' = z h + (1 - z) tanh(W [x, r h] + b), as in the authors' code;
- ``mlp``: h' = MLP([h, x]), two linear layers and ReLU between them, the inner one as wide as [h, x] (their code, too);
- ``moving-average``: h' = κ h + (1 - κ) x with κ = past / (past + present arcs), 0 without any. Arcs are counted node
  by node, as in the authors' code. Of directed graphs they count outgoing arcs; here these are incoming ones, which
  the convolution reads.

The authors' experiments add a second linear layer at the start, batch norms, PReLU, skip connections, edge features and
normalized embeddings. They train on one snapshot after the other from saved states: batching windows of one snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from strobe.errors import OptionError, UnknownNameError
from strobe.models.base import Block, Model, check_sizes
from strobe.models.structure import GAT, GCN, SAGE, Structure, as_structure
from strobe.models.time import Time
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.dense.linear import linear
from strobe.ops.time.gru import gru
from strobe.ops.time.recurrent import State, run_in_torch
from strobe.ops.time.sequences import Sequences
from strobe.view import View

ConvolutionName = Literal["gcn", "sage", "gat"]
MakeConvolution = Callable[[int, int], nn.Module]
"""Makes a convolution from its input and output columns, such as a class of PyTorch Geometric's."""
Update = Literal["gru", "mlp", "moving-average"]


class ROLAND(Model):
    """A linear layer with ReLU, then ``layers`` blocks of a convolution and an update of its state.

    Args:
        inputs: input columns.
        hidden: columns of all states.
        layers: number of blocks.
        convolution: a name, or what makes a PyTorch Geometric convolution: ``ROLAND(8, convolution=GraphConv)``.
        update: of a node's state with the convolution's output.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 32,
        *,
        layers: int = 2,
        convolution: ConvolutionName | MakeConvolution = "gcn",
        update: Update = "gru",
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers)
        self.width = hidden
        self.preprocess = nn.Linear(inputs, hidden)
        counts = update == "moving-average"
        self.blocks = nn.ModuleList(
            Block(Message(_make_convolution(convolution, hidden), counts_arcs=counts), _make_update(update, hidden))
            for _ in range(layers)
        )

    def forward(self, view: View) -> Tensor:
        x = linear(view.x, self.preprocess.weight, self.preprocess.bias, relu=True)
        for block in self.blocks:
            x = block(view, x)
        return x


class Message(Structure):
    """A convolution and ReLU; ``counts_arcs`` appends a column with the number of arcs that each cell reads."""

    def __init__(self, convolution: nn.Module, *, counts_arcs: bool) -> None:
        super().__init__()
        self.convolution = as_structure(convolution)
        self.counts_arcs = counts_arcs
        self.supports_chunking = self.convolution.supports_chunking

    async def convolve(self, view: View, x: Tensor) -> Tensor:
        out = await self.convolution.convolve(view, x)
        if not (isinstance(self.convolution, GCN) and self.convolution.relu):
            out = torch.relu(out)
        if not self.counts_arcs:
            return out
        number = view.matrix("sum").row_ptr.diff()
        return torch.cat([out, number.to(out.dtype)[:, None]], 1)


class GRUUpdate(Time):
    """A GRU whose reset gate acts on the state."""

    has_row_state: ClassVar[bool] = True
    supports_state_transport: ClassVar[bool] = True

    def __init__(self, hidden: int) -> None:
        super().__init__()
        bound = math.sqrt(6 / (3 * hidden))  # Glorot, each gate one matrix over [x, h]
        # Rows: reset, update, candidate.
        self.of_input, self.of_state = (
            nn.Parameter(torch.empty(3 * hidden, hidden).uniform_(-bound, bound)) for _ in range(2)
        )
        self.bias = nn.Parameter(torch.zeros(3 * hidden))

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        return gru(x, state, sequences, self.of_input, self.of_state, self.bias, reset_state=True)


class MLPUpdate(Time):
    """A multilayer perceptron of the state and the row."""

    has_row_state: ClassVar[bool] = True

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        state = (x.new_zeros(sequences.num_slots, x.shape[1]),) if state is None else state
        return _run(self._step, x, state, sequences)

    def _step(self, x: Tensor, state: State) -> State:
        return (self.mlp(torch.cat([state[0], x], 1)),)


class MovingAverage(Time):
    """The mean of a node's rows, weighted by the arcs that each reads, of which the last column has the number.

    In bfloat16 sums of arcs have 8 bits: a node with n arcs does not notice fewer than n / 256 new ones.
    """

    has_row_state: ClassVar[bool] = True

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        if state is None:
            zeros = x.new_zeros(sequences.num_slots, x.shape[1])
            state = zeros[:, :-1].contiguous(), zeros[:, -1:].contiguous()
        return _run(self._step, x, state, sequences)

    @staticmethod
    def _step(x: Tensor, state: State) -> State:
        h, past = state
        row, present = x[:, :-1], x[:, -1:].detach()
        keep = past / (past + present).clamp(min=1)
        return keep * h + (1 - keep) * row, past + present


def _run(step: Callable[[Tensor, State], State], x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    if x.dtype == BF16:
        return run_in_float32(run_in_torch, step, x, state, sequences)
    return run_in_torch(step, x, state, sequences)


def _make_convolution(convolution: ConvolutionName | MakeConvolution, width: int) -> nn.Module:
    if convolution == "gcn":
        return GCN(width, width, relu=True)
    if convolution == "sage":
        return SAGE(width, width)
    if convolution == "gat":
        return GAT(width, width)
    if isinstance(convolution, str):
        raise UnknownNameError("convolution of ROLAND", convolution, get_args(ConvolutionName))
    made = convolution(width, width)
    if not isinstance(made, nn.Module):
        raise OptionError(f"convolution of ROLAND must make a module from its columns, not {type(made).__name__}")
    return made


def _make_update(update: Update, hidden: int) -> Time:
    if update == "gru":
        return GRUUpdate(hidden)
    if update == "mlp":
        return MLPUpdate(hidden)
    if update == "moving-average":
        return MovingAverage()
    raise UnknownNameError("update of ROLAND", update, get_args(Update))
