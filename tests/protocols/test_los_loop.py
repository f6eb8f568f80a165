from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import strobe
from strobe.errors import InputError
from strobe.models import MODELS
from strobe.protocols import ProtocolRequest, find_protocol
from strobe.protocols.los_loop import BASELINES, LOS_LOOP, read_signal

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")

Speeds = npt.NDArray[np.float64]

NUM_STEPS, NUM_SENSORS = 150, 5


def random_speeds(seed: int) -> Speeds:
    steps = np.random.default_rng(seed).normal(size=(NUM_STEPS, NUM_SENSORS))
    return np.round(50 + np.cumsum(steps, axis=0), 3)


def write_speeds(folder: Path, speeds: Speeds) -> Path:
    """Files in the form of metr_la_week, sensors on a ring."""
    (folder / "metr_la_week").mkdir(parents=True)
    near = np.eye(NUM_SENSORS) + np.roll(np.eye(NUM_SENSORS), 1, axis=1)
    header = ",".join(str(100 + sensor) for sensor in range(NUM_SENSORS))
    np.savetxt(folder / "metr_la_week" / "los_speed.csv", speeds, "%.3f", ",", header=header, comments="")
    np.savetxt(folder / "metr_la_week" / "los_adj.csv", near, "%.3f", ",")
    return folder


def windows_of_the_authors(speeds: Speeds, history: int = 12, horizon: int = 3) -> tuple[Speeds, Speeds]:
    """Inputs and targets of the test part, as ``preprocess_data`` of the authors' code makes them."""
    test = speeds[int(len(speeds) * 0.8) :]
    cut = [test[i : i + history + horizon] for i in range(len(test) - history - horizon)]
    return np.array([each[:history] for each in cut]), np.array([each[history:] for each in cut])


def test_the_protocol_is_registered_with_its_published_row() -> None:
    assert find_protocol("tgcn-los-loop") is LOS_LOOP
    assert not LOS_LOOP.higher_is_better
    assert [row.test for row in LOS_LOOP.published()] == [5.13]
    assert LOS_LOOP.models[0] == "tgcn"
    assert set(LOS_LOOP.models) == {*MODELS, *BASELINES}


@pytest.mark.parametrize("num_steps", [100, 150, 2016])
def test_test_windows_are_those_of_the_authors_code(num_steps: int) -> None:
    windows, steps = LOS_LOOP.windows(num_steps), np.arange(num_steps, dtype=float)[:, None]
    inputs, targets = windows_of_the_authors(steps)
    assert list(windows.test) == inputs[:, -1, 0].tolist()
    assert [t + 3 for t in windows.test] == targets[:, -1, 0].tolist()
    assert windows.train_size == int(0.8 * num_steps)


@pytest.mark.parametrize("num_steps", [100, 150, 151, 153, 2016])
def test_the_task_trains_and_validates_before_the_test_part(tmp_path: Path, num_steps: int) -> None:
    del tmp_path
    graph = strobe.from_edges(
        [np.array([[0], [1]])] * num_steps, num_nodes=2, x=[np.full((2, 1), float(t)) for t in range(num_steps)]
    )
    windows, split = LOS_LOOP.windows(num_steps), LOS_LOOP.task(num_steps).bind(graph).split
    assert split.with_examples("validation") == windows.validation
    assert split.with_examples("train") == range(windows.validation.start - 2)
    assert split.with_examples("validation")[-1] + 3 < windows.train_size  # no validation target is a test step
    assert windows.test.start >= split.test.start
    assert windows.test.stop <= split.test.stop


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        LOS_LOOP.windows(60)


def test_baselines_have_the_errors_of_a_plain_loop(tmp_path: Path) -> None:
    speeds = random_speeds(0)
    results = {
        each.method: each for each in LOS_LOOP.run_baselines(ProtocolRequest(data_dir=write_speeds(tmp_path, speeds)))
    }
    inputs, targets = windows_of_the_authors(speeds)
    average = []
    for read in inputs:
        rows = list(read)
        for _ in range(3):
            rows.append(np.mean(rows[-12:], axis=0))
        average.append(rows[-3:])
    expected = {"last-value": np.repeat(inputs[:, -1:], 3, axis=1), "historical-average": np.array(average)}
    assert set(results) == set(expected)
    for name, predicted in expected.items():
        assert results[name].test == pytest.approx((np.sqrt(np.mean((predicted - targets) ** 2)),), rel=1e-5)
        assert results[name].settings["mae"]["test"] == pytest.approx([np.mean(abs(predicted - targets))], rel=1e-5)


def test_a_run_scores_every_test_window_of_every_seed(tmp_path: Path) -> None:
    folder, stages = write_speeds(tmp_path, random_speeds(1)), []
    request = ProtocolRequest(
        seeds=2, epochs=1, data_dir=folder, on_stage=lambda stage, done, total: stages.append((stage, done, total))
    )
    result = LOS_LOOP.run(request)
    assert (result.method, result.seeds) == ("tgcn", (0, 1))
    assert np.isfinite([*result.test, *result.validation]).all()
    assert len(windows_of_the_authors(random_speeds(1))[0]) == result.settings["windows"]["test"]
    assert ("training, seed 2 of 2: epochs", 1, 1) in stages
    last = LOS_LOOP.run(replace(request, model="last-value"))
    assert result.mean < 3 * last.mean


def test_test_steps_change_nothing_that_is_trained(tmp_path: Path) -> None:
    speeds = random_speeds(2)
    changed = speeds.copy()
    changed[int(0.8 * NUM_STEPS) :] += 100
    one, other = (
        LOS_LOOP.run(ProtocolRequest(seeds=1, epochs=2, data_dir=write_speeds(tmp_path / name, each)))
        for name, each in (("a", speeds), ("b", changed))
    )
    assert one.validation == other.validation
    assert one.settings["best_epochs"] == other.settings["best_epochs"]


@pytest.mark.skipif(not (SHARED / "metr_la_week").is_dir(), reason="the data set is not there")
def test_last_value_on_los_loop() -> None:
    graph = strobe.load("metr_la_week", data_dir=SHARED)
    assert read_signal(graph).shape == (2016, 207)
    result = LOS_LOOP.run_baselines(ProtocolRequest(data_dir=SHARED))[0]
    assert result.settings["windows"]["test"] == 389
    assert result.mean == pytest.approx(5.5428, abs=1e-3)
