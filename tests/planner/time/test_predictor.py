from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from strobe.errors import FormatError, OptionError
from strobe.placement.model_costs import CellSetSizes, count_load
from strobe.planner.time.predictor import WorkloadPredictor, fit_predictor, percentage_error
from tests.support.pass_times import ARC_S, CELL_S, STATE_S, invented

KEY = {"model": "invented", "threads": 1}


@pytest.fixture(scope="module")
def learned() -> WorkloadPredictor:
    return fit_predictor(invented(noise=0.03))


def sizes(cells: npt.ArrayLike, arcs: npt.ArrayLike, sequences: npt.ArrayLike) -> CellSetSizes:
    return CellSetSizes(*(np.asarray(each, np.int64) for each in (cells, arcs, sequences)))


def test_a_known_cost_is_learned_from_noisy_measurements(learned: WorkloadPredictor) -> None:
    assert learned.error < 0.06
    assert all(error < 0.08 for error in learned.errors.values())
    fresh = invented(100, seed=9)
    said = sum(learned.predict_stages(fresh.sizes, fresh.features, fresh.hidden, alone=True))
    assert percentage_error(np.asarray(said), fresh.total) < 0.06


def test_it_tells_apart_what_counting_does_not(learned: WorkloadPredictor) -> None:
    held = learned.times.select(learned.held_out)
    count = count_load(held.sizes)
    best = min(percentage_error(scale * count, held.total) for scale in held.total / count)
    assert learned.error < best / 3


def test_the_same_chunks_and_seed_give_the_same_predictor_which_learns_nothing_from_a_fifth_of_them() -> None:
    some = sizes([1_000, 9_000], [5_000, 8_000], [100, 9_000])
    torch.manual_seed(1)
    one = fit_predictor(invented(40))
    assert len(one.held_out) == 8
    spoilt = invented(40)
    spoilt.structure[one.held_out] *= 100
    torch.manual_seed(2)
    other = fit_predictor(spoilt)
    np.testing.assert_array_equal(one.loads(8, 32)(some), other.loads(8, 32)(some))
    assert other.error > 0.5 > one.error
    assert (fit_predictor(invented(40), seed=1).loads(8, 32)(some) != one.loads(8, 32)(some)).all()


def test_learning_leaves_random_numbers_and_threads_alone() -> None:
    torch.manual_seed(5)
    wanted, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    fit_predictor(invented(10))
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("alone", [True, False])
def test_larger_sets_than_were_measured_cost_in_proportion(learned: WorkloadPredictor, alone: bool) -> None:
    scale = np.array([1, 2, 3, 100])
    loads = learned.loads(8, 32, alone=alone)(sizes(200_000 * scale, 1_000_000 * scale, 20_000 * scale))
    np.testing.assert_allclose(loads, loads[0] * scale, rtol=1e-9)
    assert loads[0] == pytest.approx(200_000 * (CELL_S + STATE_S) + 1_000_000 * ARC_S, rel=0.15)


def test_more_arcs_than_were_measured_go_on_in_a_straight_line(learned: WorkloadPredictor) -> None:
    arcs = np.array([200, 400, 600, 5_000]) * 1_000
    loads = learned.loads(8, 32, alone=True)(sizes([1_000] * 4, arcs, [100] * 4))
    per_arc = np.diff(loads) / np.diff(arcs)
    assert (per_arc > 0).all()
    np.testing.assert_allclose(per_arc, per_arc[0], rtol=1e-6)
    assert per_arc[0] == pytest.approx(ARC_S, rel=0.4)


def test_longer_sequences_than_were_measured_never_get_cheaper_or_wild(learned: WorkloadPredictor) -> None:
    loads = learned.loads(8, 32, alone=True)(sizes([20_000] * 3, [40_000] * 3, [500, 50, 1]))
    assert (np.diff(loads) >= 0).all()
    assert loads[-1] < 1_000 * loads[0]


def test_small_sets_are_parts_of_a_pass_unless_they_run_alone(learned: WorkloadPredictor) -> None:
    tiny = sizes([1, 10, 100], [4, 40, 400], [1, 1, 10])
    together, alone = (learned.loads(8, 32, alone=each)(tiny) for each in (False, True))
    assert together[0] == pytest.approx(CELL_S + STATE_S + 4 * ARC_S, rel=0.2)
    assert together[2] == pytest.approx(10 * together[1], rel=1e-6)
    assert (alone > together).all()
    assert alone[0] == pytest.approx(300 * (CELL_S + STATE_S + 4 * ARC_S), rel=0.3)  # the smallest that was measured


@pytest.mark.parametrize("alone", [True, False])
def test_sets_without_cells_cost_nothing(learned: WorkloadPredictor, alone: bool) -> None:
    loads = learned.loads(8, 32, alone=alone)
    some = loads(sizes([0, 500, 0], [0, 900, 0], [0, 50, 0]))
    assert some[[0, 2]].tolist() == [0, 0]
    assert some[1] > 0
    assert loads(sizes([], [], [])).shape == (0,)
    assert np.isfinite(loads(sizes([5], [0], [5]))).all()


def test_sizes_need_not_be_whole(learned: WorkloadPredictor) -> None:
    whole = sizes([1_000], [5_000], [100])
    half = CellSetSizes(*(each / 2 for each in (whole.cells, whole.arcs, whole.sequences)))
    loads = learned.loads(8, 32)
    assert loads(half) == pytest.approx(loads(whole) / 2)


def test_widths_that_were_not_measured_and_too_few_chunks_are_refused(learned: WorkloadPredictor) -> None:
    with pytest.raises(OptionError, match="4 chunks are too few"):
        fit_predictor(invented(4))
    with pytest.raises(OptionError, match="16 to 64 hidden columns, not with 8 and 128"):
        learned.loads(8, 128)


def test_a_model_in_one_stage_has_no_time() -> None:
    learned = fit_predictor(invented(20, with_time=False))
    assert learned.time is None
    assert set(learned.errors) == {"total", "structure"}
    structure, time = learned.predict_stages(sizes([1_000], [5_000], [100]), 8, 32, alone=True)
    assert structure > 0
    assert time == 0


@pytest.mark.parametrize("with_time", [True, False])
def test_a_predictor_is_made_again_from_its_arrays_and_from_no_others(with_time: bool) -> None:
    learned = fit_predictor(invented(10, with_time=with_time))
    arrays = learned.to_arrays()
    loaded = WorkloadPredictor.from_arrays(arrays)
    some = sizes([1_000, 50, 10**6], [5_000, 80, 10**7], [100, 50, 10**4])
    np.testing.assert_array_equal(loaded.loads(8, 32)(some), learned.loads(8, 32)(some))
    assert (loaded.errors, loaded.ranges, len(loaded.times)) == (learned.errors, learned.ranges, 10)
    for damaged in ({}, {**arrays, "structure.mean": np.zeros(2)}, {**arrays, "times.more": np.zeros(2)}):
        with pytest.raises(FormatError, match="not the arrays"):
            WorkloadPredictor.from_arrays(damaged)
