"""Pairs of several snapshots as the decoder reads them: inputs of each node once, features of pairs with a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """Distinct nodes of each snapshot, as sources or as destinations.

    Args:
        rows: their rows among the embeddings that the engine gathers, [m].
        features: further inputs of the head, [m, K]; None without any.
    """

    rows: Tensor
    features: Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> NodeInputs:
        """The inputs on a device, floating-point numbers as ``dtype``."""
        features = None if self.features is None else self.features.to(device, dtype)
        return NodeInputs(self.rows.to(device), features)


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs: 8 bytes each, and more for those with a history.

    Args:
        row: the position of each pair's source among sources, [n], int32.
        column: the position of its destination among destinations, [n], int32.
        sources: inputs of sources.
        destinations: inputs of destinations.
        related: pairs whose features are not all 0, in order of rows, [R].
        related_features: [R, P].
    """

    row: Tensor
    column: Tensor
    sources: NodeInputs
    destinations: NodeInputs
    related: Tensor
    related_features: Tensor

    def __len__(self) -> int:
        return len(self.row)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        for value in (getattr(self, each.name) for each in fields(self)):
            if isinstance(value, NodeInputs):
                yield value.rows
                yield from () if value.features is None else (value.features,)
            else:
                yield value

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> PairBatch:
        """The pairs on a device, floating-point numbers as ``dtype``."""
        return PairBatch(
            self.row.to(device),
            self.column.to(device),
            self.sources.to(device, dtype),
            self.destinations.to(device, dtype),
            self.related.to(device),
            self.related_features.to(device, dtype),
        )

    def select(self, index: Tensor) -> PairBatch:
        """Some of the pairs, with the inputs of all nodes."""
        place = self.related.new_full((len(self),), -1)
        place[self.related] = torch.arange(len(self.related), device=place.device)
        related = torch.nonzero(place[index] >= 0).squeeze(1)
        related = related[torch.argsort(self.row[index[related]], stable=True)]
        features = self.related_features[place[index[related]]]
        return replace(self, row=self.row[index], column=self.column[index], related=related, related_features=features)


class BatchDescription(NamedTuple):
    """What tasks know of the pairs of several snapshots.

    Args:
        of_sources: features of distinct sources, [S, K]; None without any.
        of_destinations: features of distinct destinations, [D, K]; None without any.
        related: pairs whose features are not all 0, in order of sources, [R].
        of_pairs: their features, [R, P].
        offset: added to predictions, [n]; None without one.
    """

    of_sources: Tensor | None = None
    of_destinations: Tensor | None = None
    related: Tensor = torch.empty(0, dtype=torch.int64)
    of_pairs: Tensor = torch.empty(0, 0)
    offset: Tensor | None = None

    def batch(self, ends: tuple[Tensor, Tensor], rows: tuple[Tensor, Tensor]) -> PairBatch:
        """The pairs, given the positions of their sources and destinations, and the rows of all of these."""
        sources, destinations = NodeInputs(rows[0], self.of_sources), NodeInputs(rows[1], self.of_destinations)
        return PairBatch(*ends, sources, destinations, self.related, self.of_pairs)
