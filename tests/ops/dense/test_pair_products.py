"""Products of listed pairs against the same products in torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.dense import pair_scores as module
from strobe.ops.dense.pair_scores import Products, pair_products, pair_products_plain

Size = tuple[int, int, int, int]
SIZES: list[Size] = [(1, 1, 0, 3), (1, 1, 5, 1), (4, 6, 1, 8), (7, 3, 40, 5), (30, 20, 3000, 64)]
"""Rows, columns, pairs and width; with pairs that come twice, and rows without pairs."""


def make(
    size: tuple[int, int, int, int], dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Tables, pairs, and a gradient of the scores."""
    rows, columns, pairs, width = size
    rng = torch.Generator().manual_seed(pairs)
    shapes = ((rows, width), (columns, width), (rows,), (columns,))
    tables = [torch.randn(shape, generator=rng, dtype=dtype).requires_grad_() for shape in shapes]
    ends = [torch.randint(0, most, (pairs,), generator=rng, dtype=torch.int32) for most in (rows, columns)]
    return tables, ends, torch.randn(pairs, generator=rng, dtype=dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compiled", [True, False])
def test_scores_and_gradients_equal_those_of_torch(size: Size, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_PAIRS", 7)
    if not compiled:
        monkeypatch.setattr(native, "usable", lambda *_: False)
    tables, ends, gradient = make(size)
    found, expected = (score(Products(*tables), *ends) for score in (pair_products, pair_products_plain))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for ours, plain in zip(*(torch.autograd.grad(x, tables, gradient) for x in (found, expected)), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_gradients_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRODUCT_PAIRS", 64)
    monkeypatch.setattr(module, "_PRODUCT_ROWS", 4)
    tables, ends, gradient = make(SIZES[-1], torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            scores = pair_products(Products(*tables), *ends)
            found.append([each.tolist() for each in (scores, *torch.autograd.grad(scores, tables, gradient))])
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_nan_stays() -> None:
    tables, ends, _ = make(SIZES[3])
    with torch.no_grad():
        tables[1][int(ends[1][2])] = torch.nan
    assert bool(torch.isnan(pair_products(Products(*tables), *ends)[2]))
