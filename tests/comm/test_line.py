from __future__ import annotations

import time
from typing import Any

import pytest

from strobe.comm import Alone, Comm, RankError, run_ranks
from tests.ranks import as_threads

WORDS = [3, 0, 2**63 - 1, 3, 1]


def spoken(comm: Comm, words: list[int]) -> list[int]:
    """Rank 0 calls; the others look for half of the words, and wait for the rest."""
    line = comm.line()
    found: list[int] = []
    if comm.rank == 0:
        for word in words:
            line.call(word)
        line.settle()
        return []
    while len(found) < len(words) // 2:
        seen = line.heard()
        if seen is not None:
            found.append(seen)
    while len(found) < len(words):
        found.append(line.next())
    assert line.heard() is None
    line.close()
    return found


def checks(comm: Comm) -> dict[str, Any]:
    """All that is asked of processes."""
    told: dict[str, Any] = {"words": spoken(comm, WORDS), "many": spoken(comm, list(range(300)))}
    comm.ledger.clear()
    told["counted words"] = spoken(comm, WORDS)
    told["ledger"] = comm.ledger.cut()
    told["two"] = two_lines(comm)
    told["nobody waits"] = nobody_waits(comm)
    comm.line()  # which nobody uses, and nobody closes
    return told


def two_lines(comm: Comm) -> list[int]:
    """What is called on one line is not heard on another."""
    left, right = comm.line(), comm.line()
    if comm.rank == 0:
        for word in (1, 2):
            left.call(word)
            right.call(10 * word)
        left.settle()
        right.settle()
        return []
    return [right.next(), right.next(), left.next(), left.next()]


def nobody_waits(comm: Comm) -> bool:
    """Rank 0 calls and is through before anybody listens; some of it nobody ever hears."""
    line = comm.line()
    before = True
    if comm.rank == 0:
        for word in range(5):
            line.call(word)
    else:
        before = line.heard() in (None, 0)
    comm.agree([0.0])
    if comm.rank == 2:
        time.sleep(0.2)  # the others have hung up when it does
    line.close()
    line.close()
    return before


def test_threads_hear_all_words_in_order() -> None:
    assert as_threads(lambda comm: spoken(comm, WORDS), 3) == [[], WORDS, WORDS]
    assert as_threads(two_lines, 2) == [[], [10, 20, 1, 2]]


def test_processes_hear_all_words_in_order_and_end_without_a_sound(capfd: pytest.CaptureFixture[str]) -> None:
    results = run_ranks(lambda comm, tell: checks(comm), 3, threads=1, deadline_s=30)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    for rank, told in enumerate(results):
        assert told["words"] == told["counted words"] == (WORDS if rank else [])
        assert told["many"] == (list(range(300)) if rank else [])
        assert told["two"] == ([10, 20, 1, 2] if rank else [])
        assert told["nobody waits"]
        calls = {"prepare/calls": 8 * len(WORDS) * (1 if rank else 2)}
        assert told["ledger"]["sent"] == ({} if rank else calls)
        assert told["ledger"]["received"] == (calls if rank else {})
        assert told["ledger"]["seconds"]["waiting"] > 0


def test_a_word_that_is_never_called_ends_the_job_after_the_deadline() -> None:
    def work(comm: Comm, tell: Any) -> None:
        line = comm.line()
        if comm.rank:
            line.next()
        else:
            time.sleep(60)

    with pytest.raises(RankError) as error:
        run_ranks(work, 2, threads=1, deadline_s=1.0)
    assert "calls from rank 0 failed" in str(error.value)


def test_one_rank_calls_and_reaches_nobody() -> None:
    comm = Alone()
    line = comm.line()
    line.call(1)
    line.settle()
    for listen in (line.heard, line.next):
        with pytest.raises(AssertionError, match="nobody to hear from"):
            listen()
    line.close()
    assert not comm.ledger.messages


@pytest.mark.parametrize("word", [-1, 2**63])
def test_what_is_no_word_is_refused(word: int) -> None:
    with pytest.raises(ValueError, match=f"not {word}"):
        Alone().line().call(word)
