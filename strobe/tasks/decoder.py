"""The head for pairs: from the embeddings of two nodes to the score of an edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHUNK = 1 << 18
"""Pairs scored at a time where no gradient is wanted: bounds memory when millions are ranked."""


class PairDecoder(nn.Module):
    """w · ReLU(A s + B d + C (s ∘ d) + b) + c for directed edges; for undirected ones A = B, so that both orders
    score the same. Scores are log-odds, one per pair; w and c begin at 0, so that an untrained decoder leaves what
    scores start from as it is."""

    def __init__(self, width: int, *, directed: bool) -> None:
        super().__init__()
        self.source = nn.Linear(width, width)
        self.destination = nn.Linear(width, width, bias=False) if directed else None
        self.both = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, z: Tensor, sources: Tensor, destinations: Tensor) -> Tensor:
        if torch.is_grad_enabled() or len(sources) <= CHUNK:
            return self._scores(z[sources], z[destinations])
        chunks = zip(sources.split(CHUNK), destinations.split(CHUNK), strict=True)
        return torch.cat([self._scores(z[s], z[d]) for s, d in chunks])

    def _scores(self, source: Tensor, destination: Tensor) -> Tensor:
        if self.destination is None:
            alone = self.source(source + destination)
        else:
            alone = self.source(source) + self.destination(destination)
        scores: Tensor = self.score(torch.relu(alone + self.both(source * destination)))
        return scores.squeeze(1)
