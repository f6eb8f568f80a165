"""DySAT (Sankar et al. 2020): self-attention over neighbors, then over the node's own past.

Paper: DySAT, deep neural representation learning on dynamic graphs via self-attention networks.
- structure: h = ELU(GAT(x)), heads concatenated, one layer or more;
- time, one block or more: a node's cells enter as h + p, p the embedding of their position; per head
  softmax(Q Kᵀ / √depth + causal mask) V with Q, K, V linear maps without bias, heads concatenated;
- then, as in the authors' code, y + ReLU(W y + b) of the result y, plus the block's input h + p.

Two differences. Positions count back from the computed cell (see ``time.Attention``): with one block an embedding is
that of the paper's model for the last snapshot of the history up to that cell, with positions numbered from the end,
and later snapshots than those trained on need no new positions. Edge weights, which multiply the paper's structural
scores, are ignored.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from strobe.models.base import Model, check_sizes
from strobe.models.structure import GAT, columns_per_head
from strobe.models.time import Attention, Time
from strobe.ops.dense.linear import feed_forward
from strobe.ops.time.sequences import Sequences
from strobe.view import View


class DySAT(Model):
    """``layers`` of structural attention, then ``time_layers`` blocks of temporal attention.

    ``span`` and ``positions`` are those of ``time.Attention``.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 32,
        *,
        layers: int = 1,
        time_layers: int = 1,
        heads: int = 4,
        span: int | None = None,
        positions: int = 16,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden, layers=layers, time_layers=time_layers, heads=heads)
        depth = columns_per_head(hidden, heads)
        self.width, self.history = hidden, None if span is None else time_layers * (span - 1)
        self.attentions = nn.ModuleList(GAT(a, depth, heads=heads) for a, _ in pairwise([inputs] + [hidden] * layers))
        self.blocks = nn.ModuleList(
            TemporalBlock(hidden, heads, span=span, positions=positions) for _ in range(time_layers)
        )

    def forward(self, view: View) -> Tensor:
        x = view.x
        for attention in self.attentions:
            x = nn.functional.elu(attention(view, x))
        for block in self.blocks:
            assert isinstance(block, TemporalBlock)
            x = view.over_time(block, x)
        return x


class TemporalBlock(Time):
    """Temporal attention, a feed-forward layer on every cell, and a residual connection."""

    def __init__(self, width: int, heads: int, *, span: int | None = None, positions: int = 16) -> None:
        super().__init__()
        self.attention = Attention(width, heads, span=span, positions=positions)
        self.feed_forward = nn.Linear(width, width)

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        y, state = self.attention.encode(x, state, sequences)
        layer, positions = self.feed_forward, self.attention.positions
        shift = None if positions is None else positions[0]  # a cell reads itself as x + p_0
        return feed_forward(y, x, layer.weight, layer.bias, shift), state
