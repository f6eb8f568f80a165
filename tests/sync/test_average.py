from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.sync import AllReduce, Average, Sync
from tests.support.ranks import as_threads

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


Optimisers = Callable[..., torch.optim.Optimizer]


def trained(
    sync: Sync, num_steps: int, optimiser: Optimisers = torch.optim.SGD, idle: int | None = None
) -> list[list[Tensor]]:
    """The weights of every rank after ``num_steps`` steps; rank ``idle`` computes only every second one."""
    whole = model()

    def work(comm: Comm) -> list[Tensor]:
        mine = deepcopy(whole)
        parameters = list(mine.parameters())
        steps = optimiser([each for each in parameters if each.requires_grad], lr=0.05)
        syncing = sync.start(parameters, comm, steps)
        for step in range(num_steps):
            syncing.begin_backward()
            if comm.rank != idle or step % 2 == 0:
                (loss_of(mine, comm.rank, step) * syncing.loss_scale).backward()
            syncing.end_backward()
            steps.step()
            steps.zero_grad()
            syncing.after_step()
        syncing.close()
        return [each.detach() for each in parameters]

    return as_threads(work, RANKS)


@pytest.mark.parametrize(
    ("options", "idle"), [({}, None), ({"momentum": 0.9}, 1), ({"momentum": 0.9, "nesterov": True}, None)], ids=str
)
def test_averaging_every_step_of_sgd_is_all_reduce(options: dict[str, float], idle: int | None) -> None:
    sgd = partial(torch.optim.SGD, **options)  # type: ignore[arg-type]
    averaged, summed = (trained(sync, 5, sgd, idle) for sync in (Average(every=1), AllReduce()))
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


@pytest.mark.parametrize(("every", "num_steps"), [(1, 1), (2, 4), (3, 3), (2, 1), (2, 3), (4, 3)])
def test_weights_are_equal_after_an_average_and_diverge_between_averages(every: int, num_steps: int) -> None:
    first, *others = trained(Average(every=every), num_steps)
    for other in others:
        if num_steps % every:
            assert not torch.allclose(first[0], other[0], atol=1e-6)
        else:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_averaging_keeps_the_mean(optimiser: Optimisers) -> None:
    alone = trained(Average(every=99), 3, optimiser)
    mean = [torch.stack(each).mean(0) for each in zip(*alone, strict=True)]
    for found in trained(Average(every=3), 3, optimiser):
        torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("num_steps", [0, 2, 3, 7])
def test_after_an_epoch_ranks_are_equal_whatever_every_says(num_steps: int, free: bool) -> None:
    def work(comm: Comm) -> tuple[list[Tensor], dict[str, Tensor]]:
        mine = model()
        parameters = [each for each in mine.parameters() if each.requires_grad]
        adam = torch.optim.Adam(parameters, lr=0.05)
        syncing = Average(every=3).start(parameters, comm, adam, free_running=free)
        assert syncing.loss_scale == (1.0 if free else RANKS)
        for epoch in range(2):
            syncing.begin_epoch()
            for step in range(num_steps):
                loss_of(mine, comm.rank, num_steps * epoch + step).backward()
                syncing.end_backward()
                adam.step()
                adam.zero_grad()
                syncing.after_step()
            syncing.end_epoch()
            assert not syncing.epoch_over
        return [each.detach() for each in parameters], adam.state.get(parameters[0], {})

    (first, kept), *others = as_threads(work, RANKS)
    assert bool(kept) == bool(num_steps)
    for other, theirs in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
        assert all(torch.equal(kept[name], theirs[name]) for name in kept)
    if num_steps:
        assert kept["step"] == 2 * num_steps


def test_a_rank_that_runs_free_steps_as_one_rank_would() -> None:
    """A weight without a gradient is left alone; in steps that ranks take together its gradient is others'."""

    def work(comm: Comm) -> list[bool]:
        found = []
        for free in (False, True):
            parameter = nn.Parameter(torch.ones(2))
            Average().start([parameter], comm, free_running=free).end_backward()
            found.append(parameter.grad is None)
        return found

    assert as_threads(work, 2) == [[False, True]] * 2


def test_frozen_parameters_keep_their_values() -> None:
    def work(comm: Comm) -> list[nn.Parameter]:
        weights = [nn.Parameter(torch.full((2,), 2.0 * comm.rank + 1), requires_grad=grad) for grad in (True, False)]
        Average().start(weights, comm).after_step()
        return weights

    assert [[each.tolist() for each in weights] for weights in as_threads(work, 2)] == [
        [[2.0, 2.0], [1.0, 1.0]],
        [[2.0, 2.0], [3.0, 3.0]],
    ]


@pytest.mark.parametrize(
    ("options", "number"), [({"every": 0}, "0"), ({"every_s": -1.5}, "-1.5"), ({"every": 4, "every_s": 2.5}, "4")]
)
def test_invalid_options_raise(options: dict[str, float], number: str) -> None:
    with pytest.raises(OptionError, match=number):
        Average(**options)  # type: ignore[arg-type]


def test_seconds_need_free_running_ranks() -> None:
    assert (Average(every=5).needs, Average(every=5).steps_per_sync) == ((), 5)
    assert [need.fact for need in Average(every_s=1.0).needs] == ["independent steps"]
