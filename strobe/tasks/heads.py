"""Heads: from embeddings of cells to predictions of nodes or pairs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from strobe.ops.dense.readout import readout


class NodeReadout(nn.Linear):
    """A linear map of ReLU(z)."""

    def forward(self, z: Tensor, cell_index: Tensor | None = None) -> Tensor:
        return readout(z, self.weight, self.bias, cell_index)


PAIRS_PER_CHUNK = 1 << 18
"""Pairs scored at a time without gradients; bounds memory."""


class PairDecoder(nn.Module):
    """Log-odds of pairs: w · ReLU(A s + B d + C (s ∘ d) + b) + c; A = B in undirected graphs, whose pairs have no
    order. w and c start at 0: an untrained decoder predicts the offset."""

    def __init__(self, width: int, *, directed: bool) -> None:
        super().__init__()
        self.source = nn.Linear(width, width)
        self.destination = nn.Linear(width, width, bias=False) if directed else None
        self.both = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, z: Tensor, sources: Tensor, destinations: Tensor) -> Tensor:
        if torch.is_grad_enabled() or len(sources) <= PAIRS_PER_CHUNK:
            return self._scores(z[sources], z[destinations])
        chunks = zip(sources.split(PAIRS_PER_CHUNK), destinations.split(PAIRS_PER_CHUNK), strict=True)
        return torch.cat([self._scores(z[s], z[d]) for s, d in chunks])

    def _scores(self, source: Tensor, destination: Tensor) -> Tensor:
        if self.destination is None:
            alone = self.source(source + destination)
        else:
            alone = self.source(source) + self.destination(destination)
        scores: Tensor = self.score(torch.relu(alone + self.both(source * destination)))
        return scores.squeeze(1)
