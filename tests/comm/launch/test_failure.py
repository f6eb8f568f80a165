from __future__ import annotations

import pickle

import pytest
import torch

from strobe.comm import CommError
from strobe.comm.launch.failure import (
    GRACE_S,
    IDLE_DEADLINES,
    START_S,
    Failure,
    ProcessState,
    RankError,
    diagnose_failure,
    failure_from_error,
    failure_from_exit,
)
from strobe.comm.launch.status_board import RankPosition
from strobe.errors import OptionError

POSITION = RankPosition(3, 5, "backward")
UNUSED = RankPosition(0, 0, "starting")


def _first_line(failure: Failure) -> str:
    return str(failure.to_error(UNUSED)).splitlines()[0]


def _caught(error: BaseException) -> BaseException:
    """Give an error a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("boom\nand more"), "failed in epoch 3, step 5, backward: ValueError: boom"),
        (SystemExit(3), "exited (status 3) in epoch 3, step 5, backward"),
        (SystemExit(), "exited (status 0) in epoch 3, step 5, backward"),
        (SystemExit("no more"), "exited (status 1) in epoch 3, step 5, backward: no more"),
        (MemoryError(), "ran out of memory in epoch 3, step 5, backward: MemoryError"),
        (
            torch.OutOfMemoryError("CUDA"),
            "ran out of memory in epoch 3, step 5, backward: torch.OutOfMemoryError: CUDA",
        ),
    ],
)
def test_the_first_line_names_rank_position_and_cause_before_the_traceback(error: BaseException, line: str) -> None:
    failure = failure_from_error(2, _caught(error), POSITION)
    assert _first_line(failure) == f"rank 2 {line}"
    assert not failure.caused_by_peer
    assert "Traceback" in str(failure.to_error(UNUSED))
    assert "raise error" in str(failure.to_error(UNUSED))


def test_torch_cpu_allocation_error_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert "rank 0 ran out of memory" in _first_line(failure_from_error(0, caught.value, POSITION))


def test_an_option_error_keeps_its_text() -> None:
    error = failure_from_error(1, _caught(OptionError("not 0")), POSITION).to_error(UNUSED)
    assert (str(error), error.rank, error.position) == ("not 0", 1, POSITION)


def test_a_comm_error_and_an_error_after_it_are_caused_by_a_peer() -> None:
    text = "rank 0 stopped in epoch 3, step 5, sync: halo from rank 1 failed: Timed out waiting 3000ms"
    failure = failure_from_error(0, CommError(text), POSITION)
    assert (failure.caused_by_peer, failure.timed_out) == (True, True)
    assert _first_line(failure) == text
    assert not failure_from_error(0, CommError("rank 0 stopped: Connection closed by peer"), POSITION).timed_out
    after = ValueError("no rows")
    after.__context__ = CommError(text)
    failure = failure_from_error(0, after, POSITION)
    assert failure.caused_by_peer
    assert _first_line(failure) == text


def test_a_process_that_ended_is_described_by_its_status() -> None:
    killed = failure_from_exit(2, -9, "").to_error(POSITION)
    assert str(killed).splitlines()[0] == "rank 2 was killed (signal 9) in epoch 3, step 5, backward"
    assert "memory" in str(killed).splitlines()[1]
    assert (
        str(failure_from_exit(2, 4, "").to_error(POSITION)) == "rank 2 exited (status 4) in epoch 3, step 5, backward"
    )
    assert str(failure_from_exit(2, -11, "Segmentation fault").to_error(POSITION)).splitlines()[1:] == [
        "Segmentation fault"
    ]


def test_a_rank_error_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(RankError("rank 1 failed", 1, POSITION)))
    assert (str(copy), copy.rank, copy.position) == ("rank 1 failed", 1, POSITION)


POSITIONS = {
    0: RankPosition(1, 5, "sync", 9.0),
    1: RankPosition(1, 5, "forward", 8.0),
    2: RankPosition(1, 5, "sync", 9.5),
}


def _diagnose(states: list[ProcessState], now: float) -> Failure | None:
    return diagnose_failure(states, POSITIONS.__getitem__, now=now, deadline_s=3)


def _diagnosed(states: list[ProcessState], now: float) -> Failure:
    failure = _diagnose(states, now)
    assert failure is not None
    return failure


def _states(*failures: Failure | None) -> list[ProcessState]:
    return [ProcessState(rank, ready_since=0.0, failure=failure) for rank, failure in enumerate(failures)]


def _own(rank: int, when: float) -> Failure:
    return Failure(rank=rank, cause="failed", failed_at=when)


def _peer_failure(
    rank: int, when: float, message: str = "sum of all ranks failed", *, timed_out: bool = True
) -> Failure:
    return Failure(
        rank=rank, cause="stopped", message=message, caused_by_peer=True, timed_out=timed_out, failed_at=when
    )


def test_the_first_failure_with_its_own_cause_is_named() -> None:
    cause = _own(2, 12.0)
    assert _diagnose(_states(_peer_failure(0, 10.0), _own(1, 13.0), cause), 13.0) is cause


def test_a_peer_failure_waits_for_its_cause() -> None:
    states = _states(_peer_failure(0, 10.0), None, None)
    assert _diagnose(states, 10.0 + GRACE_S / 2) is None
    states[1].failure = _own(1, 11.0)
    assert _diagnose(states, 10.0 + GRACE_S / 2) is states[1].failure


def test_a_stopped_rank_is_named_once_all_others_failed() -> None:
    states = _states(_peer_failure(0, 10.0), None, _peer_failure(2, 10.1))
    states[1].stopped_since = 7.0
    failure = _diagnosed(states, 10.2)
    assert (failure.rank, failure.cause.split(" (")[0]) == (1, "is stopped")


def test_a_rank_stopped_beyond_the_deadline_is_named() -> None:
    states = _states(None, None)
    states[1].stopped_since = 10.0
    assert _diagnose(states, 12.9) is None
    failure = _diagnosed(states, 13.1)
    assert failure.rank == 1


def test_a_running_rank_named_in_a_timeout_is_named() -> None:
    states = _states(_peer_failure(0, 10.0, "halo from rank 2 failed: Timed out"), None, None)
    failure = _diagnosed(states, 10.0 + GRACE_S + 0.1)
    assert (failure.rank, failure.cause) == (2, "did not answer for 3 s")


def test_of_several_running_ranks_the_furthest_behind_is_named() -> None:
    failure = _diagnosed(_states(_peer_failure(0, 10.0), None, None), 10.0 + GRACE_S + 0.1)
    assert failure.rank == 1  # in the same step as rank 2, but longer in its phase


def test_a_running_rank_is_not_blamed_for_a_broken_connection() -> None:
    first = _peer_failure(1, 10.0, "halo from rank 0 failed: Connection reset by peer", timed_out=False)
    states = _states(_peer_failure(0, 10.1, timed_out=False), first, None)
    assert _diagnose(states, 10.0 + GRACE_S + 0.1) is first


def test_a_rank_that_arrives_after_timeouts_of_others_is_named() -> None:
    late = Failure(rank=0, cause="stopped", caused_by_peer=True, position=RankPosition(0, 0, "place"), failed_at=11.0)
    failure = _diagnosed(_states(late, _peer_failure(1, 10.0), _peer_failure(2, 10.1)), 11.1)
    assert (failure.rank, failure.cause, failure.position) == (0, "did not answer for 3 s", late.position)


def test_a_rank_that_works_alone_may_take_longer_than_the_deadline() -> None:
    states = _states(None, None)
    states[0].idle_since = 99.0

    def alone(rank: int) -> RankPosition:
        return RankPosition(0, 0, "place", 1.0, alone=rank == 0)

    assert diagnose_failure(states, alone, now=100.0, deadline_s=3) is None
    assert diagnose_failure(states, alone, now=99.0 + 3 * IDLE_DEADLINES - 1, deadline_s=3) is None
    failure = diagnose_failure(states, alone, now=99.0 + 3 * IDLE_DEADLINES + 1, deadline_s=3)
    assert failure is not None
    assert failure.rank == 0


def test_a_finished_rank_is_not_blamed() -> None:
    states = _states(_peer_failure(0, 10.0, "halo from rank 1 failed: Timed out"), None)
    states[1].done = True
    assert _diagnose(states, 10.1) is states[0].failure


def test_a_rank_that_does_not_start_is_named() -> None:
    states = [ProcessState(0, ready_since=5.0), ProcessState(1)]
    assert _diagnose(states, 5.0 + START_S - 1) is None
    failure = _diagnosed(states, 5.0 + START_S + 1)
    assert (failure.rank, failure.cause) == (1, "did not start within 60 s")
