"""Scores of pairs of rows with gradients: products of listed pairs, and a network of three layers on pairs.

Products: no row per pair is in memory. Forward reads both rows of a pair and writes its score; backward reads, for each
row of a table, the rows that it is paired with. Floor: two rows of H numbers read per pair forward, as many backward.

The network runs in parts that stay in a core's cache. The inputs of a pair are its features and a row of each of two
tables; the first layer's products with the tables are computed before. Floor: 2 H (H + K) flops per pair forward and
three times as much backward, which computes hidden layers again: main memory sees indices, features and scores alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts, run_ranges
from strobe.ops.sparse.csr_kernels import sort_by_row

_PRODUCT_PAIRS = 1 << 13
_PRODUCT_ROWS = 1 << 10
_CHUNK_PAIRS = 1 << 18
"""Pairs whose rows are in memory at a time without a kernel."""


class Products(NamedTuple):
    """Tables: the score of pair (r, c) is ``query[r] · key[c] + of_rows[r] + of_columns[c]``.

    Args:
        query: [S, H].
        key: [D, H].
        of_rows: [S].
        of_columns: [D].
    """

    query: Tensor
    key: Tensor
    of_rows: Tensor
    of_columns: Tensor


def pair_products(tables: Products, row: Tensor, column: Tensor) -> Tensor:
    """Scores of pairs, [n].

    Args:
        tables: on one device, in one precision.
        row: row of each pair, [n], int32.
        column: column of each pair, [n], int32.
    """
    scores: Tensor = _PairProducts.apply(row, column, *tables)  # type: ignore[no-untyped-call]
    return scores


def pair_products_plain(tables: Products, row: Tensor, column: Tensor) -> Tensor:
    """``pair_products`` in torch, with two rows per pair in memory."""
    query, key = tables.query[row.long()], tables.key[column.long()]
    scores: Tensor = (query * key).sum(1) + tables.of_rows[row.long()] + tables.of_columns[column.long()]
    return scores


class _PairProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, row: Tensor, column: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(row, column, *tables[:2])
        query, key, of_rows, of_columns = (each.contiguous() for each in tables)
        scores = query.new_empty(len(row))
        if not native.usable(query, key, of_rows, of_columns):
            for here in _chunks(len(row)):
                r, c = row[here], column[here]
                products = (query.index_select(0, r) * key.index_select(0, c)).sum(1)
                scores[here] = products + of_rows.index_select(0, r) + of_columns.index_select(0, c)
            return scores

        def run(first: int, last: int) -> None:
            arrays = row, column, query, key, of_rows, of_columns
            native.call("pair_scores", first, last, query.shape[1], *arrays, scores)

        run_ranges(run, len(row), _PRODUCT_PAIRS)
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        row, column, query, key = ctx.saved_tensors
        query, key, gradient = query.contiguous(), key.contiguous(), gradient.contiguous()
        compute = _gradients_of_rows if native.usable(query, key, gradient) else _gradients_in_chunks
        of_query, of_rows = compute(len(query), row, column, gradient, key)
        of_key, of_columns = compute(len(key), column, row, gradient, query)
        return None, None, of_query, of_key, of_rows, of_columns


def _chunks(size: int) -> list[slice]:
    return [slice(first, first + _CHUNK_PAIRS) for first in range(0, size, _CHUNK_PAIRS)]


def _gradients_in_chunks(
    num_rows: int, row: Tensor, other: Tensor, gradient: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the rows of a table and of their numbers, given the rows of the other table, on any device."""
    of_rows, of_numbers = table.new_zeros(num_rows, table.shape[1]), table.new_zeros(num_rows)
    for here in _chunks(len(row)):
        g = gradient[here]
        of_rows.index_add_(0, row[here], g[:, None] * table.index_select(0, other[here]))
        of_numbers.index_add_(0, row[here], g)
    return of_rows, of_numbers


