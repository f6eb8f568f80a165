from __future__ import annotations

import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.sync import average_buffers
from tests.support.ranks import as_threads


class Kept(nn.Module):
    """Numbers of three kinds beside weights, all of one value."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), value))
        self.register_buffer("moments", torch.full((2, 3), value))
        self.register_buffer("wide", torch.tensor(value, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(int(value)))


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in module.state_dict().items()}


def test_moments_become_the_mean_of_all_ranks_and_nothing_else_does() -> None:
    def work(comm: Comm) -> nn.Module:
        module = Kept(3.0 * comm.rank + 1)
        average_buffers(module, comm)
        return module

    for rank, module in enumerate(as_threads(work, 3)):
        expected = values(Kept(3.0 * rank + 1)) | {
            "moments": torch.full((2, 3), 4.0),
            "wide": torch.tensor(4.0, dtype=torch.float64),
        }
        torch.testing.assert_close(values(module), expected, rtol=0, atol=0)


def test_a_model_without_moments_has_nothing_to_say() -> None:
    def work(comm: Comm) -> None:
        average_buffers(nn.Linear(2, 2), comm)
        assert not comm.ledger.messages

    as_threads(work, 2)
