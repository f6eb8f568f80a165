from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.schedule import FreeRunning, InOrder

PER_STEP = st.none() | st.integers(1, 7)


@given(st.integers(0, 20), st.integers(1, 6), PER_STEP)
def test_every_batch_runs_once_in_order_and_ranks_differ_by_at_most_one_per_step(
    num: int, num_ranks: int, per_step: int | None
) -> None:
    steps = InOrder(per_step=per_step).steps(num, num_ranks, shared=False)
    assert [batch for step in steps for batch in sorted(chain(*step))] == list(range(num))
    for step in steps:
        counts = [len(rank) for rank in step]
        assert len(counts) == num_ranks
        assert 1 <= sum(counts) <= (per_step or num_ranks)
        assert max(counts) - min(counts) <= 1


@given(st.integers(0, 9), st.integers(1, 6), PER_STEP)
def test_all_ranks_run_a_shared_batch_in_the_same_step(num: int, num_ranks: int, per_step: int | None) -> None:
    steps = InOrder(per_step=per_step).steps(num, num_ranks, shared=True)
    assert steps == [[[batch]] * num_ranks for batch in range(num)]


def test_per_step_of_zero_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 batch, not 0"):
        InOrder(per_step=0)


@given(st.integers(0, 20), st.integers(1, 6), st.booleans())
def test_batches_are_assigned_in_order_and_ranks_take_equally_many_steps(num: int, ranks: int, shared: bool) -> None:
    steps = FreeRunning().steps(num, ranks, shared=shared)
    assert steps == InOrder().steps(num, ranks, shared=shared)
    assert all(len(step) == ranks for step in steps)
    if not shared:
        assert sorted(batch for step in steps for batches in step for batch in batches) == list(range(num))


def test_ranks_step_independently() -> None:
    free = FreeRunning()
    assert not free.lockstep
    assert InOrder().lockstep
    assert not free.exact
    assert free.gives == ("independent steps",)
    assert [need.fact for need in free.needs] == ["batches per rank", "divergent weights"]


def test_evaluation_is_asynchronous_by_default() -> None:
    assert FreeRunning().async_evaluation
    assert FreeRunning(async_evaluation=False).to_json() == {"name": "free-running", "async_evaluation": False}
