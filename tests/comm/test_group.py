from __future__ import annotations

import pytest
import torch

from tests.comm.conftest import Job
from tests.comm.jobs import NUM_RANKS

PAIR = 2 * 8  # bytes of one row of two doubles


def _rows(rank: int, number: int) -> torch.Tensor:
    """What ``messages`` in jobs.py sends."""
    return torch.arange(2 * number, dtype=torch.float64).view(number, 2) + 100 * rank + 10 * number


def test_messages_of_a_pair_and_tag_come_in_order(job: Job) -> None:
    for rank, told in enumerate(job.part("messages")):
        before = (rank - 1) % NUM_RANKS
        for number, arrived in zip((1, 2), told["in order"], strict=True):
            torch.testing.assert_close(arrived, _rows(before, number), rtol=0, atol=0)


def test_a_tag_of_its_own_can_be_received_first(job: Job) -> None:
    for rank, told in enumerate(job.part("messages")):
        torch.testing.assert_close(told["tagged"], _rows((rank - 1) % NUM_RANKS, 3), rtol=0, atol=0)


def test_a_swap_gives_others_rows_in_order_of_rank(job: Job) -> None:
    for rank, told in enumerate(job.part("messages")):
        wanted = [_rows(other, rank) for other in range(NUM_RANKS) if other != rank and rank]
        assert len(told["swapped"]) == len(wanted)
        for arrived, sent in zip(told["swapped"], wanted, strict=True):
            torch.testing.assert_close(arrived, sent, rtol=0, atol=0)


def test_the_ledger_counts_messages_by_phase_and_kind(job: Job) -> None:
    for rank, told in enumerate(job.part("messages")):
        ledger = told["ledger"]
        rows_swapped = sum(other for other in range(NUM_RANKS) if other != rank)
        assert ledger["rows_sent"] == {"backward/relay": rows_swapped, "forward/halo": 6}
        assert ledger["sent"] == {"backward/relay": rows_swapped * PAIR, "forward/halo": 6 * PAIR}
        relayed = {"backward/relay": 2 * rank * PAIR} if rank else {}
        assert ledger["received"] == {**relayed, "forward/halo": 6 * PAIR}
        # Rank 0 is told nothing, and an empty message is none.
        assert ledger["messages"] == {"backward/relay": 2 if rank == 0 else 1, "forward/halo": 3}


def test_a_sum_has_the_same_bits_on_all_ranks_and_leaves_what_was_given(job: Job) -> None:
    told = job.part("sums")
    parts = [torch.tensor([0.1, 0.7, 1e-9], dtype=torch.float64) * (rank + 1) for rank in range(NUM_RANKS)]
    for rank, each in enumerate(told):
        assert each["total"].tolist() == told[0]["total"].tolist()
        assert each["mine"].tolist() == parts[rank].tolist()
    torch.testing.assert_close(told[0]["total"], torch.stack(parts).sum(0))


def test_sums_in_the_background_may_be_awaited_in_any_order(job: Job) -> None:
    for told in job.part("sums"):
        assert told["first"].tolist() == [1.0 + 2 + 3] * 6
        assert told["second"].tolist() == [2.0 + 3 + 4] * 6


def test_ranks_agree_on_numbers(job: Job) -> None:
    for told in job.part("sums"):
        assert told["agreed"] == [0.0 + 1 + 2, 1.5]


def test_ranks_find_the_largest_of_numbers_negative_and_infinite_ones_too(job: Job) -> None:
    for told in job.part("sums"):
        assert told["largest"] == [-1.0, float("inf"), 14.0]


def test_a_sum_is_counted_as_what_a_ring_sends(job: Job) -> None:
    for told in job.part("sums"):
        for way in ("sent", "received"):
            assert told["ledger"][way] == {
                "prepare/gradients": 2 * (2 * 2 * 6 * 4 // 3),
                "prepare/loss": 2 * 2 * 3 * 8 // 3,
                "prepare/agree": 2 * 2 * 2 * 8 // 3,
                "prepare/most": 2 * 2 * 3 * 8 // 3,
            }


def test_plain_values_are_gathered_collected_and_shared(job: Job) -> None:
    wanted = [{"rank": rank, "text": "x" * 10 * rank} for rank in range(NUM_RANKS)]
    for rank, told in enumerate(job.part("values")):
        assert told["gathered"] == wanted
        assert told["collected"] == (wanted if rank == 0 else [])
        assert told["shared"] == wanted[0]


@pytest.mark.parametrize("operation", ["swap", "sum", "gather", "collect", "share"])
def test_the_ledger_has_what_the_system_counts_on_the_wire(job: Job, operation: str) -> None:
    """All but the headers of messages, and two sums of one number before and after."""
    for told in job.part("wire"):
        assert told[operation]["received"] <= told[operation]["seen"] <= told[operation]["received"] + 8192


@pytest.mark.parametrize("operation", ["swap", "sum", "collect"])
def test_what_some_send_others_receive(job: Job, operation: str) -> None:
    told = [each[operation] for each in job.part("wire")]
    assert sum(each["sent"] for each in told) == sum(each["received"] for each in told) > 0
