from __future__ import annotations

import json
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import reservoir as module
from strobe.batching.reservoir import Reservoir

Made = tuple[int, int]
"""A batch is its kind and number."""


class Maker:
    """Makes and counts batches, with a delay if given."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace, self.made, self._lock = pace, Counter[Made](), threading.Lock()

    def __call__(self, kind: int, number: int) -> Made:
        with self._lock:
            self.made[kind, number] += 1
        if self.pace is not None:
            self.pace()
        return kind, number


class Pace:
    """Sleeps for random times, with another limit in the background thread than in training."""

    def __init__(self, *, background_ms: float, training_ms: float, seed: int = 0) -> None:
        self._most = {True: background_ms, False: training_ms}
        self._random = random.Random(seed)

    def __call__(self) -> None:
        time.sleep(self._random.random() * self._most[in_background()] / 1000)


def in_background() -> bool:
    return threading.current_thread().name == "batches"


@contextmanager
def started(reservoir: Reservoir[Made]) -> Iterator[None]:
    reservoir.start()
    try:
        yield
    finally:
        reservoir.close()


def taken(reservoir: Reservoir[Made], kinds: Sequence[int]) -> list[Made]:
    return [reservoir.take(kind)[0] for kind in kinds]


def random_kinds(num_kinds: int, number: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(num_kinds) for _ in range(number)]


def settle(reservoir: Reservoir[Made]) -> None:
    """Until the thread has nothing left to do."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with reservoir._changed:
            if not reservoir._under_way and reservoir._next() is None:
                return
        time.sleep(0.001)
    raise AssertionError("the thread never came to an end")


class Reference:
    """What is taken, the slow way: a list of those that may be taken again, newest first."""

    def __init__(self, capacities: Sequence[int], sizes: Sequence[int], seed: Sequence[int]) -> None:
        self._capacities, self._sizes = capacities, sizes
        self._random = np.random.default_rng(list(seed))
        self._cached: list[list[int]] = [[] for _ in capacities]
        self._used = [0 for _ in capacities]
        self.chances: list[float] = []

    def take(self, kind: int) -> Made:
        cached = self._cached[kind]
        self.chances.append(len(cached) / self._capacities[kind])
        if self._random.random() < self.chances[-1]:
            return kind, cached[int(self._random.integers(len(cached)))]
        number, self._used[kind] = self._used[kind], self._used[kind] + 1
        self._cached[kind] = [number, *cached][: self._sizes[kind]]
        return kind, number


PACES = {
    "no time at all": None,
    "a slow thread": Pace(background_ms=2, training_ms=0),
    "slow steps": Pace(background_ms=0, training_ms=1),
    "random": Pace(background_ms=1, training_ms=1, seed=3),
}


@pytest.mark.parametrize("bytes_each", [0, 10], ids=["all fit", "few fit"])
@pytest.mark.parametrize("starts", [True, False], ids=["started", "never started"])
@pytest.mark.parametrize("pace", PACES)
def test_taken_batches_do_not_depend_on_timing(pace: str, starts: bool, bytes_each: int) -> None:
    capacities, kinds = [5, 9, 2], random_kinds(3, 120)
    sizes = [5, 9, 2] if not bytes_each else [3, 3, 2]
    slow = Reference(capacities, sizes, (4, 5))
    reservoir = Reservoir(Maker(PACES[pace]), capacities, seed=(4, 5), limit=90, num_bytes=lambda _: bytes_each)
    if starts:
        reservoir.warm_up()
        reservoir.start()
    try:
        assert taken(reservoir, kinds) == [slow.take(kind) for kind in kinds]
    finally:
        reservoir.close()


