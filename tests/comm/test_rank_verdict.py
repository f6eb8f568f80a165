from __future__ import annotations

from strobe.comm.board import Place
from strobe.comm.rank_failure import Failure
from strobe.comm.rank_verdict import GRACE_S, IDLE_DEADLINES, START_S, Fate, verdict

PLACES = {0: Place(1, 5, "sync", 9.0), 1: Place(1, 5, "forward", 8.0), 2: Place(1, 5, "sync", 9.5)}


def _verdict(fates: list[Fate], now: float) -> Failure | None:
    return verdict(fates, PLACES.__getitem__, now=now, deadline_s=3)


def _fates(*failures: Failure | None) -> list[Fate]:
    return [Fate(rank, ready_since=0.0, failure=failure) for rank, failure in enumerate(failures)]


def _own(rank: int, when: float) -> Failure:
    return Failure(rank=rank, cause="failed", when=when)


def _left_alone(rank: int, when: float, said: str = "sum of all ranks failed", *, timed_out: bool = True) -> Failure:
    return Failure(rank=rank, cause="stopped", said=said, by_others=True, timed_out=timed_out, when=when)


def test_all_is_well_while_nobody_fails() -> None:
    assert _verdict(_fates(None, None, None), 1e6) is None


def test_the_first_reason_of_its_own_goes_before_all_others() -> None:
    cause = _own(2, 12.0)
    assert _verdict(_fates(_left_alone(0, 10.0), _own(1, 13.0), cause), 13.0) is cause


def test_a_message_that_did_not_come_waits_for_its_reason_to_show() -> None:
    fates = _fates(_left_alone(0, 10.0), None, None)
    assert _verdict(fates, 10.0 + GRACE_S / 2) is None
    fates[1].failure = _own(1, 11.0)
    assert _verdict(fates, 10.0 + GRACE_S / 2) is fates[1].failure


def test_a_stopped_rank_is_named_as_soon_as_all_others_have_failed() -> None:
    fates = _fates(_left_alone(0, 10.0), None, _left_alone(2, 10.1))
    fates[1].stopped_since = 7.0
    found = _verdict(fates, 10.2)
    assert found is not None
    assert (found.rank, found.cause.split(" (")[0]) == (1, "is stopped")


def test_a_rank_that_is_stopped_for_long_is_named_even_if_nobody_waits() -> None:
    fates = _fates(None, None)
    fates[1].stopped_since = 10.0
    assert _verdict(fates, 12.9) is None
    found = _verdict(fates, 13.1)
    assert found is not None
    assert found.rank == 1


def test_the_rank_that_others_waited_for_is_named_if_it_still_runs() -> None:
    fates = _fates(_left_alone(0, 10.0, "halo from rank 2 failed: Timed out"), None, None)
    found = _verdict(fates, 10.0 + GRACE_S + 0.1)
    assert found is not None
    assert (found.rank, found.cause) == (2, "did not answer for 3 s")


def test_of_several_that_still_run_the_one_furthest_behind_is_named() -> None:
    found = _verdict(_fates(_left_alone(0, 10.0), None, None), 10.0 + GRACE_S + 0.1)
    assert found is not None
    assert found.rank == 1  # in the same step as rank 2, but for longer where it is


def test_a_broken_link_is_not_blamed_on_a_rank_that_merely_computes() -> None:
    first = _left_alone(1, 10.0, "halo from rank 0 failed: Connection reset by peer", timed_out=False)
    fates = _fates(_left_alone(0, 10.1, timed_out=False), first, None)
    assert _verdict(fates, 10.0 + GRACE_S + 0.1) is first


def test_a_rank_that_came_after_others_had_given_up_is_named_not_those_who_waited() -> None:
    late = Failure(rank=0, cause="stopped", by_others=True, place=Place(0, 0, "place"), when=11.0)
    found = _verdict(_fates(late, _left_alone(1, 10.0), _left_alone(2, 10.1)), 11.1)
    assert found is not None
    assert (found.rank, found.cause, found.place) == (0, "did not answer for 3 s", late.place)


def test_a_rank_that_works_alone_may_take_longer_than_the_deadline() -> None:
    fates = _fates(None, None)
    fates[0].idle_since = 99.0

    def alone(rank: int) -> Place:
        return Place(0, 0, "place", 1.0, alone=rank == 0)

    assert verdict(fates, alone, now=100.0, deadline_s=3) is None
    assert verdict(fates, alone, now=99.0 + 3 * IDLE_DEADLINES - 1, deadline_s=3) is None
    found = verdict(fates, alone, now=99.0 + 3 * IDLE_DEADLINES + 1, deadline_s=3)
    assert found is not None
    assert found.rank == 0


def test_ranks_that_wait_for_another_use_no_processor_and_are_not_blamed() -> None:
    fates = _fates(None, None)
    fates[1].idle_since = 1.0
    assert verdict(fates, lambda rank: Place(0, 0, "place", 1.0, alone=rank == 0), now=1e6, deadline_s=3) is None


def test_a_rank_that_is_done_is_not_blamed() -> None:
    fates = _fates(_left_alone(0, 10.0, "halo from rank 1 failed: Timed out"), None)
    fates[1].done = True
    assert _verdict(fates, 10.1) is fates[0].failure


def test_a_rank_that_does_not_start_long_after_another_is_named() -> None:
    fates = [Fate(0, ready_since=5.0), Fate(1)]
    assert _verdict(fates, 5.0 + START_S - 1) is None
    found = _verdict(fates, 5.0 + START_S + 1)
    assert found is not None
    assert (found.rank, found.cause) == (1, "did not start within 60 s")
