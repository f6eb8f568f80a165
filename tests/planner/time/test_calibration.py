"""What this machine says about itself."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from strobe.comm import Comm, SingleRankComm
from strobe.engine.machine import random_state
from strobe.engine.progress import Progress
from strobe.planner.time import calibration
from strobe.planner.time.calibration import Calibration, calibrate, calibrate_concurrently
from strobe.planner.time.passes import LinearCost, PassTimes
from tests.support.forks import fork_ranks
from tests.support.planner_jobs import job_of, request_of
from tests.support.ranks import as_threads
from tests.support.runs import Noisy, same_tensors


class Stages(Progress):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage(self, what: str, done: int, total: int | None) -> None:
        self.seen.append(what)


def invented(count: int) -> PassTimes:
    cells = 10 * np.arange(1, count + 1) ** 2
    return PassTimes(
        part=np.arange(count),
        cells=cells,
        arcs=cells // 3,
        snapshots=np.arange(count) % 3 + 1,
        seconds=cells * 1e-3,
        time_stage_s=cells * 4e-4,
    )


def test_a_calibration_says_what_passes_steps_and_sums_cost() -> None:
    progress = Stages()
    found = calibrate(job_of(), seconds=0.3, progress=progress)
    line = found.pass_cost
    assert float(line(1_000, 3_000, 4)) > 0
    assert float(found.time_stage_cost(1_000, 0, 4)) > 0
    assert found.time_stage_cost.per_arc == 0
    assert found.step_s > 0
    assert "timing passes" in progress.seen
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == found.to_json()


def test_weights_are_those_that_ranks_agree_on() -> None:
    learned = sum(p.numel() for module in job_of().make_model() for p in module.parameters())
    for precision, size in (("float32", 4), ("float64", 8)):
        assert Calibration.from_times(invented(6), job_of(precision=precision), 1.0, 0.0).weight_bytes == size * learned
    frozen = Noisy(2)
    frozen.convolution.requires_grad_(False)
    some, every = (
        Calibration.from_times(invented(6), job_of(each), 1.0, 0.0).weight_bytes for each in (frozen, Noisy(2))
    )
    assert every - some == 4 * sum(p.numel() for p in frozen.convolution.parameters())


def test_calibration_restores_the_random_state() -> None:
    job = job_of(Noisy)
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    before = random_state()
    calibrate(job, seconds=0.0)
    assert same_tensors(before, random_state())


def test_an_error_needs_more_passes_than_a_line_has_numbers() -> None:
    few = Calibration.from_times(invented(4), job_of(), 1.0, 0.0)
    assert few.error is None
    assert (few.to_json()["error"], few.to_json()["passes"]) == (None, 4)
    off = invented(6)
    off.seconds[3] *= 2
    assert Calibration.from_times(off, job_of(), 1.0, 0.0).error == pytest.approx(off.error)
    assert off.error > 0


def test_a_latency_and_a_bandwidth_come_from_few_and_from_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def invented_s(comm: Comm, num_rows: int, often: int, device: torch.device) -> float:
        """10 µs, and rows of 32 numbers at 1 GB/s."""
        return 1e-5 + num_rows * 128 / 1e9

    monkeypatch.setattr(calibration, "_ring_shift_s", invented_s)
    (found, *others) = as_threads(lambda comm: calibration._measure_network(comm, torch.device("cpu")), 3)
    assert others == [found, found]
    assert found.ranks_per_host == 3
    assert found.inside == pytest.approx(1e9, rel=1e-4)
    assert found.inside_latency_s == pytest.approx(1e-5, rel=0.02)


def test_few_rows_that_somebody_held_up_do_not_make_a_link_of_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_ring_shift_s", lambda comm, rows, often, device: 1e-3 if rows > 1 else 1e-2)
    found = calibration._measure_network(SingleRankComm(), torch.device("cpu"))
    assert found.inside_latency_s == 5e-4
    assert found.inside == pytest.approx((1 << 14) * 128 / 5e-4, rel=1e-3)


def test_rows_are_passed_on_by_all_ranks_at_once() -> None:
    def work(comm: Comm) -> tuple[float, dict[str, int]]:
        seconds = calibration._ring_shift_s(comm, 5, 3, torch.device("cpu"))
        return seconds, {kind: rows for (_, kind), rows in comm.ledger.rows_sent.items()}

    for seconds, sent in as_threads(work, 3):
        assert seconds > 0
        assert sent == {"setup": 15}


def test_ranks_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_ranks(monkeypatch)
    progress = Stages()
    found, network = calibrate_concurrently(request_of(), 2, seconds=0.2, progress=progress)
    assert isinstance(found.pass_cost, LinearCost)
    assert float(found.pass_cost(1_000, 3_000, 4)) > 0
    assert float(found.time_stage_cost(1_000, 0, 4)) > 0
    assert found.step_s > 0
    assert network.ranks_per_host == 2
    assert 1e5 < network.inside < 1e12
    assert 0 < network.inside_latency_s < 10
    assert "starting 2 ranks to time them" in progress.seen
    assert "timing passes" in progress.seen
