"""ROLAND-GRU as its authors configured it for the fixed split (BitcoinOTC_GRU.yaml, BitcoinAlpha_GRU.yaml of
snap-stanford/roland), without their code: constant inputs, rating and time of edges, residual convolutions with sums, a
GRU per layer, batch norms, PReLU, normalized embeddings, and a perceptron on both ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HIDDEN, EDGE = 128, 16


class Layer(nn.Module):
    """Messages of both ends and the edge, summed, beside a linear skip; then a GRU over time."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(2 * HIDDEN + EDGE, HIDDEN, bias=False)
        self.skip, self.norm = nn.Linear(HIDDEN, HIDDEN), nn.BatchNorm1d(HIDDEN)
        self.keep, self.reset, self.candidate = (nn.Linear(2 * HIDDEN, HIDDEN) for _ in range(3))

    def forward(self, x: Tensor, edges: Tensor, features: Tensor, h: Tensor, activation: nn.Module) -> Tensor:
        messages = self.message(torch.cat([x[edges[1]], x[edges[0]], features], 1))
        x = activation(self.norm(torch.zeros_like(x).index_add(0, edges[1], messages) + self.skip(x)))
        both = torch.cat([x, h], 1)
        z, r = torch.sigmoid(self.keep(both)), torch.sigmoid(self.reset(both))
        out: Tensor = z * h + (1 - z) * torch.tanh(self.candidate(torch.cat([x, r * h], 1)))
        return out


class PublishedROLAND(nn.Module):
    """Embeddings of all nodes after a snapshot, and logits of pairs."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.activation = nn.PReLU()  # one for all layers
        self.edge, self.edge_norm = nn.Linear(2, EDGE), nn.BatchNorm1d(EDGE)
        self.first, self.first_norm = nn.Linear(1, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN)
        self.second, self.second_norm = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.ends, self.ends_norm = nn.Linear(2 * HIDDEN, 2 * HIDDEN, bias=False), nn.BatchNorm1d(2 * HIDDEN)
        self.last = nn.Linear(2 * HIDDEN, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=nn.init.calculate_gain("relu"))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def embed(self, edges: Tensor, features: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Embeddings [N, HIDDEN] and new states from the edges [2, E] of a snapshot and their features [E, 2]."""
        features = self.edge_norm(self.edge(features))
        x = self.activation(self.first_norm(self.first(torch.ones_like(states[0][:, :1]))))
        x, new = self.activation(self.second_norm(self.second(x))), []
        for layer, h in zip(self.layers, states, strict=True):
            x = layer(x, edges, features, h, self.activation)
            new.append(x)
        return nn.functional.normalize(x, dim=-1), new

    def logits(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Logits of pairs [2, n]."""
        return self._decode(self.ends(torch.cat([x[pairs[0]], x[pairs[1]]], 1)))

    def all_logits(self, x: Tensor, source: Tensor) -> Tensor:
        """Logits of one source with all nodes, [N]."""
        of_source, of_destination = self.ends.weight.split([HIDDEN, HIDDEN], 1)
        return self._decode(x[source] @ of_source.T + x @ of_destination.T)

    def _decode(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.last(self.activation(self.ends_norm(hidden))).squeeze(1)
        return out
