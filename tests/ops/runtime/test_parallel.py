from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import ClassVar
from weakref import WeakSet

import pytest
import torch

from strobe.ops.runtime.parallel import map_in_order, run_parts, run_ranges
from tests.conftest import threads as set_threads


@pytest.fixture(autouse=True, params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with set_threads(request.param):
        yield request.param


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_part_runs_once(count: int) -> None:
    seen: list[int] = []
    run_parts(seen.append, count)
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("least", [1, 7])
@pytest.mark.parametrize("count", [0, 1, 6, 50])
def test_ranges_cover_everything_once(count: int, least: int, threads: int) -> None:
    seen: list[tuple[int, int]] = []
    run_ranges(lambda first, end: seen.append((first, end)), count, least)
    assert sorted(at for first, end in seen for at in range(first, end)) == list(range(count))
    assert len(seen) == 1 or min(end - first for first, end in seen) >= least
    assert threads > 1 or len(seen) == 1


def test_parts_run_without_autograd_and_on_one_torch_thread_each(threads: int) -> None:
    found = []

    def work(part: int) -> None:
        found.append((torch.is_grad_enabled(), torch.get_num_threads()))

    run_parts(work, 8)
    assert found == [(False, 1)] * 8
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_as_many_run_at_once_as_there_are_threads(threads: int) -> None:
    """With fewer threads the barrier would never open, and with more the second round would break it."""
    barrier = threading.Barrier(threads, timeout=30)
    run_parts(lambda part: void(barrier.wait()), 2 * threads)


def test_an_error_is_raised_after_all_have_stopped(threads: int) -> None:
    def work(part: int) -> None:
        if part == 2:
            raise ValueError("part 2")

    with pytest.raises(ValueError, match="part 2"):
        run_parts(work, 6)
    assert torch.get_num_threads() == threads
    seen: list[int] = []
    run_parts(seen.append, 4)
    assert len(seen) == 4


def _works_in_a_fork(answer: SimpleQueue[int]) -> None:
    seen: list[int] = []
    run_parts(seen.append, 6)
    answer.put(sum(seen))


def test_a_forked_process_makes_threads_of_its_own() -> None:
    run_parts(lambda part: None, 4)  # so that the parent has some
    context = get_context("fork")
    answer: SimpleQueue[int] = context.SimpleQueue()
    child = context.Process(target=_works_in_a_fork, args=(answer,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answer.get() == 15


def void(_: object) -> None:
    """Swallows a result."""


class Thing:
    alive: ClassVar[WeakSet[Thing]] = WeakSet()

    def __init__(self, k: int) -> None:
        self.k = k
        self.alive.add(self)


def test_things_made_at_a_time_come_in_order_and_few_are_held(threads: int) -> None:
    for k, thing in enumerate(map_in_order(Thing, 7)):
        assert thing.k == k
        assert len(Thing.alive) <= threads + 1
    assert list(map_in_order(Thing, 0)) == []


def test_what_goes_wrong_in_making_goes_wrong_here() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda k: 1 / (2 - k), 5))
