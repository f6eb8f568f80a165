"""Ranks that share a GPU talk over NCCL: they train as one rank does, and one that is lost ends the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from benchmarks.nccl import cases, failures, work_on_rank
from strobe.comm import Comm, RankError, run_ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")

DEADLINE_S = 10.0


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_train_as_one_rank_does(num_ranks: int) -> None:
    work = partial(work_on_rank, cases(quick=True), 3, "cuda")
    found = run_ranks(work, num_ranks, threads=1, device="cuda", backend="nccl")[0]
    assert found["backend"] == "nccl"
    assert failures(found) == {}
    assert found["distinct_losses"] == 1


def _sum_after(last_rank_does: Callable[[], None], comm: Comm, _: Any) -> float:
    """The last rank does something after the first of two sums."""
    ones = torch.ones(4, device="cuda")
    comm.all_reduce(ones, kind="gradients").sum().item()
    if comm.rank == comm.num_ranks - 1:
        last_rank_does()
    return float(comm.all_reduce(ones, kind="gradients").sum())


def _kill(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_ends_the_others_by_the_deadline_and_is_named(number: signal.Signals) -> None:
    work = partial(_sum_after, partial(_kill, number))
    with pytest.raises(RankError, match="rank 1"):
        run_ranks(work, 2, deadline_s=DEADLINE_S, threads=1, device="cuda", backend="nccl")
