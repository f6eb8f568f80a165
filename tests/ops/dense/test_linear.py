from __future__ import annotations

import pytest
import torch

from strobe.ops.dense import linear as module
from strobe.ops.dense.linear import feed_forward, linear, linear_reference


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 7, 40])
@pytest.mark.parametrize("wants_x", [True, False])
def test_it_equals_torch_with_its_gradients(
    rows: int, relu: bool, wants_x: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TILE_ROWS", 4)  # several tiles per group, the last one not full
    torch.manual_seed(rows)
    x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=wants_x)
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(linear(x, weight, bias, relu=relu), linear_reference(x, weight, bias, relu=relu))
    torch.testing.assert_close(linear(x, weight, relu=relu), linear_reference(x, weight, relu=relu))
    assert torch.autograd.gradcheck(lambda *given: linear(*given, relu=relu), (x, weight, bias))


def test_nothing_is_lost_between_groups_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE_ROWS", 2)
    x, weight = torch.randn(101, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    found = torch.autograd.grad(linear(x, weight).square().sum(), (x, weight))
    expected = torch.autograd.grad(linear_reference(x, weight).square().sum(), (x, weight))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_feed_forward_adds_residual_input_and_shift() -> None:
    y, x = torch.tensor([[1.0, -2.0]]), torch.tensor([[10.0, 20.0]])
    weight, bias = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.5])
    assert torch.equal(feed_forward(y, x, weight, bias), torch.tensor([[12.5, 18.0]]))
    assert torch.equal(feed_forward(y, x, weight, bias, torch.tensor([100.0, 200.0])), torch.tensor([[112.5, 218.0]]))
