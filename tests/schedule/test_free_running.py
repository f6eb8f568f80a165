from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strobe.schedule import FreeRunning, InOrder


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
