from __future__ import annotations

import numpy as np
import pytest
import torch

from strobe.ops.sparse.gather import gather_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gathered_rows_and_gradients_that_add_up_in_order_on_two_threads(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.full(2000, 3), rng.integers(0, 50, 2000), np.full(2000, 49)])
    x = torch.from_numpy(rng.normal(size=(51, 20))).to(dtype).requires_grad_()
    weight = torch.from_numpy(rng.normal(size=(len(rows), 20))).to(dtype)
    expected = np.zeros((51, 20), weight.numpy().dtype)
    np.add.at(expected, rows, weight.numpy())  # one after the other
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = gather_rows(x, torch.from_numpy(rows))
        (gradient,) = torch.autograd.grad(found, x, weight)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, x[torch.from_numpy(rows)])
    np.testing.assert_array_equal(gradient.numpy(), expected)


def test_no_rows_are_gathered() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    found = gather_rows(x, torch.empty(0, dtype=torch.int64))
    assert found.shape == (0, 2)
    assert not torch.autograd.grad(found.sum(), x)[0].any()
