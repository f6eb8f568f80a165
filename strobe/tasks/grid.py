"""A grid of sources and candidate destinations, all pairs of which are scored, and ranks of positives in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

BLOCK_SCORES = 1 << 20
"""Scores that are in memory at a time without gradients: they stay in a core's cache."""

_TOLERANCE, _TOLERANCE_FLOAT64 = 1e-5, 1e-9
"""Scores that differ by less, relative to a positive's above 1, are equal: other tiles of a product compute the same
score with other last digits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateGrid:
    """Sources and candidates of one snapshot.

    Args:
        sources: node ids, distinct, [S].
        candidates: node ids, distinct, [M].
        positive: rows and columns of positives, in order of rows, [2, n].
        source_features: inputs of the head, [S, K]; None without any.
        candidate_features: the same, [M, K].
        related: rows and columns of pairs with a history, in order of rows, [2, R].
        related_features: [R, P]; all other pairs have zeros.
        source_offset: added to all scores of a source, [S]; None without offsets.
        candidate_offset: added to all scores of a candidate, [M].
        related_offset: added to the scores of related pairs, [R].
        log_weight: logarithm of one over the probability that each candidate was sampled, [M]; None for 0. A candidate
            with -inf is no negative: it is there as a positive alone.
        rows: rows of sources and of candidates among the embeddings that the engine gathers.
    """

    sources: Tensor
    candidates: Tensor
    positive: Tensor
    source_features: Tensor | None = None
    candidate_features: Tensor | None = None
    related: Tensor
    related_features: Tensor
    source_offset: Tensor | None = None
    candidate_offset: Tensor | None = None
    related_offset: Tensor | None = None
    log_weight: Tensor | None = None
    rows: tuple[Tensor, Tensor] | None = None

    def tensors(self) -> Iterator[Tensor]:
        """All tensors but those of rows."""
        values = (getattr(self, each.name) for each in fields(self))
        return (value for value in values if isinstance(value, Tensor))

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> CandidateGrid:
        """The grid on a device, floating-point numbers as ``dtype``."""
        changes: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changes[each.name] = value.to(device, dtype if value.is_floating_point() else None)
        return replace(self, **changes)

    def rows_of(self, first: int, last: int) -> slice:
        """The related pairs of sources ``first`` up to ``last``."""
        a, b = torch.searchsorted(self.related[0].contiguous(), torch.tensor([first, last], device=self.related.device))
        return slice(int(a), int(b))

    @property
    def same_node(self) -> Tensor:
        """Rows and columns of pairs of a node with itself, which are no negatives, [2, n]."""
        order = torch.argsort(self.candidates)
        ordered = self.candidates[order]
        at = torch.searchsorted(ordered, self.sources).clamp(max=max(len(ordered) - 1, 0))
        row = torch.nonzero(ordered[at] == self.sources).squeeze(1) if len(ordered) else at[:0]
        return torch.stack([row, order[at[row]]])


def rank_in_grid(
    grid: CandidateGrid, blocks: Iterator[tuple[int, Tensor]], *, tolerance: float | None = None
) -> Tensor:
    """Rank the positives of a grid among the negatives of their source: all candidates but its positives and itself.

    Args:
        grid: the grid.
        blocks: first row and scores, [b, M], of consecutive rows; they are overwritten.
        tolerance: scores that differ by less are equal; None for that of products of their type.

    Returns:
        Of each positive its score, the number of negatives with a higher and with an equal score, and the number of all
        negatives, [n, 4], float64. A NaN score gives NaN.
    """
    row, column = grid.positive
    same = grid.same_node
    no_negative = None if grid.log_weight is None else torch.nonzero(grid.log_weight == -torch.inf).squeeze(1)
    found = []
    for first, scores in blocks:
        last = first + len(scores)
        here = (row >= first) & (row < last)
        at, to = row[here] - first, column[here]
        own = scores[at, to]
        scores[at, to] = -torch.inf
        selves = same[:, (same[0] >= first) & (same[0] < last)]
        scores[selves[0] - first, selves[1]] = -torch.inf
        is_nan = torch.isnan(own) | torch.isnan(scores).any(1)[at]
        if no_negative is not None:
            scores[:, no_negative] = -torch.inf
        if tolerance is None:
            tolerance = _TOLERANCE_FLOAT64 if scores.dtype == torch.float64 else _TOLERANCE
        margin = tolerance * own.abs().clamp(min=1)
        for part in torch.arange(len(at), device=at.device).split(max(BLOCK_SCORES // max(scores.shape[1], 1), 1)):
            rows = scores[at[part]]
            higher = (rows > (own + margin)[part, None]).sum(1)
            equal = (rows >= (own - margin)[part, None]).sum(1) - higher
            counts = torch.stack([own[part].double(), higher.double(), equal.double()], 1)
            found.append(torch.where(is_nan[part, None], torch.nan, counts))
    excluded = torch.cat([grid.positive, same], 1)
    if grid.log_weight is not None:
        excluded = excluded[:, grid.log_weight[excluded[1]] > -torch.inf]
    num_negatives = len(grid.candidates) - (0 if no_negative is None else len(no_negative))
    negatives = (num_negatives - torch.bincount(excluded[0], minlength=len(grid.sources)))[row].double()
    counted = torch.cat(found) if found else negatives.new_empty(0, 3)
    return torch.cat([counted, negatives[:, None]], 1)


def top_candidates(blocks: Iterator[tuple[int, Tensor]], count: int) -> tuple[Tensor, Tensor]:
    """The candidates with the highest scores of each source.

    Args:
        blocks: first row and scores, [b, M], of consecutive rows; candidates to leave out have -inf.
        count: how many, at most M.

    Returns:
        Scores in descending order and positions of candidates, [S, count] each.
    """
    found = [torch.topk(scores, count, dim=1) for _, scores in blocks]
    return torch.cat([each.values for each in found]), torch.cat([each.indices for each in found])
