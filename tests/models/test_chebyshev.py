from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import ChebConv

from strobe.errors import OptionError
from strobe.models.chebyshev import MAX_FILTER_SIZE, chebyshev_weight, check_filter_size, power_weight, powers
from strobe.view import View, WindowData
from tests.support.dense_models import chebyshev, with_features
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING

POSITIVE = [name for name, plain in AWKWARD.items() if all(w > 0 for shot in plain.snapshots for *_, w in shot.edges)]
"""Graphs without negative weights, of whose sum PyTorch Geometric takes the root."""


def convolved(plain: PlainGraph, t: int, rows: Tensor, weight: Tensor, size: int) -> Tensor:
    """The dense convolution of a snapshot."""
    terms = zip(chebyshev(plain, t, rows, size), weight.chunk(size, 1), strict=True)
    return sum((term @ each.t() for term, each in terms), torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 2, 3, 7, MAX_FILTER_SIZE])
@pytest.mark.parametrize("directed", [True, False])
def test_convolution_equals_dense_polynomials(size: int, directed: bool) -> None:
    plain = replace(CHANGING, directed=directed)
    graph, x = with_features(plain)
    weight = chebyshev_weight(3, 4, size, 2).double()
    view = View(WindowData(graph, dtype=torch.float64))
    found = view.split(powers(view, view.x, size) @ power_weight(weight, size).t())
    for t, (out, rows) in enumerate(zip(found, x, strict=True)):
        wanted = convolved(plain, t, rows, weight, size).expand(len(rows), 8)
        torch.testing.assert_close(out, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_convolution_equals_pytorch_geometric(name: str, size: int) -> None:
    graph, x = with_features(AWKWARD[name])
    theirs = ChebConv(3, 4, size, bias=False).double()
    weight = torch.cat([layer.weight for layer in theirs.lins], 1)
    view = View(WindowData(graph, dtype=torch.float64))
    found = view.split(powers(view, view.x, size) @ power_weight(weight, size).t())
    for out, step, rows in zip(found, view.steps(), x, strict=True):
        wanted = theirs(rows, step.edge_index, step.edge_weight, lambda_max=2.0)
        torch.testing.assert_close(out, wanted, rtol=1e-9, atol=1e-11)


def test_powers_of_inputs_are_cached() -> None:
    cells = WindowData(with_features(CHANGING)[0], dtype=torch.float64)
    powers(View(cells), cells.x, 3)
    assert set(cells._aggregates) == {(), ("sym",), ("sym", "sym")}


@pytest.mark.parametrize("size", [-1, 0, MAX_FILTER_SIZE + 1])
def test_filter_sizes_out_of_range_are_refused(size: int) -> None:
    with pytest.raises(OptionError, match=f"filter_size .* not {size}"):
        check_filter_size(size)
