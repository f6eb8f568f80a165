from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Comm, SingleRankComm
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
    """The weights of every rank after so many steps, in every second of which one rank may have nothing to do."""
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


def test_averaging_every_step_of_plain_descent_is_all_reduce() -> None:
    averaged, summed = trained(Average(every=1), 4), trained(AllReduce(), 4)
    assert not torch.equal(summed[0][0], next(model().parameters())), "there was something to learn"
    torch.testing.assert_close(averaged, summed, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("idle", [None, 1])
@pytest.mark.parametrize(
    "options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}], ids=str
)
def test_averaging_every_step_of_descent_with_momentum_is_all_reduce(
    options: dict[str, float], idle: int | None
) -> None:
    optimiser = partial(torch.optim.SGD, **options)  # type: ignore[arg-type]
    averaged, summed = (trained(sync, 5, optimiser, idle) for sync in (Average(every=1), AllReduce()))
    torch.testing.assert_close(averaged, summed, rtol=1e-12, atol=1e-14)
    plain = trained(AllReduce(), 5, idle=idle)
    assert not torch.allclose(averaged[0][0], plain[0][0]), "momentum makes a difference"


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
def test_averaging_keeps_the_mean(optimiser: Optimisers) -> None:
    alone = trained(Average(every=99), 3, optimiser)
    mean = [torch.stack(each).mean(0) for each in zip(*alone, strict=True)]
    for found in trained(Average(every=3), 3, optimiser):
        torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-14)


def test_averages_of_two_kinds_of_numbers_keep_their_kinds_and_frozen_ones_their_values() -> None:
    def work(comm: Comm) -> list[nn.Parameter]:
        value = 2.0 * comm.rank + 1
        mixed = [nn.Parameter(torch.full((2, 1), value)), nn.Parameter(torch.full((3,), value).double())]
        frozen = nn.Parameter(torch.full((1,), value), requires_grad=False)
        Average().start([*mixed, frozen], comm).after_step()
        return [*mixed, frozen]

    for rank, (single, double, frozen) in enumerate(as_threads(work, 2)):
        assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
        assert single.tolist() == [[2.0], [2.0]]
        assert double.tolist() == [2.0] * 3
        assert frozen.item() == 2.0 * rank + 1


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


def test_one_rank_is_its_own_mean() -> None:
    parameter = nn.Parameter(torch.ones(2))
    syncing = Average().start([parameter], SingleRankComm())
    syncing.after_step()
    assert (syncing.loss_scale, parameter.tolist()) == (1.0, [1.0, 1.0])


def test_averaging_every_no_step_is_refused() -> None:
    with pytest.raises(OptionError, match="every 1 step or more, not 0"):
        Average(every=0)
    assert not Average().exact


@pytest.mark.parametrize("every_s", [0, -1.5])
def test_averaging_every_no_seconds_is_refused(every_s: float) -> None:
    with pytest.raises(OptionError, match=f"more than 0, not {every_s:g}"):
        Average(every_s=every_s)


def test_averaging_by_steps_and_by_seconds_is_refused() -> None:
    with pytest.raises(OptionError, match=r"leave out every \(it is 4\) or every_s \(it is 2.5\)"):
        Average(every=4, every_s=2.5)
    assert Average(every_s=2).steps_per_sync == 1


def test_a_clock_needs_ranks_that_run_free() -> None:
    assert Average(every=5).needs == ()
    (need,) = Average(every_s=1.0).needs
    assert (need.fact, "free-running" in need.fix) == ("independent steps", True)
    assert Average().gives == ("divergent weights",)
