from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.ops.dense.readout import readout, readout_reference


def _given(width: int = 5, outputs: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(width)
    shapes = [(9, width), (outputs, width), (outputs,)]
    z, weight, bias = (torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in shapes)
    return z, weight, bias


@pytest.mark.parametrize("width", [1, 5, 59])  # one column, less than a vector, vectors by four, two and one and more
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_it_equals_plain_torch(width: int, outputs: int) -> None:
    """Every pair of a width, a number of outputs and a choice of rows occurs once."""
    choices = None, torch.tensor([0, 3, 4, 8]), torch.tensor([], dtype=torch.int64)
    given, rows = _given(width, outputs), choices[(width // 5 + outputs) % 3]
    torch.testing.assert_close(readout(*given, rows), readout_reference(*given, rows), rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(lambda z, weight, bias: readout(z, weight, bias, rows), given)


def test_rows_that_are_not_selected_get_no_gradient() -> None:
    z, weight, bias = _given()
    readout(z, weight, bias, torch.tensor([2])).sum().backward()
    assert z.grad is not None
    assert int((z.grad != 0).any(1).sum()) == 1


def test_rows_in_any_order_and_twice_still_work() -> None:
    given = _given()
    rows = torch.tensor([4, 1, 4])
    torch.testing.assert_close(readout(*given, rows), readout_reference(*given, rows))
    assert torch.autograd.gradcheck(lambda z, weight, bias: readout(z, weight, bias, rows), given)


def test_embeddings_of_another_width_are_refused() -> None:
    with pytest.raises(InputError, match=r"embeddings are \[5, 4\], the weights are for 8 columns"):
        readout(torch.ones(5, 4), torch.ones(2, 8), torch.ones(2))