@settings(max_examples=40, deadline=None)
@given(
    capacities=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    room=st.integers(0, 7),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_reuse_probability_is_cached_over_capacity(
    capacities: list[int], room: int, seed: int, data: st.DataObject
) -> None:
    kinds = data.draw(st.lists(st.integers(0, len(capacities) - 1), max_size=60))
    slow = Reference(capacities, [min(room, capacity) for capacity in capacities], (seed,))
    limit = float(room * len(capacities))
    reservoir = Reservoir(Maker(), capacities, seed=(seed,), limit=limit, num_bytes=lambda _: 1)
    with started(reservoir):
        assert taken(reservoir, kinds) == [slow.take(kind) for kind in kinds]
    assert all(0 <= chance <= 1 for chance in slow.chances)


@pytest.mark.parametrize("pace", PACES)
def test_each_batch_is_made_once_up_to_the_capacity(pace: str) -> None:
    maker = Maker(PACES[pace])
    reservoir = Reservoir(maker, [4, 7], seed=(0,))
    reservoir.warm_up()
    with started(reservoir):
        found = taken(reservoir, random_kinds(2, 300))
        settle(reservoir)
    everything = {(0, number) for number in range(4)} | {(1, number) for number in range(7)}
    assert set(found) == set(maker.made) == everything
    assert set(maker.made.values()) == {1}


def test_kind_least_ahead_of_training_is_made_first() -> None:
    order = list[Made]()

    def make(kind: int, number: int) -> Made:
        order.append((kind, number))
        return kind, number

    reservoir = Reservoir(make, [5, 3], seed=(0,))
    reservoir.warm_up()
    while (0, 2) not in order:
        reservoir.take(0)
    del order[:]
    with started(reservoir):
        settle(reservoir)
    assert order == [(0, 3), (0, 4), (1, 1), (1, 2)]


@pytest.mark.parametrize(("room", "capacity"), [(3, 10), (1, 10), (0, 10)])
def test_oldest_batch_is_evicted_when_memory_is_full(room: int, capacity: int) -> None:
    maker = Maker()
    reservoir = Reservoir(maker, [capacity], seed=(2,), limit=10.0 * room + 9, num_bytes=lambda _: 10)
    reservoir.warm_up()
    num_takes, newest, again = 3000, -1, 0
    with started(reservoir):
        for _ in range(num_takes):
            (_, number), _ = reservoir.take(0)
            again += number <= newest
            assert newest - room < number <= newest + 1
            newest = max(newest, number)
            with reservoir._changed:
                assert len(reservoir._cache[0]) <= room + 2
    assert again == pytest.approx(num_takes * room / capacity, abs=6 * (num_takes / 4) ** 0.5)
    assert set(maker.made.values()) == {1}
    assert newest < len(maker.made) <= newest + 3


def test_kinds_share_memory_evenly() -> None:
    reservoir = Reservoir(Maker(), [100, 100], seed=(0,), limit=120, num_bytes=lambda made: (10, 30)[made[0]])
    reservoir.warm_up()
    assert reservoir.state_dict()["cache_sizes"] == [6, 2]


def test_first_batch_determines_the_cache_size() -> None:
    maker, early = Maker(), list[Made]()

    def make(kind: int, number: int) -> Made:
        if number == 0:
            reservoir.start()
            time.sleep(0.05)  # what the thread must not do it would do now
            early.extend(maker.made)
        return maker(kind, number)

    reservoir = Reservoir(make, [50], seed=(0,), limit=0)
    assert reservoir.take(0)[0] == (0, 0)
    settle(reservoir)
    reservoir.close()
    assert early == []
    assert len(maker.made) == 3


@pytest.mark.parametrize("bytes_each", [0, 10], ids=["all fit", "few fit"])
@pytest.mark.parametrize("done", [0, 1, 25, 100])
def test_reservoir_resumes_from_its_state(done: int, bytes_each: int) -> None:
    capacities, kinds = [4, 12], random_kinds(2, 160)

    def reservoir_of(pace: str) -> Reservoir[Made]:
        return Reservoir(Maker(PACES[pace]), capacities, seed=(9,), limit=60, num_bytes=lambda _: bytes_each)

    uninterrupted = taken(reservoir_of("no time at all"), kinds)
    first = reservoir_of("a slow thread")
    with started(first):
        before = taken(first, kinds[:done])
        memory = json.loads(json.dumps(first.state_dict()))
        assert taken(first, kinds[done:]) == uninterrupted[done:]
    assert before == uninterrupted[:done]
    for pace, makes_first, starts in (
        ("slow steps", True, True),
        ("random", False, True),
        (None, True, False),
    ):
        again = reservoir_of(pace or "no time at all")
        if makes_first:
            again.warm_up()
        again.load_state_dict(memory)
        if starts:
            again.start()
        try:
            assert taken(again, kinds[done:]) == uninterrupted[done:]
        finally:
            again.close()


def test_loading_a_state_drops_batches_that_are_not_reused() -> None:
    def reservoir_of(maker: Maker) -> Reservoir[Made]:
        return Reservoir(maker, [20], seed=(0,), limit=3, num_bytes=lambda _: 1)

    first, maker = reservoir_of(Maker()), Maker()
    while first.state_dict()["used"] != [10]:
        first.take(0)
    again = reservoir_of(maker)
    again.warm_up()
    again.load_state_dict(first.state_dict())
    with started(again):
        settle(again)
        assert sorted(again._cache[0]) == [7, 8, 9, 10, 11]
    assert sorted(maker.made) == [(0, number) for number in (0, 7, 8, 9, 10, 11)]


def failing(kind: int, number: int) -> Made:
    if number == 2:
        raise ValueError(f"batch {number} of kind {kind} cannot be made")
    return kind, number


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_error_in_the_thread_is_raised_by_the_next_take() -> None:
    reservoir = Reservoir(failing, [5], seed=(0,))
    reservoir.warm_up()
    reservoir.start()
    assert reservoir._thread is not None
    reservoir._thread.join(30)
    assert not reservoir._thread.is_alive()
    for _ in range(2):
        with pytest.raises(ValueError, match="batch 2 of kind 0 cannot be made") as error:
            reservoir.take(0)
        assert "failing" in frames(error.value)
    reservoir.close()


def test_take_that_waits_raises_the_error_of_the_thread() -> None:
    at_it, go = threading.Event(), threading.Event()

    def make(kind: int, number: int) -> Made:
        if in_background():
            at_it.set()
            assert go.wait(30)
        return failing(kind, number + 2)

    reservoir = Reservoir(make, [5], seed=(0,))
    reservoir.start()
    assert at_it.wait(30)
    threading.Timer(0.02, go.set).start()
    with pytest.raises(ValueError, match="batch 2") as error:
        reservoir.take(0)
    assert "failing" in frames(error.value)
    reservoir.close()


def test_close_waits_for_the_batch_being_made() -> None:
    at_it, go, made = threading.Event(), threading.Event(), list[Made]()

    def make(kind: int, number: int) -> Made:
        at_it.set()
        assert go.wait(30)
        made.append((kind, number))
        return kind, number

    reservoir = Reservoir(make, [50], seed=(0,))
    reservoir.start()
    assert at_it.wait(30)
    closing = threading.Thread(target=reservoir.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    assert made == []
    go.set()
    closing.join(30)
    assert not closing.is_alive()
    assert made == [(0, 0)]
    assert reservoir._thread is not None
    assert not reservoir._thread.is_alive()


class Clock:
    """Seconds that pass when a batch is made, and at no other time."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, Counter[bool]()

    def __call__(self) -> float:
        self.calls[in_background()] += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "perf_counter", found)
    return found


def test_only_background_seconds_are_overlapped(clock: Clock) -> None:
    def make(kind: int, number: int) -> Made:
        clock.now += 2 + kind
        return kind, number

    reservoir = Reservoir(make, [3, 4], seed=(0,))
    reservoir.warm_up()
    assert reservoir.pop_overlapped_s() == 0
    with started(reservoir):
        settle(reservoir)
    assert reservoir.pop_overlapped_s() == 2 * 2 + 3 * 3
    assert reservoir.pop_overlapped_s() == 0, "each second once"
    assert [took for _, took in (reservoir.take(0) for _ in range(20))] == [0.0] * 20
    alone = Reservoir(make, [3], seed=(0,))
    assert sum(alone.take(0)[1] for _ in range(50)) == 3 * 2
    assert alone.pop_overlapped_s() == 0


def test_seconds_that_training_waits_are_not_overlapped(clock: Clock) -> None:
    at_it = threading.Event()

    def make(kind: int, number: int) -> Made:
        clock.now += 5
        at_it.set()
        deadline = time.monotonic() + 30
        while clock.calls[False] < 2 and time.monotonic() < deadline:
            time.sleep(0.001)  # until the step has looked at the clock for the second time, when it begins to wait
        clock.now += 3
        return kind, number

    reservoir = Reservoir(make, [1], seed=(0,))
    with started(reservoir):
        assert at_it.wait(30)
        assert reservoir.take(0) == ((0, 0), 3.0)
        assert reservoir.pop_overlapped_s() == 5
