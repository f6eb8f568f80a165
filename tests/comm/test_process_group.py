from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from strobe.comm import Comm, SingleRankComm, run_ranks
from tests.comm.conftest import Job
from tests.support.comm_jobs import NUM_RANKS
from tests.support.forks import fork_ranks
from tests.support.ranks import as_threads

MESSAGES = [3, 0, 2**63 - 1, 3, 1]
PAIR = 2 * 8  # bytes of one row of two doubles


def _rows(rank: int, number: int) -> torch.Tensor:
    """The rows that ``messages`` in jobs.py sends."""
    return torch.arange(2 * number, dtype=torch.float64).view(number, 2) + 100 * rank + 10 * number


def test_messages_of_a_pair_arrive_in_order_and_those_of_a_pipeline_by_key(job: Job) -> None:
    for rank, result in enumerate(job["messages"]):
        before = (rank - 1) % NUM_RANKS
        for number, arrived in zip((1, 2), result["in order"], strict=True):
            torch.testing.assert_close(arrived, _rows(before, number), rtol=0, atol=0)
        torch.testing.assert_close(result["relayed"], _rows(before, 3), rtol=0, atol=0)


def test_all_to_all_rows_returns_rows_in_order_of_rank(job: Job) -> None:
    for rank, result in enumerate(job["messages"]):
        wanted = [_rows(other, rank) for other in range(NUM_RANKS) if other != rank and rank]
        assert len(result["swapped"]) == len(wanted)
        for arrived, sent in zip(result["swapped"], wanted, strict=True):
            torch.testing.assert_close(arrived, sent, rtol=0, atol=0)


def test_the_ledger_counts_messages_by_phase_and_kind(job: Job) -> None:
    for rank, result in enumerate(job["messages"]):
        ledger = result["ledger"]
        rows_swapped = sum(other for other in range(NUM_RANKS) if other != rank)
        assert ledger["rows_sent"] == {"backward/relay": rows_swapped, "forward/halo": 6}
        assert ledger["sent"] == {"backward/relay": rows_swapped * PAIR, "forward/halo": 6 * PAIR}
        relayed = {"backward/relay": 2 * rank * PAIR} if rank else {}
        assert ledger["received"] == {**relayed, "forward/halo": 6 * PAIR}
        # No rows go to rank 0, and empty messages are not sent.
        assert ledger["messages"] == {"backward/relay": 2 if rank == 0 else 1, "forward/halo": 3}


def test_all_reduce_is_bit_identical_on_all_ranks_and_leaves_its_input(job: Job) -> None:
    results = job["sums"]
    parts = [torch.tensor([0.1, 0.7, 1e-9], dtype=torch.float64) * (rank + 1) for rank in range(NUM_RANKS)]
    for rank, each in enumerate(results):
        assert each["total"].tolist() == results[0]["total"].tolist()
        assert each["mine"].tolist() == parts[rank].tolist()
    torch.testing.assert_close(results[0]["total"], torch.stack(parts).sum(0))


def test_results_of_reductions(job: Job) -> None:
    for result in job["sums"]:
        assert result["first"].tolist() == [1.0 + 2 + 3] * 6
        assert result["second"].tolist() == [2.0 + 3 + 4] * 6
        assert result["agreed"] == [0.0 + 1 + 2, 1.5]
        assert result["largest"] == [-1.0, float("inf"), 14.0]


