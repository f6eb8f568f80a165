"""Whether batches fit, known before one runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from strobe.engine.job import Given, Job, choose
from strobe.engine.machine import free_bytes
from strobe.engine.progress import Progress
from strobe.errors import OptionError
from strobe.graph.synthetic import Social
from strobe.models import MODELS
from strobe.numbers import file_size
from strobe.planner import batch_memory
from strobe.planner.batch_memory import at_most, check_memory, predicted_bytes
from strobe.planner.pass_times import part_sizes, pass_bytes

GROWING = Social(nodes=600, snapshots=14, edges=4_000, start=0.1, communities=4, seed=1).write()


def job_of(model: str = "tgcn", plan: str = "psg", hidden: int = 32, **changes: Any) -> Job:
    chosen = {"threads": 1, "device": "cpu"} | changes
    return choose(Given(GROWING, model, "regression", {"hidden": hidden}, None, chosen, None, plan), None, Progress())


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The parts that a pass was run over."""
    run: list[Any] = []

    def noted(job: Job, part: Any) -> int:
        run.append(part)
        return pass_bytes(job, part)

    monkeypatch.setattr(batch_memory, "pass_bytes", noted)
    return run


def has(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr(batch_memory, "free_bytes", lambda device: int(free))


@pytest.mark.parametrize("model", ["tgcn", "mpnn-lstm", "gat-lstm"])
@pytest.mark.parametrize("recompute", [None, 2])
def test_the_largest_batch_takes_about_what_was_said(model: str, recompute: int | None, passes: list[Any]) -> None:
    job = job_of(model, recompute=recompute)
    said = predicted_bytes(job)
    sizes = [part_sizes(job.problem.graph, batch)[0] for batch in job.batches]
    assert max(sizes) > 3 * np.median(sizes[:4]), "the graph grows"
    largest = int(np.argmax(sizes))
    assert int(said.argmax()) == largest
    assert len(passes) == 2
    assert job.batches[largest] not in passes, "a batch that may not fit is not run"
    assert said[largest] == pytest.approx(pass_bytes(job, job.batches[largest]), rel=0.25)


def test_a_batch_that_does_not_fit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of()
    most = predicted_bytes(job).max()
    has(monkeypatch, most * 0.9)
    last = job.batches[int(predicted_bytes(job).argmax())].times
    with pytest.raises(OptionError) as error:
        check_memory(job)
    told = str(error.value)
    times = job.problem.graph.times
    assert f"snapshots {times[last.start]} to {times[last.stop - 1]} " in told
    for size in (most, most * 0.9):
        assert file_size(int(size)) in told
    for way in (f"--window {len(last) // 2}", "--recompute 1", "--plan relay"):
        assert way in told


def test_what_fits_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch, passes: list[Any]) -> None:
    job = job_of()
    has(monkeypatch, predicted_bytes(job).max() * 1.1)
    passes.clear()
    check_memory(job)
    assert passes, "it was close, so it was looked at"


def test_what_fits_easily_costs_no_pass(monkeypatch: pytest.MonkeyPatch, passes: list[Any]) -> None:
    job = job_of()
    has(monkeypatch, 1e12)
    check_memory(job)
    assert not passes


def test_batches_that_ranks_share_are_not_looked_at(monkeypatch: pytest.MonkeyPatch, passes: list[Any]) -> None:
    has(monkeypatch, 1)
    check_memory(job_of(plan="relay"))
    assert not passes


@pytest.mark.parametrize("model", [name for name in MODELS if name != "evolvegcn-h"])  # its sparse rows are not counted
@pytest.mark.parametrize("hidden", [8, 32, 128])
def test_models_stay_below_what_is_taken_for_granted(model: str, hidden: int) -> None:
    job = job_of(model, hidden=hidden)
    assert pass_bytes(job, job.batches[-1]) < at_most(job)[-1]


def test_ranks_of_a_machine_share_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = free_bytes(torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 0 < free_bytes(torch.device("cpu")) < 0.5 * alone
