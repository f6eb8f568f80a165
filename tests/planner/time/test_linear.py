"""Lines through passes."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.planner.time.linear import LinearCost, fit_linear_cost

CELLS = np.array([10, 400, 2_000, 9_000, 100, 7_000])
ARCS = np.array([30, 100, 90_000, 20_000, 900, 70_000])
SNAPSHOTS = np.array([1, 2, 4, 8, 8, 1])
TRUE = LinearCost(per_cell=4e-7, per_arc=3e-8, per_snapshot=2e-4, fixed=1e-3)


def test_a_line_finds_what_made_its_data() -> None:
    found = fit_linear_cost(CELLS, ARCS, TRUE(CELLS, ARCS, SNAPSHOTS), SNAPSHOTS)
    assert asdict(found) == pytest.approx(asdict(TRUE))
    assert found(CELLS, ARCS, SNAPSHOTS) == pytest.approx(TRUE(CELLS, ARCS, SNAPSHOTS))


def test_snapshots_that_nobody_counted_cost_nothing() -> None:
    found = fit_linear_cost(CELLS, ARCS, 4e-7 * CELLS + 3e-8 * ARCS + 1e-3)
    assert asdict(found) == pytest.approx({"per_cell": 4e-7, "per_arc": 3e-8, "per_snapshot": 0.0, "fixed": 1e-3})


def test_what_counts_is_how_many_times_too_long_a_pass_is_told() -> None:
    # Two passes of one size that took 1 and 3 seconds. Of absolute errors the mean, 2, has the least; of relative
    # ones 1.2, for (s - 1)**2 + (s / 3 - 1)**2 is least there.
    found = fit_linear_cost(np.ones(2, np.int64), np.zeros(2, np.int64), np.array([1.0, 3.0]))
    assert float(found(1, 0)) == pytest.approx(1.2)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**7), st.integers(1, 64), st.floats(0, 1e3)),
        min_size=1,
        max_size=9,
    )
)
def test_nothing_ever_costs_less_than_nothing(passes: list[tuple[int, int, int, float]]) -> None:
    cells, arcs, snapshots, seconds = (np.array(each) for each in zip(*passes, strict=True))
    found = fit_linear_cost(cells, arcs, seconds, snapshots)
    assert min(asdict(found).values()) >= 0
    assert np.isfinite(found(cells, arcs, snapshots)).all()


def test_passes_that_get_shorter_as_they_grow_have_no_slope() -> None:
    found = fit_linear_cost(np.array([1, 2, 3]), np.array([2, 4, 6]), np.array([3.0, 2.0, 1.0]))
    assert (found.per_cell, found.per_arc) == (0.0, 0.0)
    assert found.fixed > 0


def test_one_pass_is_told_as_it_was() -> None:
    found = fit_linear_cost(np.array([50]), np.array([200]), np.array([0.25]))
    assert float(found(50, 200)) == pytest.approx(0.25)


def test_sizes_that_grow_alike_still_tell_the_seconds() -> None:
    cells = np.array([10, 20, 40])
    found = fit_linear_cost(cells, 3 * cells, 1e-3 * cells)
    assert found(cells, 3 * cells) == pytest.approx(1e-3 * cells)


def test_a_graph_without_arcs_has_a_line() -> None:
    found = fit_linear_cost(np.array([10, 20, 30]), np.zeros(3, np.int64), np.array([2.0, 3.0, 4.0]))
    assert (found.per_cell, found.per_arc, found.fixed) == pytest.approx((0.1, 0.0, 1.0))


def test_no_pass_at_all_is_refused() -> None:
    nothing = np.zeros(0, np.int64)
    with pytest.raises(OptionError, match="no pass was timed"):
        fit_linear_cost(nothing, nothing, np.zeros(0))


def test_a_line_keeps_the_shape_of_what_it_is_asked_about() -> None:
    assert TRUE(np.ones((2, 3)), np.ones((2, 3)), 1).shape == (2, 3)
    assert TRUE(np.ones((2, 3)), np.ones((2, 3)), 1)[0, 0] == pytest.approx(4e-7 + 3e-8 + 2e-4 + 1e-3)
