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


class EdgeHead(nn.Module):
    """A head of pairs of nodes. ``unseen`` is the embedding of nodes that no snapshot has had so far, [width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.unseen = nn.Parameter(torch.zeros(width))


HIDDEN = 64
"""Columns of the decoder's hidden layers, at least."""


class PairDecoder(EdgeHead):
    """Log-odds of pairs: ⟨P s, Q d⟩ + a(s) + b(d) + h(s, d, f). s and d encode the embedding and the features of source
    and destination, f are features of the pair, and h counts only for pairs with a history, whose f are not all 0.

    Sources and destinations have encoders of their own also in undirected graphs: the question is which destinations
    the source will have. Without h, scores of all destinations are one matrix product. Q and the last layers of a, b
    and h start at 0: an untrained decoder predicts the offset.

    Args:
        width: columns of the embeddings.
        node_features: features of each end.
        pair_features: features of a pair; 0: without h.
    """

    def __init__(self, width: int, node_features: int = 0, pair_features: int = 0) -> None:
        super().__init__(width)
        self.node_features, hidden = node_features, max(width, HIDDEN)
        self.source, self.destination = (_network(width + node_features, hidden, hidden) for _ in range(2))
        self.query, self.key = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.source_score, self.destination_score = nn.Linear(hidden, 1), nn.Linear(hidden, 1, bias=False)
        starts_at_0: list[nn.Module] = [self.key, self.source_score, self.destination_score]
        self.pair: nn.Sequential | None = None
        if pair_features:
            last = nn.Linear(hidden, 1)
            self.pair = nn.Sequential(_network(pair_features + 2 * hidden, hidden, hidden), last)
            starts_at_0.append(last)
        for layer in starts_at_0:
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, z: Tensor, sources: Tensor, destinations: Tensor, features: Tensor | None = None) -> Tensor:
        if torch.is_grad_enabled() or len(sources) <= PAIRS_PER_CHUNK:
            return self._scores(z, sources, destinations, features)
        chunks = zip(sources.split(PAIRS_PER_CHUNK), destinations.split(PAIRS_PER_CHUNK), strict=True)
        rows = [None] * -(-len(sources) // PAIRS_PER_CHUNK) if features is None else features.split(PAIRS_PER_CHUNK)
        return torch.cat([self._scores(z, s, d, f) for (s, d), f in zip(chunks, rows, strict=True)])

    def _scores(self, z: Tensor, sources: Tensor, destinations: Tensor, features: Tensor | None) -> Tensor:
        s, d, pairs = z[sources], z[destinations], None
        if features is not None:
            size = self.node_features
            of_source, of_destination, pairs = features.to(z).split([size, size, features.shape[1] - 2 * size], 1)
            s, d = torch.cat([s, of_source], 1), torch.cat([d, of_destination], 1)
        s, d = self.source(s), self.destination(d)
        products = (self.query(s) * self.key(d)).sum(1, keepdim=True) / self.key.in_features**0.5
        scores: Tensor = (products + self.source_score(s) + self.destination_score(d)).squeeze(1)
        if pairs is None or self.pair is None:
            return scores
        known = torch.nonzero((pairs != 0).any(1)).squeeze(1)
        of_pairs = self.pair(torch.cat([pairs[known], s[known], d[known]], 1)).squeeze(1)
        return scores.index_add(0, known, of_pairs.to(scores.dtype))


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two layers, each followed by ReLU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs), nn.ReLU())
