from __future__ import annotations

import gc

import pytest
import torch

from strobe.ops.runtime.buffers import MAX_IDLE_REQUESTS, MIN_BYTES, POOL, BufferPool, empty

LARGE = MIN_BYTES // 4  # numbers of single precision


def test_a_block_is_used_again_when_the_last_tensor_on_it_is_gone() -> None:
    POOL.clear()
    first = empty(torch.empty(0), LARGE, 1)
    view = first[10:20]
    place = first.data_ptr()
    del first
    second = empty(torch.empty(0), LARGE, 1)
    assert second.data_ptr() != place  # the view still needs the first
    del view
    gc.collect()
    assert empty(torch.empty(0), LARGE, 1).data_ptr() == place


def test_tensors_alive_at_once_never_share_memory() -> None:
    made = [empty(torch.empty(0), LARGE, 1).fill_(k) for k in range(5)]
    assert [float(tensor.sum()) for tensor in made] == [k * LARGE for k in range(5)]
    assert len({tensor.data_ptr() for tensor in made}) == 5


def test_autograd_keeps_what_it_saved() -> None:
    weight = torch.ones(1, requires_grad=True)
    held = empty(torch.empty(0), LARGE).fill_(3.0)
    product = (held * weight).sum()
    del held
    other = empty(torch.empty(0), LARGE).fill_(7.0)
    product.backward()
    assert float(weight.grad) == 3.0 * LARGE  # type: ignore[arg-type]
    assert float(other[0]) == 7.0


def test_small_results_and_other_kinds_are_torchs_own() -> None:
    assert empty(torch.empty(0), 3, 2).shape == (3, 2)
    whole = empty(torch.empty(0, dtype=torch.int64), LARGE, 2)
    assert whole.dtype == torch.int64
    assert empty(torch.empty(0, dtype=torch.float64), LARGE, 2).dtype == torch.float64


def test_a_block_serves_only_what_is_about_its_size() -> None:
    pool = BufferPool()
    large, block = pool.acquire(2000), pool.acquire(1000)  # while much is in use, what is idle may stay
    pool.release(block)
    assert pool.acquire(400) is not block
    assert pool.acquire(900) is block
    pool.release(block)
    assert pool.acquire(1001) is not block
    pool.release(large)


def test_smaller_blocks_make_room_for_larger_ones() -> None:
    pool = BufferPool()
    for size in range(1000, 100_000, 1000):
        pool.release(pool.acquire(size))
        assert pool.idle_bytes <= 1.25 * size


def test_blocks_of_steps_that_alternate_are_kept() -> None:
    pool = BufferPool()
    for _ in range(5):
        large = [pool.acquire(1000) for _ in range(4)]
        for block in large:
            pool.release(block)
        small = [pool.acquire(700) for _ in range(4)]
        assert all(any(block is other for other in large) for block in small)
        for block in small:
            pool.release(block)


@pytest.mark.parametrize("released", [True, False])
def test_idle_blocks_are_evicted_even_if_every_request_is_served(released: bool) -> None:
    pool = BufferPool()
    pool.release(pool.acquire(1000))
    for _ in range(MAX_IDLE_REQUESTS + 1):
        block = pool.acquire(5000)
        if released:
            pool.release(block)
    assert pool.idle_bytes == 5000 * released


def test_clearing_lets_go_of_everything() -> None:
    pool = BufferPool()
    pool.release(pool.acquire(1000))
    assert pool.idle_bytes == 1000
    pool.clear()
    assert pool.idle_bytes == 0


def test_blocks_begin_with_a_cache_line() -> None:
    held = [empty(torch.empty(0), LARGE + k, 1) for k in range(3)]
    assert [tensor.data_ptr() % 64 for tensor in held] == [0, 0, 0]


def test_the_pool_is_in_use_again_when_the_last_of_several_pauses_ends() -> None:
    """As pauses of several threads overlap: the first to begin is the first to end."""
    pool = BufferPool()
    first, second = pool.pause(), pool.pause()
    for pause in (first, second):
        pause.__enter__()
    first.__exit__(None, None, None)
    assert pool.paused
    second.__exit__(None, None, None)
    assert not pool.paused
