from __future__ import annotations

import pickle

import pytest
import torch

from strobe.comm import CommError
from strobe.comm.board import Place
from strobe.comm.rank_failure import Failure, RankError, ended, raised
from strobe.errors import OptionError

PLACE = Place(3, 5, "backward")
ELSEWHERE = Place(0, 0, "starting")


def _first_line(failure: Failure) -> str:
    return str(failure.error(ELSEWHERE)).splitlines()[0]


def _caught(error: BaseException) -> BaseException:
    """With a traceback."""
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
def test_the_first_line_names_rank_place_and_cause_and_the_traceback_follows(error: BaseException, line: str) -> None:
    failure = raised(2, _caught(error), PLACE)
    assert _first_line(failure) == f"rank 2 {line}"
    assert not failure.by_others
    assert "Traceback" in str(failure.error(ELSEWHERE))
    assert "raise error" in str(failure.error(ELSEWHERE))


def test_torch_says_in_its_own_way_that_memory_ran_out() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert "rank 0 ran out of memory" in _first_line(raised(0, caught.value, PLACE))


def test_what_a_user_chose_is_said_in_its_own_words() -> None:
    error = raised(1, _caught(OptionError("a window has at least 1 snapshot, not 0")), PLACE).error(ELSEWHERE)
    assert str(error) == "a window has at least 1 snapshot, not 0"
    assert (error.rank, error.place) == (1, PLACE)


def test_a_message_that_did_not_come_is_no_reason_of_its_own() -> None:
    text = "rank 0 stopped in epoch 3, step 5, sync: halo from rank 1 failed: Timed out waiting 3000ms"
    failure = raised(0, CommError(text), PLACE)
    assert (failure.by_others, failure.timed_out) == (True, True)
    assert _first_line(failure) == text
    assert not raised(0, CommError("rank 0 stopped: Connection closed by peer"), PLACE).timed_out


def test_an_error_that_such_a_message_led_to_is_none_either() -> None:
    error = ValueError("no rows")
    error.__context__ = CommError("rank 0 stopped in epoch 1, step 1, sync: halo from rank 1 failed: closed")
    failure = raised(0, error, PLACE)
    assert failure.by_others
    assert _first_line(failure) == "rank 0 stopped in epoch 1, step 1, sync: halo from rank 1 failed: closed"


def test_an_error_of_joining_is_placed() -> None:
    failure = raised(2, CommError("this rank could not join the others: no route"), Place(0, 0, "joining"))
    assert _first_line(failure) == (
        "rank 2 stopped in epoch 0, step 0, joining: this rank could not join the others: no route"
    )


def test_a_process_that_is_gone_is_known_by_its_status() -> None:
    killed = ended(2, -9, "").error(PLACE)
    assert str(killed).splitlines()[0] == "rank 2 was killed (signal 9) in epoch 3, step 5, backward"
    assert "memory" in str(killed).splitlines()[1]
    assert str(ended(2, 4, "").error(PLACE)) == "rank 2 exited (status 4) in epoch 3, step 5, backward"
    assert str(ended(2, -11, "Segmentation fault").error(PLACE)).splitlines()[1:] == ["Segmentation fault"]


def test_a_rank_error_can_be_sent_on() -> None:
    copy = pickle.loads(pickle.dumps(RankError("rank 1 failed", 1, PLACE)))
    assert (str(copy), copy.rank, copy.place) == ("rank 1 failed", 1, PLACE)
