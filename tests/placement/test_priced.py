from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement.priced import _until_it_repeats


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8), st.integers(0, 40))
def test_rounds_that_are_left_out_change_nothing(goes_to: list[int], sweeps: int) -> None:
    """Owners that go from one of eight states to the next, whatever it is, end where they would have ended."""
    owner, made = np.zeros(1, np.int16), 0
    for _ in _until_it_repeats(sweeps, owner):
        owner[0] = goes_to[int(owner[0])]
        made += 1
    state = 0
    for _ in range(sweeps):
        state = goes_to[state]
    assert owner.tolist() == [state]
    assert made <= sweeps


def test_a_circle_is_noticed_soon() -> None:
    owner, made = np.zeros(1, np.int16), 0
    for _ in _until_it_repeats(300, owner):
        owner[0] = (owner[0] + 1) % 3
        made += 1
    assert owner[0] == 0
    assert made <= 12