def _gradients_of_rows(
    num_rows: int, row: Tensor, other: Tensor, gradient: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """``_gradients_in_chunks``, row by row: sums do not depend on the number of threads."""
    of_rows, of_numbers = table.new_empty(num_rows, table.shape[1]), table.new_empty(num_rows)
    ptr, pairs = (torch.from_numpy(each) for each in sort_by_row(row.numpy(), num_rows))

    def run(first: int, last: int) -> None:
        arrays = ptr, pairs, other, gradient, table
        native.call("pair_gradient", first, last, table.shape[1], *arrays, of_rows, of_numbers)

    run_ranges(run, num_rows, _PRODUCT_ROWS)
    return of_rows, of_numbers


PART_PAIRS = 1 << 11
"""Pairs whose hidden layers are in memory at a time, per thread."""

_STRIPS, _STRIP_ROWS = 8, 1 << 16
"""Maximum number of partial sums of gradients, and of rows of the second table in all of them. Neither depends on the
number of threads, nor does the order in which gradients are added."""


class PairLayers(NamedTuple):
    """Parameters: ``last_weight · ReLU(weight ReLU(feature_weight f + a + b) + bias) + last_bias``.

    Args:
        feature_weight: [H, K].
        weight: [H, H].
        bias: [H].
        last_weight: [H].
        last_bias: [].
    """

    feature_weight: Tensor
    weight: Tensor
    bias: Tensor
    last_weight: Tensor
    last_bias: Tensor


@dataclass(frozen=True, eq=False)
class PairInputs:
    """Pairs in order of rows: rows of both tables, [n] each, and features, [n, K]."""

    row: Tensor
    column: Tensor
    features: Tensor


def score_pairs(network: PairLayers, of_rows: Tensor, of_columns: Tensor, pairs: PairInputs) -> Tensor:
    """Scores of pairs, [n], on the CPU in float32 or float64.

    Args:
        network: the parameters.
        of_rows: a, the first layer's products with the inputs of the rows, [S, H].
        of_columns: b, those of the columns, [M, H].
        pairs: the pairs; features have no gradient.
    """
    scores: Tensor = _ScorePairs.apply(pairs, of_rows, of_columns, *network)  # type: ignore[no-untyped-call]
    return scores


def score_pairs_plain(network: PairLayers, of_rows: Tensor, of_columns: Tensor, pairs: PairInputs) -> Tensor:
    """``score_pairs`` in torch, on any device and in any precision."""
    # index_select copies whole rows; an index would be twice as slow on the CPU.
    of_ends = of_rows.index_select(0, pairs.row) + of_columns.index_select(0, pairs.column)
    x: Tensor = torch.addmm(of_ends, pairs.features.to(of_ends.dtype), network.feature_weight.T).relu()
    x = torch.nn.functional.linear(x, network.weight, network.bias).relu()
    return torch.nn.functional.linear(x, network.last_weight[None], network.last_bias[None]).squeeze(1)


class _ScorePairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pairs: PairInputs, *inputs: Tensor) -> Tensor:
        ctx.pairs = pairs
        ctx.save_for_backward(*inputs)
        layers = _Layers(pairs, inputs)
        scores = layers.weight.new_empty(len(pairs.row))

        def run(part: int) -> None:
            here = slice(part * PART_PAIRS, min((part + 1) * PART_PAIRS, len(scores)))
            first, second = layers.buffers(2)
            second = layers.second(here, layers.first(here, first), second).relu_()
            torch.mv(second, layers.last_weight, out=scores[here])

        run_parts(run, -(-len(scores) // PART_PAIRS))
        return scores.add_(inputs[-1].detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        layers, pairs = _Layers(ctx.pairs, ctx.saved_tensors), ctx.pairs
        gradient = gradient.contiguous()
        cuts = _strips(pairs.row.numpy(), layers.num_columns)
        sums = [layers.zeros() for _ in cuts[1:]]
        of_rows = torch.zeros_like(layers.of_rows)

        def run(strip: int) -> None:
            buffers = layers.buffers(3)
            for begin in range(cuts[strip], cuts[strip + 1], PART_PAIRS):
                here = slice(begin, min(begin + PART_PAIRS, cuts[strip + 1]))
                layers.add_gradients(here, gradient[here], buffers, of_rows, sums[strip])

        run_parts(run, len(sums))
        of_columns, feature_weight, *rest = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
        return None, of_rows, of_columns, feature_weight.T, *rest, gradient.sum()


class _Layers:
    """The layers on some pairs, without autograd."""

    def __init__(self, pairs: PairInputs, inputs: tuple[Tensor, ...]) -> None:
        inputs = tuple(each.detach() for each in inputs)
        self.of_rows, self.of_columns, self.feature_weight, self.weight, self.bias, self.last_weight, _ = inputs
        self.num_columns = len(self.of_columns)
        self._row, self._column = pairs.row.numpy(), pairs.column.numpy()
        self._features = pairs.features.detach().to(self.weight.dtype).contiguous()
        tables = (self.of_rows.contiguous(), self.of_columns.contiguous(), self.feature_weight.T.contiguous())
        self._tables: Any = tuple(each.numpy() for each in tables)
        self._transposed = self.weight.T

    def buffers(self, count: int) -> list[Tensor]:
        """Space for hidden layers."""
        return [self.weight.new_empty(PART_PAIRS, len(self.weight)) for _ in range(count)]

    def zeros(self) -> list[Tensor]:
        """Sums of gradients: of columns, of the features' weight, [K, H], and of all others but the last bias."""
        parameters = (self.of_columns, self.feature_weight.T, self.weight, self.bias, self.last_weight)
        return [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in parameters]

    def first(self, here: slice, out: Tensor) -> Tensor:
        """The first hidden layer, [n, H]."""
        out = out[: here.stop - here.start]
        arrays: Any = self._row[here], self._column[here], self._features.numpy()[here], *self._tables, out.numpy()
        _first_layer(*arrays)
        return out

    def second(self, here: slice, first: Tensor, out: Tensor) -> Tensor:
        """The second hidden layer before its ReLU, [n, H]."""
        return torch.addmm(self.bias, first, self._transposed, out=out[: here.stop - here.start])

    def add_gradients(
        self, here: slice, gradient: Tensor, buffers: list[Tensor], of_rows: Tensor, sums: list[Tensor]
    ) -> None:
        """Add the gradients of some pairs to those of rows and to sums."""
        of_columns, feature_weight, weight, bias, last_weight = sums
        first = self.first(here, buffers[0])
        second = self.second(here, first, buffers[1])
        _last_gradient(gradient.numpy(), self.last_weight.numpy(), second.numpy(), bias.numpy(), last_weight.numpy())
        weight.addmm_(second.T, first)
        of_first = torch.mm(second, self.weight, out=buffers[2][: len(second)])
        rows = self._row[here], self._column[here]
        outputs = of_rows.numpy(), of_columns.numpy(), feature_weight.numpy()
        _first_gradient(*rows, self._features.numpy()[here], first.numpy(), of_first.numpy(), *outputs)


def _strips(row: npt.NDArray[np.int64], num_columns: int) -> list[int]:
    """Where the strips of pairs begin and end; no row is in two."""
    strips = max(min(_STRIPS, _STRIP_ROWS // max(num_columns, 1), -(-len(row) // PART_PAIRS)), 1)
    inner = [len(row) * k // strips for k in range(1, strips)]
    return [0, *np.searchsorted(row, row[inner]).tolist(), len(row)] if inner else [0, len(row)]


@cached_njit
def _first_layer(row: Any, column: Any, features: Any, of_rows: Any, of_columns: Any, weight: Any, out: Any) -> None:
    """ReLU of the sum of two rows and of the features' products; NaN stays."""
    zero = out.dtype.type(0)
    for i in range(len(row)):
        a, b, to = of_rows[row[i]], of_columns[column[i]], out[i]
        for j in range(len(to)):
            to[j] = a[j] + b[j]
        for k in range(features.shape[1]):
            value, w = features[i, k], weight[k]
            for j in range(len(to)):
                to[j] += value * w[j]
        for j in range(len(to)):
            to[j] = zero if to[j] < 0 else to[j]


@cached_njit
def _last_gradient(gradient: Any, last_weight: Any, second: Any, bias: Any, of_last_weight: Any) -> None:
    """Replace a hidden layer before its ReLU by its gradient, and add those of the bias and of the last layer."""
    zero = second.dtype.type(0)
    for i in range(len(gradient)):
        g, x = gradient[i], second[i]
        for j in range(len(x)):
            value = x[j]
            d = g * last_weight[j]
            d = zero if value <= 0 else d
            of_last_weight[j] += g * (zero if value <= 0 else value)
            bias[j] += d
            x[j] = d


@cached_njit
def _first_gradient(
    row: Any, column: Any, features: Any, first: Any, of_first: Any, of_rows: Any, of_columns: Any, of_weight: Any
) -> None:
    """Mask the gradient of the first hidden layer by its ReLU; add it to both rows and the features' weight."""
    zero = first.dtype.type(0)
    for i in range(len(row)):
        x, g, a, b = first[i], of_first[i], of_rows[row[i]], of_columns[column[i]]
        for j in range(len(x)):
            d = zero if x[j] <= 0 else g[j]
            g[j] = d
            a[j] += d
            b[j] += d
        for k in range(features.shape[1]):
            value, w = features[i, k], of_weight[k]
            for j in range(len(g)):
                w[j] += value * g[j]
