from __future__ import annotations

import torch

from strobe.ops.runtime.buffers import MIN_BYTES, POOL, empty
from strobe.ops.runtime.memory_trace import measure_peak_bytes

CPU = torch.device("cpu")
ROWS = 1000
BYTES = 4 * ROWS


def test_tensors_that_live_at_the_same_time_add_up() -> None:
    assert measure_peak_bytes(lambda: [torch.zeros(ROWS) for _ in range(3)], CPU) == 3 * BYTES


def test_what_is_gone_does_not_count() -> None:
    def work() -> None:
        for _ in range(5):
            kept = torch.zeros(ROWS)
            del kept

    assert measure_peak_bytes(work, CPU) == BYTES


def test_views_and_what_was_there_before_cost_nothing() -> None:
    x = torch.zeros(ROWS)
    assert measure_peak_bytes(lambda: x.view(10, -1)[2:5].t(), CPU) == 0


def test_the_way_back_counts() -> None:
    x = torch.zeros(ROWS, requires_grad=True)
    there = measure_peak_bytes(lambda: x.exp().exp().exp().sum(), CPU)
    back = measure_peak_bytes(lambda: torch.autograd.grad(x.exp().exp().exp().sum(), x), CPU)
    assert 3 * BYTES <= there < back


def test_large_results_count_although_their_memory_is_used_again() -> None:
    x = torch.zeros(MIN_BYTES // 4)
    del [empty(x, len(x))][:]  # a block that waits to be used again
    assert measure_peak_bytes(lambda: empty(x, len(x)), CPU) == MIN_BYTES
    assert measure_peak_bytes(lambda: empty(x, len(x)), CPU) == MIN_BYTES
    assert not POOL.paused
