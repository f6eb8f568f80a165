from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph.synthetic.curves import CURVES, Curve, apportion, growth_curve


@pytest.mark.parametrize("curve", CURVES)
def test_curves_rise_from_one_to_the_ratio(curve: Curve) -> None:
    sizes = growth_curve(50, 4.0, curve)
    assert sizes[[0, -1]] == pytest.approx([1, 4])
    assert (np.diff(sizes) > 0).all()


def test_curves_differ_in_the_middle() -> None:
    middle = {curve: growth_curve(3, 4.0, curve)[1] for curve in CURVES}
    assert middle["exponential"] < middle["linear"] < middle["saturating"]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(0, 10**9))
def test_apportioned_parts_add_up_and_follow_the_weights(weights: list[float], total: int) -> None:
    parts = apportion(np.array(weights), total)
    assert parts.sum() == total
    assert (parts >= 0).all()
    if sum(weights) > 1e-3:
        assert np.abs(parts - np.array(weights) / sum(weights) * total).max() < 1 + 1e-6 * total
