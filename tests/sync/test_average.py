from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Alone, Comm
from strobe.errors import OptionError
from strobe.sync import AllReduce, Average, Sync
from tests.ranks import as_threads

pytestmark = pytest.mark.usefixtures("one_thread")

RANKS = 3


def model() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    made[0].bias.requires_grad_(False)
    return made


def rows(rank: int, step: int) -> Tensor:
    return torch.randn(2 + rank, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(10 * step + rank))


def loss_of(made: nn.Module, rank: int, step: int) -> Tensor:
    loss: Tensor = made(rows(rank, step)).square().sum()
    return loss


def trained(sync: Sync, num_steps: int, optimiser: type[torch.optim.Optimizer] = torch.optim.SGD) -> list[list[Tensor]]:
    """The weights of every rank after so many steps."""
    whole = model()

    def work(comm: Comm) -> list[Tensor]:
        mine = deepcopy(whole)
        parameters = list(mine.parameters())
        syncing = sync.start(parameters, comm)
        steps = optimiser([each for each in parameters if each.requires_grad], lr=0.05)  # type: ignore[call-arg]
        for step in range(num_steps):
            syncing.backward_begins()
            (loss_of(mine, comm.rank, step) * syncing.share).backward()
            syncing.backward_ends()
            steps.step()
            steps.zero_grad()
            syncing.stepped()
        syncing.close()
        return [each.detach() for each in parameters]

    return as_threads(work, RANKS)


def test_averaging_every_step_of_plain_descent_is_all_reduce() -> None:
    averaged, summed = trained(Average(every=1), 4), trained(AllReduce(), 4)
    assert not torch.equal(summed[0][0], next(model().parameters())), "there was something to learn"
    torch.testing.assert_close(averaged, summed, rtol=1e-12, atol=1e-14)


def test_both_are_what_one_rank_does_with_all_rows() -> None:
    made = model()
    descent = torch.optim.SGD(made.parameters(), lr=0.05)
    for step in range(4):
        descent.zero_grad()
        sum((loss_of(made, rank, step) for rank in range(RANKS)), torch.zeros(())).backward()
        descent.step()
    expected = [each.detach() for each in made.parameters()]
    for found in trained(AllReduce(bucket_kb=1), 4):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("every", "num_steps"), [(1, 1), (2, 2), (2, 4), (3, 3)])
def test_ranks_have_the_same_weights_after_every_so_many_steps(every: int, num_steps: int) -> None:
    first, *others = trained(Average(every=every), num_steps)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(("every", "num_steps"), [(2, 1), (2, 3), (4, 3)])
def test_between_averages_ranks_drift_apart(every: int, num_steps: int) -> None:
    first, *others = trained(Average(every=every), num_steps)
    for other in others:
        assert not torch.allclose(first[0], other[0], atol=1e-6)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_averaging_keeps_the_mean(optimiser: type[torch.optim.Optimizer]) -> None:
    alone = trained(Average(every=99), 3, optimiser)
    mean = [torch.stack(each).mean(0) for each in zip(*alone, strict=True)]
    for found in trained(Average(every=3), 3, optimiser):
        torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-14)


def test_averages_of_two_kinds_of_numbers_keep_their_kinds_and_frozen_ones_their_values() -> None:
    def work(comm: Comm) -> list[nn.Parameter]:
        value = 2.0 * comm.rank + 1
        mixed = [nn.Parameter(torch.full((2, 1), value)), nn.Parameter(torch.full((3,), value).double())]
        frozen = nn.Parameter(torch.full((1,), value), requires_grad=False)
        Average().start([*mixed, frozen], comm).stepped()
        return [*mixed, frozen]

    for rank, (single, double, frozen) in enumerate(as_threads(work, 2)):
        assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
        assert single.tolist() == [[2.0], [2.0]]
        assert double.tolist() == [2.0] * 3
        assert frozen.item() == 2.0 * rank + 1


def test_one_rank_is_its_own_mean() -> None:
    parameter = nn.Parameter(torch.ones(2))
    syncing = Average().start([parameter], Alone())
    syncing.stepped()
    assert (syncing.share, parameter.tolist()) == (1.0, [1.0, 1.0])


def test_averaging_every_no_step_is_refused() -> None:
    with pytest.raises(OptionError, match="every 1 step or more, not 0"):
        Average(every=0)
    assert not Average().exact
