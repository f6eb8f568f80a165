"""Heads: from embeddings of cells to predictions of nodes or pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from strobe.ops.dense.bf16 import BF16
from strobe.ops.dense.factored_scores import FactoredScores, PairValues
from strobe.ops.dense.pair_scores import PairInputs, PairLayers, Products, pair_products, score_pairs, score_pairs_plain
from strobe.ops.dense.readout import readout
from strobe.ops.dense.row_softmax import Scores, row_logsumexp
from strobe.ops.sparse.spmm import gather_rows
from strobe.tasks.grid import BLOCK_SCORES, CandidateGrid
from strobe.tasks.pair_batch import NodeInputs, PairBatch
from strobe.tasks.positions import find_positions


class NodeReadout(nn.Linear):
    """A linear map of ReLU(z)."""

    def forward(self, z: Tensor, cell_index: Tensor | None = None) -> Tensor:
        return readout(z, self.weight, self.bias, cell_index)


PAIRS_PER_CHUNK = 1 << 18
"""Pairs scored at a time without gradients; bounds memory."""

_COMPILED = (torch.float32, torch.float64)


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
    the source will have. Without h, scores of all destinations are one matrix product.

    Args:
        width: columns of the embeddings.
        node_features: features of each end.
        pair_features: features of a pair; 0: without h.
        starts_at_zero: whether Q and the last layers of a, b and h start at 0: an untrained decoder then predicts the
            offset.
    """

    def __init__(
        self, width: int, node_features: int = 0, pair_features: int = 0, *, starts_at_zero: bool = True
    ) -> None:
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
        for layer in starts_at_0 if starts_at_zero else ():
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, z: Tensor, sources: Tensor, destinations: Tensor, features: Tensor | None = None) -> Tensor:
        if torch.is_grad_enabled() or len(sources) <= PAIRS_PER_CHUNK:
            return self._scores(z, sources, destinations, features)
        chunks = zip(sources.split(PAIRS_PER_CHUNK), destinations.split(PAIRS_PER_CHUNK), strict=True)
        rows = [None] * -(-len(sources) // PAIRS_PER_CHUNK) if features is None else features.split(PAIRS_PER_CHUNK)
        return torch.cat([self._scores(z, s, d, f) for (s, d), f in zip(chunks, rows, strict=True)])

    def _scores(self, z: Tensor, sources: Tensor, destinations: Tensor, features: Tensor | None) -> Tensor:
        pairs, (s, d) = None, (gather_rows(z, rows) for rows in (sources, destinations))
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
        of_ends = (gather_rows(end, known) for end in (s, d))
        of_pairs = self.pair(torch.cat([pairs[known], *of_ends], 1)).squeeze(1)
        return scores.index_add(0, known, of_pairs.to(scores.dtype))

    def encode(self, z: Tensor, sources: NodeInputs, destinations: NodeInputs) -> EncodedNodes:
        """Encode sources and destinations, from the embeddings of all cells."""
        s, d = (
            encoder(rows if nodes.features is None else torch.cat([rows, nodes.features.to(rows)], 1))
            for encoder, nodes, rows in (
                (self.source, sources, gather_rows(z, sources.rows)),
                (self.destination, destinations, gather_rows(z, destinations.rows)),
            )
        )
        query, of_rows = self.query(s) / self.key.in_features**0.5, self.source_score(s).squeeze(1)
        return EncodedNodes(s, d, Products(query, self.key(d), of_rows, self.destination_score(d).squeeze(1)))

    def batch_scores(self, z: Tensor, batch: PairBatch) -> Tensor:
        """``forward`` of a batch, [n]: nodes are encoded once, not once per pair."""
        nodes = self.encode(z, batch.sources, batch.destinations)
        products = Products(*(each.float() if each.dtype == BF16 else each for each in nodes.products))
        scores = pair_products(products, batch.row, batch.column)
        if self.pair is None or not len(batch.related):
            return scores
        row, column = batch.row[batch.related], batch.column[batch.related]
        of_pairs = self.pair_scores(nodes, row, column, batch.related_features)
        return scores.index_add(0, batch.related, of_pairs.to(scores.dtype))

    def pair_scores(self, nodes: EncodedNodes, row: Tensor, column: Tensor, features: Tensor) -> Tensor:
        """h of pairs with a history, in order of rows, [R]."""
        network, of_sources, of_destinations = nodes.pair_network(self)
        compiled = _is_compiled(of_sources)
        pairs = PairInputs(row.long(), column.long(), features.to(of_sources) if compiled else features)
        return (score_pairs if compiled else score_pairs_plain)(network, of_sources, of_destinations, pairs)

    def softmax_log_odds(self, z: Tensor, grid: CandidateGrid) -> Tensor:
        """Log-odds of each positive of a grid against the negatives of its source, [n].

        A candidate that was sampled with probability p counts 1 / p times, so that the sum over a sample estimates the
        sum over all candidates (sampled softmax).
        """
        scorer, excluded = GridScorer(self, z, grid), torch.cat([grid.positive, grid.same_node], 1)
        if scorer.is_compiled and grid.related.shape[1]:
            return scorer.softmax_log_odds(excluded)
        scores = scorer.scores(0, len(grid.sources))
        row, column = grid.positive
        negatives = scores if grid.log_weight is None else scores + grid.log_weight
        negatives = negatives.index_put((excluded[0], excluded[1]), scores.new_tensor(-torch.inf))
        total = torch.logsumexp(negatives, 1).clamp(min=torch.finfo(scores.dtype).min)
        return scores[row, column] - _gather(total, row)


@dataclass(eq=False)
class EncodedNodes:
    """Encoded sources, [S, H], and destinations, [D, H], and the tables of their products."""

    s: Tensor
    d: Tensor
    products: Products
    _pair_network: tuple[PairLayers, Tensor, Tensor] | None = None

    def pair_network(self, head: PairDecoder) -> tuple[PairLayers, Tensor, Tensor]:
        """The pair network, and the sums of its first layer of sources and of destinations, computed once per node
        instead of once per pair."""
        if self._pair_network is None:
            assert head.pair is not None
            first, second, last = (layer for layer in head.pair.modules() if isinstance(layer, nn.Linear))
            hidden = self.s.shape[1]
            parts = first.weight.split([first.in_features - 2 * hidden, hidden, hidden], 1)
            last_weight, last_bias = last.weight.squeeze(0), last.bias.squeeze(0)
            network = PairLayers(parts[0], second.weight, second.bias, last_weight, last_bias)
            self._pair_network = network, nn.functional.linear(self.s, parts[1], first.bias), self.d @ parts[2].T
        return self._pair_network


class GridScorer:
    """Scores of all pairs of a grid: nodes are encoded once, pairs cost a product, related pairs a small network."""

    def __init__(self, head: PairDecoder, z: Tensor, grid: CandidateGrid) -> None:
        assert grid.rows is not None
        self._head, self.grid = head, grid
        ends = NodeInputs(grid.rows[0], grid.source_features), NodeInputs(grid.rows[1], grid.candidate_features)
        self._nodes = head.encode(z, *ends)
        self._query, self._key, of_rows, of_columns = self._nodes.products
        self._source_score, self._destination_score = of_rows[:, None], of_columns[None]
        if grid.source_offset is not None and grid.candidate_offset is not None:
            self._source_score = self._source_score + grid.source_offset[:, None]
            self._destination_score = self._destination_score + grid.candidate_offset

    @property
    def is_compiled(self) -> bool:
        """Whether there are compiled passes over the scores: on the CPU, without autocast."""
        return _is_compiled(self._query)

    def softmax_log_odds(self, excluded: Tensor) -> Tensor:
        """``PairDecoder.softmax_log_odds``, tile by tile."""
        grid, (row, column) = self.grid, self.grid.positive
        values = self._related_scores(slice(0, grid.related.shape[1]))
        if values is None:
            values = self._query.new_zeros(grid.related.shape[1])
        of_rows, of_columns = self._source_score.squeeze(1), self._destination_score.squeeze(0)
        own = torch.linalg.vecdot(gather_rows(self._query, row), gather_rows(self._key, column))
        own = own + _gather(of_rows, row) + _gather(of_columns, column)
        keys, wanted = (index[0] * len(grid.candidates) + index[1] for index in (grid.related, grid.positive))
        place = torch.from_numpy(find_positions(wanted.numpy(), keys.numpy()))
        is_related = torch.nonzero(place >= 0).squeeze(1)
        own = own.index_add(0, is_related, values[place[is_related]])
        weighted = of_columns if grid.log_weight is None else of_columns + grid.log_weight
        negatives = Scores(self._query, self._key, of_rows, weighted, grid.related, values)
        log_odds: Tensor = own - _gather(row_logsumexp(negatives, excluded), row)
        return log_odds

    def blocks(self) -> Iterable[tuple[int, Tensor]]:
        """First row and scores, [b, M], of consecutive rows; without gradients on the CPU, scores as factors."""
        size = max(BLOCK_SCORES // max(len(self.grid.candidates), 1), 16)
        if torch.is_grad_enabled() or self._query.device.type != "cpu" or self._query.dtype not in _COMPILED:
            return self._blocks(size)
        return FactoredScores(
            query=self._query,
            key=self._key,
            of_rows=self._source_score.squeeze(1),
            of_columns=self._destination_score.squeeze(0),
            pairs=self._related_values(),
            block_rows=size,
        )

    def _blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for first in range(0, len(self.grid.sources), size):
            yield first, self.scores(first, min(first + size, len(self.grid.sources)))

    def _related_values(self) -> PairValues:
        """What is added to the scores of related pairs."""
        values = self._related_scores(slice(0, self.grid.related.shape[1]))
        if values is None:
            values = self._query.new_zeros(self.grid.related.shape[1])
        return PairValues.build(self.grid.related, values, len(self.grid.sources))

    def scores(self, first: int, last: int) -> Tensor:
        """Scores of the sources ``first`` up to ``last``, [last - first, M]."""
        scores: Tensor = torch.addmm(self._destination_score, self._query[first:last], self._key.T)
        scores += self._source_score[first:last]
        grid, here = self.grid, self.grid.rows_of(first, last)
        if here.start == here.stop:
            return scores
        row, column = grid.related[:, here]
        added = self._related_scores(here)
        return scores if added is None else scores.index_put_((row - first, column), added, accumulate=True)

    def _related_scores(self, here: slice) -> Tensor | None:
        """What is added to the scores of some related pairs; None for nothing."""
        grid = self.grid
        row, column = grid.related[:, here]
        added: Tensor | None = None if grid.related_offset is None else grid.related_offset[here]
        if self._head.pair is None:
            return added
        of_pairs = self._head.pair_scores(self._nodes, row, column, grid.related_features[here])
        return of_pairs if added is None else added + of_pairs


def _is_compiled(x: Tensor) -> bool:
    """Whether there are compiled passes for a tensor: on the CPU, without autocast."""
    return x.device.type == "cpu" and x.dtype in _COMPILED and not torch.is_autocast_enabled("cpu")


def _gather(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]`` of a vector, by ``gather_rows``."""
    return gather_rows(values[:, None], index).squeeze(1)


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two layers, each followed by ReLU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs), nn.ReLU())
