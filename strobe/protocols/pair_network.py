"""A small network that scores candidates of an event from pair features, and from embeddings of both ends if given."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from strobe.protocols.events import Ids

_LEAST_SCALE = 1e-3
"""Least deviation by which a feature is divided; constant features stay near 0."""


class EndEmbeddings(nn.Module, ABC):
    """Embeddings of sources and destinations, such as those of a snapshot model, as further inputs of a network.

    An implementation returns for an event only what is known before the event's batch. Its parameters, if any, are
    trained with the network.

    Attributes:
        width: columns of the embeddings.
    """

    width: int

    @abstractmethod
    def lookup(self, events: Ids, candidates: Ids) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the events' sources, [n, width], and of their candidates, [n, C, width].

        Args:
            events: numbers of events of the stream, [n].
            candidates: destinations, [n, C].
        """


class PairNetwork(nn.Module):
    """A multilayer perceptron over every candidate of an event.

    The features of the source are the same for all candidates: their part of the first layer is computed once per
    event. Embeddings of the ends enter the first layer, and so does their Hadamard product.

    Args:
        num_pair: features of a pair.
        num_src: features of a source.
        hidden: width of both hidden layers.
        embedding_width: columns of embeddings of the ends, 0 for none.
    """

    mean: Tensor
    scale: Tensor
    src_mean: Tensor
    src_scale: Tensor

    def __init__(self, num_pair: int, num_src: int, hidden: int, embedding_width: int = 0) -> None:
        super().__init__()
        self.pair, self.src = nn.Linear(num_pair, hidden), nn.Linear(num_src, hidden, bias=False)
        self.src_end = nn.Linear(embedding_width, hidden, bias=False) if embedding_width else None
        self.dst_end = nn.Linear(2 * embedding_width, hidden, bias=False) if embedding_width else None
        self.inner, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        for prefix, width in (("", num_pair), ("src_", num_src)):
            self.register_buffer(f"{prefix}mean", torch.zeros(width))
            self.register_buffer(f"{prefix}scale", torch.ones(width))

    def standardize(self, pair: Tensor, src: Tensor) -> None:
        """Take mean and deviation of every feature from examples, [n, C, num_pair] and [n, num_src]."""
        rows = pair.flatten(0, 1)
        self.mean, self.scale = rows.mean(0), rows.std(0).clamp_min(_LEAST_SCALE)
        self.src_mean, self.src_scale = src.mean(0), src.std(0).clamp_min(_LEAST_SCALE)

    def forward(self, pair: Tensor, src: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Score candidates, [n, C].

        Args:
            pair: features of pairs, [n, C, num_pair].
            src: features of sources, [n, num_src].
            ends: embeddings of sources, [n, width], and of candidates, [n, C, width].
        """
        # (x - mean) / scale, folded into the layer: no copy of the features
        weight = self.pair.weight / self.scale
        shared = self.src((src - self.src_mean) / self.src_scale) + self.pair.bias - weight @ self.mean
        if self.src_end is not None and self.dst_end is not None:
            assert ends is not None, "the network was made for embeddings of both ends"
            source, candidates = ends
            shared = shared + self.src_end(source)
            hidden = pair @ weight.T + self.dst_end(torch.cat([candidates, candidates * source[:, None]], dim=-1))
        else:
            hidden = pair @ weight.T
        hidden = silu(hidden + shared[:, None])
        scores: Tensor = self.out(silu(self.inner(hidden))).squeeze(-1)
        return scores
