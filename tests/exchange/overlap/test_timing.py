from __future__ import annotations

import numpy as np
import pytest

from strobe.comm import Comm, SingleRankComm
from strobe.exchange.overlap.order import SnapshotSize
from strobe.exchange.overlap.timing import TimingModel, fit_line
from strobe.ops.sparse.csr import FloatArray
from tests.support.ranks import as_threads


def sums(inputs: list[list[float]], seconds: list[float]) -> FloatArray:
    rows: FloatArray = np.column_stack([np.array(inputs), np.array(seconds)])
    return np.asarray(rows.T @ rows)


def test_fit_fittedrecovers_coefficients() -> None:
    generator = np.random.default_rng(0)
    inputs = np.column_stack([np.ones(50), generator.integers(0, 10**6, (50, 2))])
    line = np.array([1e-4, 2e-9, 5e-9])
    fitted = fit_line(sums(inputs.tolist(), (inputs @ line).tolist()))
    assert fitted is not None
    assert fitted == pytest.approx(line, rel=1e-4)


def test_fit_fittedhas_no_negative_coefficients() -> None:
    inputs = [[1.0, float(k)] for k in range(1, 5)]
    fitted = fit_line(sums(inputs, [4.0, 3.0, 2.0, 1.0]))
    assert fitted is not None
    assert fitted.tolist() == pytest.approx([2.5, 0.0])


def test_fit_fittedgives_0_to_an_input_that_is_always_0() -> None:
    fitted = fit_line(sums([[1.0, 3.0, 0.0], [1.0, 5.0, 0.0]], [3.0, 5.0]))
    assert fitted is not None
    assert fitted.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)


def test_fit_fittedwithout_measurements_is_none() -> None:
    assert fit_line(np.zeros((3, 3))) is None


def test_default_predictions_grow_with_size() -> None:
    timing = TimingModel(SingleRankComm())
    small, large = SnapshotSize(10, 20, 5), SnapshotSize(10**6, 10**7, 10**5)
    assert 0 < timing.seconds_to_first_exchange(small, 4) < timing.seconds_to_first_exchange(large, 4)
    assert 0 < timing.seconds_after_arrival(small, 4) < timing.seconds_after_arrival(large, 4)
    assert 0 == timing.transfer_seconds(0) < timing.transfer_seconds(100) < timing.transfer_seconds(10**6)


def measure(timing: TimingModel, per_cell: float) -> None:
    for cells in (100, 200, 400):
        timing.record_compute(SnapshotSize(cells, 0, 0), 2, per_cell * cells * 2, began=True)
        timing.record_arrival(cells, 0.0, 0.0, 0.0)  # no wait: ignored
    timing.end_stage()


def test_measurements_of_all_ranks_are_fitted_at_the_next_epoch() -> None:
    def work(comm: Comm) -> tuple[float, float, float]:
        timing, size = TimingModel(comm), SnapshotSize(1000, 0, 0)
        before, link = timing.seconds_after_arrival(size, 2), timing.transfer_seconds(100)
        measure(timing, 1.0 + comm.rank)
        assert timing.seconds_after_arrival(size, 2) == before
        timing.begin_epoch()
        timing.begin_epoch()  # of another window
        assert timing.transfer_seconds(100) == link
        return before, timing.seconds_after_arrival(size, 2), timing.seconds_to_first_exchange(size, 2)

    (before, one, first), (_, other, _) = as_threads(work, 2)
    assert one == other == pytest.approx(3000.0)
    assert before < 1 > first


def test_transfer_time_counts_from_the_previous_arrival() -> None:
    timing = TimingModel(SingleRankComm())
    timing.record_arrival(1000, departed=10.0, requested=10.0, now=11.0)
    timing.record_arrival(2000, departed=10.0, requested=11.0, now=13.0)
    timing.record_arrival(500, departed=13.0, requested=13.25, now=13.5)
    assert timing.waited_s == pytest.approx(3.25)
    timing.end_stage()
    timing.begin_epoch()
    assert timing.transfer_seconds(4000) == pytest.approx(4.0)


def test_timing_model_is_shared_per_comm() -> None:
    one, other = SingleRankComm(), SingleRankComm()
    assert TimingModel.for_comm(one) is TimingModel.for_comm(one)
    assert TimingModel.for_comm(one) is not TimingModel.for_comm(other)


def test_state_dict_keeps_measurements_and_predictions() -> None:
    first, second = TimingModel(SingleRankComm()), TimingModel(SingleRankComm())
    assert first.state_dict() is None
    measure(first, 1.0)
    first.begin_epoch()
    measure(first, 3.0)
    state = first.state_dict()
    assert state is not None
    second.load_state_dict(state)
    size = SnapshotSize(1000, 0, 0)
    assert second.seconds_after_arrival(size, 2) == first.seconds_after_arrival(size, 2) == pytest.approx(2000.0)
    for each in (first, second):
        each.begin_epoch()
    assert second.seconds_after_arrival(size, 2) == first.seconds_after_arrival(size, 2) == pytest.approx(4000.0)
