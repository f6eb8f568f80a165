"""Ranks that run free, each as fast as it happens to. No pytest in here: processes import this module."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.sync import Average

Pace = Callable[[int, int], float]
"""Seconds of a step, by rank and number of the step."""


@dataclass(frozen=True)
class Race:
    """Run epochs that rank 0 ends after a number of steps. Other ranks take at most ``limit`` steps, if it is given."""

    pace: Pace
    every_s: float = 0.002
    epochs: int = 2
    steps: int = 8
    limit: int | None = None


@dataclass
class Ran:
    """What a rank has seen: all that is averaged, after every epoch, and numbers it was told, after every step."""

    after: list[list[Tensor]] = field(default_factory=list)
    told: list[int | None] = field(default_factory=list)
    told_by_epoch: list[int | None] = field(default_factory=list)
    sums: int = 0
    steps: int = 0


def run_free(comm: Comm, race: Race) -> Ran:
    """A race as one of its ranks."""
    ran = Ran()
    _count_sums(comm, ran)
    weights = [nn.Parameter(torch.linspace(-1, 1, 5)), nn.Parameter(torch.ones(2, 2, dtype=torch.float64))]
    optimiser = torch.optim.Adam(weights, lr=0.01)
    syncing = Average(every_s=race.every_s).start(weights, comm, optimiser, free_running=True)
    assert syncing.loss_scale == 1.0
    assert syncing.is_follower == (comm.rank > 0)
    for epoch in range(race.epochs):
        syncing.begin_epoch()
        step = 0
        while _goes_on(race, step, follows=syncing.is_follower, over=syncing.epoch_over):
            time.sleep(race.pace(comm.rank, step))
            touched = weights[: 1 + (comm.rank + step) % 2]  # not always both
            torch.stack([((weight - comm.rank - 0.1 * step) ** 2).sum() for weight in touched]).sum().backward()
            optimiser.step()
            optimiser.zero_grad()
            syncing.after_step()
            if comm.rank == 0:
                syncing.publish(100 * epoch + step)
            ran.told.append(syncing.last_published)
            step += 1
        syncing.end_epoch()
        assert not syncing.epoch_over
        ran.steps += step
        kept = [optimiser.state[weight][name] for weight in weights for name in ("step", "exp_avg", "exp_avg_sq")]
        ran.after.append([each.detach().clone() for each in [*weights, *kept]])
        ran.told_by_epoch.append(syncing.last_published)
    syncing.close()
    return ran


def _goes_on(race: Race, step: int, *, follows: bool, over: bool) -> bool:
    if not follows:
        return step < race.steps
    return not over and (race.limit is None or step < race.limit)


def _count_sums(comm: Comm, ran: Ran) -> None:
    add_up = comm.all_reduce

    def counted(values: Tensor, *, kind: str) -> Tensor:
        ran.sums += 1
        return add_up(values, kind=kind)

    comm.all_reduce = counted  # type: ignore[method-assign]


def random_pace(seed: int) -> Pace:
    """Up to two milliseconds a step, other ones in every run, and some ranks slower than others."""

    def pace(rank: int, step: int) -> float:
        numbers = random.Random(f"{seed} {rank} {step}")
        slow = random.Random(f"{seed} {rank}").choice((0.2, 1.0, 3.0))
        return numbers.random() * 0.001 * slow

    return pace


def check(ran: list[Ran], race: Race) -> None:
    """All ranks have met as often, have the same of everything after every epoch, and have heard all, in order."""
    first = ran[0]
    assert first.steps == race.epochs * race.steps
    for each in ran:
        assert each.sums == first.sums
        for mine, others in zip(each.after, first.after, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, others, strict=True))
            assert all(bool(a.isfinite().all()) for a in mine)
    for each in ran[1:]:
        heard = [number for number in each.told if number is not None]
        assert heard == sorted(heard), "numbers come in the order in which they were passed on"
        assert set(heard) <= {100 * epoch + step for epoch in range(race.epochs) for step in range(race.steps)}
        for epoch, number in enumerate(each.told_by_epoch):  # rank 0 may be ahead, in the next epoch
            assert number is not None
            assert number >= 100 * epoch + race.steps - 1
        assert each.told_by_epoch[-1] == 100 * (race.epochs - 1) + race.steps - 1
    assert set(first.told) == {None}
