from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strobe.schedule import FreeRunning, InOrder


@given(st.integers(0, 20), st.integers(1, 6), st.booleans())
def test_batches_are_dealt_in_order_and_every_rank_takes_as_many_steps(num: int, ranks: int, shared: bool) -> None:
    steps = FreeRunning().steps(num, ranks, shared=shared)
    assert steps == InOrder().steps(num, ranks, shared=shared)
    assert all(len(step) == ranks for step in steps)
    if not shared:
        assert sorted(batch for step in steps for batches in step for batch in batches) == list(range(num))


def test_ranks_do_not_agree_on_steps_and_the_plan_is_told_so() -> None:
    free = FreeRunning()
    assert not free.agrees
    assert InOrder().agrees
    assert not free.exact
    assert free.gives == ("free steps",)
    assert [need.fact for need in free.needs] == ["batches per rank", "weights apart"]


def test_evaluation_runs_beside_training_unless_said_otherwise() -> None:
    assert FreeRunning().beside
    assert FreeRunning(beside=False).to_json() == {"name": "free-running", "beside": False}