def test_an_all_reduce_counts_the_bytes_of_a_ring(job: Job) -> None:
    for result in job["sums"]:
        for way in ("sent", "received"):
            assert result["ledger"][way] == {
                "prepare/gradients": 2 * (2 * 2 * 6 * 4 // 3),
                "prepare/loss": 2 * 2 * 3 * 8 // 3,
                "prepare/scalars": 2 * 2 * 2 * 8 // 3,
                "prepare/most": 2 * 2 * 3 * 8 // 3,
            }


def test_objects_are_gathered_and_broadcast(job: Job) -> None:
    wanted = [{"rank": rank, "text": "x" * 10 * rank} for rank in range(NUM_RANKS)]
    for rank, result in enumerate(job["values"]):
        assert result["all_gather_object"] == wanted
        assert result["gather_object"] == (wanted if rank == 0 else [])
        assert result["broadcast_object"] == wanted[0]


@pytest.mark.parametrize(
    "operation", ["all_to_all_rows", "all_reduce", "all_gather_object", "gather_object", "broadcast_object"]
)
def test_the_ledger_matches_the_bytes_that_the_kernel_counts(job: Job, operation: str) -> None:
    """Up to message headers, and two all-reduces of one number before and after."""
    for result in job["wire"]:
        assert result[operation]["received"] <= result[operation]["seen"] <= result[operation]["received"] + 8192


@pytest.mark.parametrize("operation", ["all_to_all_rows", "all_reduce", "gather_object"])
def test_sent_and_received_bytes_are_equal(job: Job, operation: str) -> None:
    counts = [each[operation] for each in job["wire"]]
    assert sum(each["sent"] for each in counts) == sum(each["received"] for each in counts) > 0


def receive_all(comm: Comm, messages: list[int]) -> list[int]:
    """Rank 0 posts; other ranks poll for half of the messages and wait for the rest."""
    channel = comm.open_control_channel()
    received: list[int] = []
    if comm.rank == 0:
        for message in messages:
            channel.post(message)
        channel.flush()
        return []
    while len(received) < len(messages) // 2:
        polled = channel.poll()
        if polled is not None:
            received.append(polled)
    while len(received) < len(messages):
        received.append(channel.wait())
    assert channel.poll() is None
    channel.close()
    return received


def checks(comm: Comm) -> dict[str, Any]:
    """Run all checks of channels between processes."""
    results: dict[str, Any] = {"messages": receive_all(comm, MESSAGES), "many": receive_all(comm, list(range(300)))}
    comm.ledger.clear()
    results["counted messages"] = receive_all(comm, MESSAGES)
    results["ledger"] = comm.ledger.drain()
    results["two"] = two_channels(comm)
    results["no wait"] = post_without_receiver(comm)
    comm.open_control_channel()  # left unused and open
    return results


def two_channels(comm: Comm) -> list[int]:
    """Messages of one channel do not arrive on another."""
    left, right = comm.open_control_channel(), comm.open_control_channel()
    if comm.rank == 0:
        for message in (1, 2):
            left.post(message)
            right.post(10 * message)
        left.flush()
        right.flush()
        return []
    return [right.wait(), right.wait(), left.wait(), left.wait()]


def post_without_receiver(comm: Comm) -> bool:
    """Rank 0 posts and continues before any rank receives; some messages are never received."""
    channel = comm.open_control_channel()
    before = True
    if comm.rank == 0:
        for message in range(5):
            channel.post(message)
    else:
        before = channel.poll() in (None, 0)
    comm.all_reduce_scalars([0.0])
    if comm.rank == 2:
        time.sleep(0.2)  # the others have closed before
    channel.close()
    channel.close()
    return before


def test_threads_receive_all_messages_in_order() -> None:
    assert as_threads(lambda comm: receive_all(comm, MESSAGES), 3) == [[], MESSAGES, MESSAGES]
    assert as_threads(two_channels, 2) == [[], [10, 20, 1, 2]]


def test_processes_receive_all_messages_in_order_and_print_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_ranks(monkeypatch)
    results = run_ranks(lambda comm, tell: checks(comm), 3, threads=1, deadline_s=30)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    for rank, result in enumerate(results):
        assert result["messages"] == result["counted messages"] == (MESSAGES if rank else [])
        assert result["many"] == (list(range(300)) if rank else [])
        assert result["two"] == ([10, 20, 1, 2] if rank else [])
        assert result["no wait"]
        control = {"prepare/control": 8 * len(MESSAGES) * (1 if rank else 2)}
        assert result["ledger"]["sent"] == ({} if rank else control)
        assert result["ledger"]["received"] == (control if rank else {})
        assert result["ledger"]["seconds"]["straggler_wait_s"] > 0


def test_a_single_rank_posts_without_receivers() -> None:
    comm = SingleRankComm()
    channel = comm.open_control_channel()
    channel.post(1)
    channel.flush()
    for receive in (channel.poll, channel.wait):
        with pytest.raises(AssertionError, match="receives none"):
            receive()
    channel.close()
    assert not comm.ledger.messages


@pytest.mark.parametrize("message", [-1, 2**63])
def test_a_message_beyond_63_bits_is_refused(message: int) -> None:
    with pytest.raises(ValueError, match=f"not {message}"):
        SingleRankComm().open_control_channel().post(message)
