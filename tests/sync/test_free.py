"""Ranks that run free end every epoch with the same weights, however fast each is, and never wait alone."""

from __future__ import annotations

from functools import partial
from threading import Event

import pytest
from torch import Tensor, nn, ones

from strobe.comm import Comm, SingleRankComm, run_ranks
from strobe.sync import Average
from tests.support.forks import fork_ranks
from tests.support.free_ranks import Race, Ran, check, random_pace, run_free
from tests.support.ranks import as_threads


def raced(race: Race, num_ranks: int) -> list[Ran]:
    ran = as_threads(partial(run_free, race=race), num_ranks)
    check(ran, race)
    return ran


@pytest.mark.parametrize("seed", range(12))
def test_ranks_of_any_pace_meet(seed: int) -> None:
    limit = (None, 0, 3, 50)[seed % 4]  # also ranks without a batch, with fewer than rank 0, with more
    raced(Race(random_pace(seed), every_s=(0.0005, 0.002, 60.0)[seed % 3], limit=limit), 2 + seed % 3)


def test_ranks_meet_while_an_epoch_goes_on() -> None:
    """Rank 0 is called to its clock at least twice in 8 steps of two milliseconds: sleeping never takes less."""
    ran = raced(Race(lambda rank, step: 0.002, every_s=0.005, epochs=1), 2)
    at_the_end = raced(Race(lambda rank, step: 0.002, every_s=60.0, epochs=1), 2)
    assert ran[0].sums > at_the_end[0].sums


def test_a_rank_stops_after_the_step_in_which_rank_0_ended_the_epoch() -> None:
    posted = Event()

    def work(comm: Comm) -> int:
        sync = Average(every_s=60.0).start([nn.Parameter(ones(2))], comm, free_running=True)
        all_reduce, steps = comm.all_reduce, 0

        def note_and_reduce(values: Tensor, *, kind: str) -> Tensor:
            posted.set()  # rank 0 posts the end of the epoch before it averages
            return all_reduce(values, kind=kind)

        comm.all_reduce = note_and_reduce  # type: ignore[method-assign]
        while comm.rank and not sync.epoch_over:
            assert posted.wait(60)
            sync.after_step()
            steps += 1
        sync.end_epoch()
        return steps

    assert as_threads(work, 2) == [0, 1]


def test_one_rank_runs_as_far_as_it_likes() -> None:
    ran = run_free(SingleRankComm(), Race(lambda rank, step: 0.0, every_s=0.0001))
    assert (ran.steps, ran.sums) == (16, 0)


def test_ranks_that_meet_by_their_number_of_steps_hear_numbers_too() -> None:
    def work(comm: Comm) -> list[int | None]:
        syncing = Average(every=3).start([nn.Parameter(ones(2))], comm, free_running=True)
        assert not syncing.is_follower
        heard = []
        for step in range(1, 8):
            if comm.rank == 0:
                syncing.publish(step)
            syncing.after_step()
            assert not syncing.epoch_over
            if step % 3 == 0:
                heard.append(syncing.last_published)
        syncing.end_epoch()
        return [*heard, syncing.last_published]

    first, *others = as_threads(work, 3)
    assert first == [None] * 3
    for heard in others:
        # What rank 0 said before they met is heard by then; it may already be ahead.
        assert all(number is not None and number >= met for number, met in zip(heard, (3, 6, 7), strict=True))
        assert heard[-1] == 7


def test_a_number_is_passed_on_once_until_it_changes() -> None:
    def work(comm: Comm) -> int:
        syncing = Average().start([nn.Parameter(ones(2))], comm, free_running=True)
        if comm.rank == 0:
            for number in (5, 5, 5, 0):
                syncing.publish(number)
        syncing.end_epoch()
        assert syncing.last_published == (0 if comm.rank else None)
        return sum(comm.ledger.messages.values())

    assert as_threads(work, 2) == [3, 0]  # two numbers, and the end of the epoch


def test_a_number_below_0_cannot_be_passed_on() -> None:
    syncing = Average().start([nn.Parameter(ones(2))], SingleRankComm())
    with pytest.raises(ValueError, match="not -1"):
        syncing.publish(-1)


def test_a_rank_that_has_taken_fewer_steps_than_it_should_is_found() -> None:
    def work(comm: Comm) -> None:
        syncing = Average(every=2).start([nn.Parameter(ones(2))], comm, free_running=True)
        for _ in range(2 - comm.rank):
            syncing.after_step()
        syncing.end_epoch()

    with pytest.raises(AssertionError, match="rank 1 has not taken as many steps as rank 0"):
        as_threads(work, 2)


def test_processes_that_run_free_meet_and_end(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_ranks(monkeypatch)
    races = [
        Race(random_pace(seed), every_s=(0.001, 0.005)[seed % 2], limit=(None, 3)[seed % 2], epochs=2, steps=6)
        for seed in range(4)
    ]
    results = run_ranks(
        lambda comm, tell: [run_free(comm, race) for race in races], 3, threads=1, deadline_s=30
    )  # several after another: each hangs up its line while others may still hold theirs
    for race, ran in zip(races, zip(*results, strict=True), strict=True):
        check(list(ran), race)
    assert capfd.readouterr().err == ""
