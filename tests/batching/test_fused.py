from __future__ import annotations

import pytest

from strobe.batching import Fused
from strobe.errors import OptionError
from strobe.placement import Chunks, Metis
from strobe.plan import Plan, PlanError


def test_pieces_need_chunks_and_the_plan_says_so() -> None:
    Plan(placement=Chunks(), batching=Fused()).check(2)
    with pytest.raises(PlanError, match=r"batching fused .* needs chunks: pieces are made of chunks\. Choose"):
        Plan(placement=Metis(), batching=Fused()).check(2)


def test_memory_is_in_mebibytes() -> None:
    assert Fused(memory=2).piece_bytes == 2 * 2**20


def test_it_may_be_cut_into_windows() -> None:
    assert Fused(memory=5).cut(4) == Fused(memory=5, size=4)
    assert Fused(size=4).window == 4


@pytest.mark.parametrize(
    ("wrong", "said"), [({"memory": -1.0}, "at least 0 MiB"), ({"size": 0}, "at least 1 snapshot")]
)
def test_impossible_sizes_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Fused(**wrong)  # type: ignore[arg-type]
