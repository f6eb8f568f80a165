from __future__ import annotations

import torch

from strobe.ops.allocation import peak_bytes_of
from strobe.ops.memory import POOL, SMALLEST, empty

CPU = torch.device("cpu")
ROWS = 1000
BYTES = 4 * ROWS


def test_tensors_that_live_at_the_same_time_add_up() -> None:
    assert peak_bytes_of(lambda: [torch.zeros(ROWS) for _ in range(3)], CPU) == 3 * BYTES


def test_what_is_gone_does_not_count() -> None:
    def work() -> None:
        for _ in range(5):
            kept = torch.zeros(ROWS)
            del kept

    assert peak_bytes_of(work, CPU) == BYTES


def test_views_and_what_was_there_before_cost_nothing() -> None:
    x = torch.zeros(ROWS)
    assert peak_bytes_of(lambda: x.view(10, -1)[2:5].t(), CPU) == 0


def test_the_way_back_counts() -> None:
    x = torch.zeros(ROWS, requires_grad=True)
    there = peak_bytes_of(lambda: x.exp().exp().exp().sum(), CPU)
    back = peak_bytes_of(lambda: torch.autograd.grad(x.exp().exp().exp().sum(), x), CPU)
    assert 3 * BYTES <= there < back


def test_large_results_count_although_their_memory_is_used_again() -> None:
    x = torch.zeros(SMALLEST // 4)
    del [empty(x, len(x))][:]  # a block that waits to be used again
    assert peak_bytes_of(lambda: empty(x, len(x)), CPU) == SMALLEST
    assert peak_bytes_of(lambda: empty(x, len(x)), CPU) == SMALLEST
    assert not POOL.paused
