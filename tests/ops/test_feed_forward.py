from __future__ import annotations

import torch

from strobe.ops.feed_forward import feed_forward


def test_the_input_and_rows_beside_it_are_added_to_the_result() -> None:
    y, x = torch.tensor([[1.0, -2.0]]), torch.tensor([[10.0, 20.0]])
    weight, bias = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.5])
    assert torch.equal(feed_forward(y, x, weight, bias), torch.tensor([[12.5, 18.0]]))
    assert torch.equal(feed_forward(y, x, weight, bias, torch.tensor([100.0, 200.0])), torch.tensor([[112.5, 218.0]]))
