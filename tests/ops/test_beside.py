from __future__ import annotations

import pytest
import torch

from strobe.ops import beside as module
from strobe.ops.beside import beside


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("widths", [(3,), (2, 5), (1, 4, 2)])
def test_it_is_a_concatenation_with_its_gradients(
    rows: int, widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", 4)
    parts = [torch.randn(rows, width, dtype=torch.float64, requires_grad=True) for width in widths]
    assert torch.equal(beside(*parts), torch.cat(parts, 1))
    assert torch.autograd.gradcheck(beside, parts)


def test_parts_that_need_no_gradient_or_are_turned_work() -> None:
    turned = torch.randn(3, 5).t()
    learnt = torch.randn(5, 2, requires_grad=True)
    joined = beside(turned, learnt)
    assert torch.equal(joined, torch.cat([turned, learnt], 1))
    joined.square().sum().backward()
    torch.testing.assert_close(learnt.grad, 2 * learnt.detach())
