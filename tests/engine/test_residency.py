"""Where windows are kept: wherever, runs are the same to the bit; what fits is predicted, chosen and reported."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strobe
from benchmarks.fingerprint import plan_of
from strobe.api import SERVICES
from strobe.batching import Sampled, Windows
from strobe.comm import Comm
from strobe.engine import Progress
from strobe.engine import train as engine_train
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.records.run_directory import read_lines
from strobe.engine.train import Residency, choose_residency
from strobe.errors import OptionError
from strobe.exchange import Exchange, Fetch, NoTimeExchange, Shuffle, Stale
from strobe.graph import Static
from strobe.models import MODELS
from strobe.placement import Hash
from strobe.plan import Plan
from strobe.planner import memory
from strobe.planner.memory import MemoryEstimate, predict_peak_memory
from strobe.presets import PRESETS
from strobe.view.offload import OffloadedWindows
from tests.support.ranks import as_threads
from tests.support.runs import same_tensors, small_graph, small_task

GRAPH = small_graph()
TASKS = ("regression", "link-prediction", "classification")
OFFLOAD = ("never", "always")


class Notes(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("model", "recompute", "task"),
    [
        (model, recompute, TASKS[(number + (recompute or 0)) % 3])
        for number, model in enumerate(MODELS)
        for recompute in (None, 1 + number % 2)
    ],
)
def test_offloaded_windows_change_no_bit(model: str, recompute: int | None, task: str) -> None:
    given: dict[str, Any] = {"epochs": 2, "window": 3, "recompute": recompute, "device": "cpu", "threads": 1}
    given["task"] = small_task(task)
    stay, wait = (strobe.train(GRAPH, model, offload=offload, **given) for offload in ("never", "always"))
    assert [line["loss"] for line in stay.history] == [line["loss"] for line in wait.history]
    assert stay.test == wait.test
    assert same_tensors(stay.model.state_dict(), wait.model.state_dict())
    assert wait.job.partitioned_graph.offloader is not None
    assert stay.job.partitioned_graph.offloader is None


def test_no_more_than_two_windows_are_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    there = []
    enter = OffloadedWindows.make_resident

    def entered(streamed: OffloadedWindows, *given: Any) -> None:
        enter(streamed, *given)
        there.append((streamed.device_bytes, streamed.host_bytes))

    monkeypatch.setattr(OffloadedWindows, "make_resident", entered)
    strobe.train(GRAPH, "tgcn", "regression", epochs=3, window=1, offload="always", device="cpu")
    most, waiting = (max(each) for each in zip(*there, strict=True))
    assert 0 < most < 0.4 * waiting, "two of seven windows"


def scarce(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    """A device with so much memory of its own."""
    monkeypatch.setattr(engine_train, "_DEVICES_WITH_MEMORY", ("cpu",))
    has(monkeypatch, free)


def has(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr(engine_train, "free_bytes", lambda device: int(free / engine_train._USABLE_SHARE["cpu"]))


CHANGES = {"device": "cpu", "threads": 1, "window": 3}


def job_of(watch: Progress | None = None, **changes: Any) -> Job:
    request = TrainRequest(GRAPH, "mpnn-lstm", "regression", changes=CHANGES | changes, services=SERVICES)
    return resolve(request, None, watch or Progress())


def predicted_peak(size: int | None) -> MemoryEstimate:
    return predict_peak_memory(job_of(recompute=size))


def test_windows_that_fit_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, whole = Notes(), predicted_peak(None)
    scarce(monkeypatch, whole.resident * 1.01)
    job, kept = choose_residency(job_of(notes))
    assert (job.offload, job.settings.recompute) == (False, None)
    assert not kept.offloaded
    assert kept.predicted_device_bytes == pytest.approx(whole.resident, rel=1e-3)
    (said,) = notes.said
    assert re.fullmatch(r"1.* are free on cpu, about 1.* will be taken", said)


def test_all_examples_are_cached_where_memory_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, predicted_peak(None).resident * 1.01)
    job, _ = choose_residency(job_of())
    unknown, _ = choose_residency(job_of(offload="never"))
    assert job.partitioned_graph.example_budget.left > 1e15
    assert unknown.partitioned_graph.example_budget.left < 1e15


def test_windows_that_do_not_fit_are_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, whole = Notes(), predicted_peak(None)
    assert whole.offloaded < whole.resident
    scarce(monkeypatch, whole.offloaded * 1.01)
    job, kept = choose_residency(job_of(notes))
    assert (job.offload, job.settings.recompute) == (True, None)
    assert kept.offloaded
    assert kept.predicted_device_bytes == pytest.approx(whole.offloaded, rel=1e-3)
    (said,) = notes.said
    assert "would be taken: windows wait in the host's memory, so that about" in said


def test_windows_of_which_not_even_two_fit_are_recomputed_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, halves = Notes(), predicted_peak(2)
    scarce(monkeypatch, halves.offloaded * 1.01)
    job, kept = choose_residency(job_of(notes))
    assert (job.offload, job.settings.recompute) == (True, 2)
    assert kept.predicted_device_bytes == pytest.approx(halves.offloaded, rel=1e-3)
    assert "windows wait in the host's memory and 2 snapshots are computed at a time (--recompute 2)" in notes.said[0]


def test_a_host_computes_in_segments_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    whole, ones = (predict_peak_memory(job_of(window=6, recompute=size)).resident for size in (None, 1))
    room = (whole + ones) / 2
    has(monkeypatch, room)
    job, kept = choose_residency(job_of(notes, window=6))
    size = job.settings.recompute
    assert not job.offload
    assert size is not None
    assert kept.predicted_device_bytes == pytest.approx(
        predict_peak_memory(job_of(window=6, recompute=size)).resident, rel=1e-3
    )
    assert predict_peak_memory(job_of(window=6, recompute=size)).resident <= room < whole
    assert re.search(rf"would be taken: {size} snapshots? .*--recompute {size}\), so that about", notes.said[0])


def test_a_host_with_too_little_memory_gets_a_note_and_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    has(monkeypatch, predicted_peak(1).resident * 0.9)
    job, kept = choose_residency(job_of(notes))
    assert (job.offload, job.settings.recompute) == (False, None)
    assert kept.predicted_device_bytes == pytest.approx(predicted_peak(None).resident, rel=1e-3)
    assert re.match(r"training takes at least .* are free: .*--window 1.*--hidden.*--ranks", notes.said[0])


def test_what_does_not_fit_at_all_is_refused_with_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, predicted_peak(1).offloaded * 0.9)
    with pytest.raises(OptionError, match=r"takes at least .* are free: .*--window 1.*--hidden.*--ranks"):
        choose_residency(job_of())


def test_an_explicit_recompute_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, predicted_peak(2).offloaded * 0.9)
    with pytest.raises(OptionError, match="takes at least"):
        choose_residency(job_of(recompute=2))


def test_what_fits_easily_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    scarce(monkeypatch, 1e12)
    assert choose_residency(job_of(notes))[1] == Residency()
    assert not notes.said


def test_a_run_that_cannot_be_estimated_is_trained_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.full(GRAPH.num_nodes, -1)
    labels[[3, 17, 25, 31]] = 0, 1, 0, 1
    graph = GRAPH.with_labels(Static(labels))
    has(monkeypatch, 1)
    monkeypatch.setitem(memory.MIN_NODES, "cpu", 4)  # too few to train, validate and test
    notes = Notes()
    run = strobe.train(graph, "tgcn", "classification", epochs=1, device="cpu", progress=notes)
    assert len(run.history) == 1
    assert any(said.startswith("memory cannot be estimated: ") for said in notes.said)


def test_an_explicit_offload_skips_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, 1)
    assert choose_residency(job_of(offload="never"))[1] == Residency()


def test_a_run_records_its_residency_and_resumes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = predicted_peak(2)
    scarce(monkeypatch, halves.offloaded * 1.01)
    given: dict[str, Any] = {"device": "cpu", "threads": 1, "window": 3}
    GRAPH.save(tmp_path / "graph")
    there = tmp_path / "run"
    strobe.train(tmp_path / "graph", "mpnn-lstm", "regression", epochs=2, out=there, **given)
    (line,) = (line for line in read_lines(there) if line["event"] == "prepared")
    assert line["offloaded"]
    assert line["predicted_device_bytes"] == pytest.approx(halves.offloaded, rel=1e-3)
    run = strobe.train(None, None, out=there, resume=True, epochs=4)
    stays = strobe.train(GRAPH, "mpnn-lstm", "regression", epochs=4, offload="never", recompute=2, **given)
    assert same_tensors(run.model.state_dict(), stays.model.state_dict())


@pytest.mark.parametrize("least", [0, 1])
def test_ranks_agree_on_what_fits_the_one_with_least_memory(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(free: float) -> list[tuple[Job, Residency]]:
        monkeypatch.setattr(engine_train, "_DEVICES_WITH_MEMORY", ("cpu",))
        rooms = dict(zip(("rank 0", "rank 1"), (free, 1e12) if least == 0 else (1e12, free), strict=True))

        def free_bytes(device: Any) -> int:
            return int(rooms[f"rank {mine.rank}"] / engine_train._USABLE_SHARE["cpu"])

        mine = threading.local()
        monkeypatch.setattr(engine_train, "free_bytes", free_bytes)

        def choose(comm: Comm) -> tuple[Job, Residency]:
            mine.rank = comm.rank
            request = TrainRequest(GRAPH, "mpnn-lstm", "regression", changes=CHANGES, services=SERVICES, plan="pss")
            return choose_residency(resolve(request, None, Progress(), comm))

        return as_threads(choose, 2)

    whole = predicted_peak(None).of_rank(2)
    for free, offload in ((whole.resident * 1.003, False), (whole.offloaded * 1.003, True)):
        (first, kept), (second, same) = ranks(free)
        assert kept == same
        assert (kept.offloaded, first.offload, second.offload) == (offload, offload, offload)
        assert kept.predicted_device_bytes == pytest.approx(whole.offloaded if offload else whole.resident, rel=1e-2)
    (first, _), (second, _) = ranks(predicted_peak(2).of_rank(2).offloaded * 1.01)
    assert first.settings.recompute == second.settings.recompute == 2


def test_offloading_needs_cached_windows() -> None:
    plan = Plan(batching=Sampled(history=2, size=8), exchange=Exchange(structure=Fetch(), time=NoTimeExchange()))
    with pytest.raises(OptionError, match="makes them when they are needed"):
        strobe.train(GRAPH, "tgcn", "regression", epochs=1, offload="always", device="cpu", plan=plan)


STALE = Plan(
    placement=Hash(), batching=Windows(size=2), exchange=Exchange(structure=Stale(threshold=0.3), time=Shuffle())
)


@pytest.mark.parametrize(
    "plan", [STALE, *(plan_of(name) for name in PRESETS if plan_of(name).batching.caches_windows)], ids=str
)
def test_offloaded_windows_of_ranks_change_no_bit(plan: Plan, ranks_are_threads: None) -> None:
    given: dict[str, Any] = {"epochs": 3, "device": "cpu", "threads": 1, "plan": plan, "ranks": 2}
    if plan.batching.name == "full":
        given["window"] = 2
    stay, wait = (strobe.train(GRAPH, "mpnn-lstm", "regression", offload=offload, **given) for offload in OFFLOAD)
    assert [line["loss"] for line in stay.history] == [line["loss"] for line in wait.history]
    assert stay.test == wait.test
    assert same_tensors(stay.model.state_dict(), wait.model.state_dict())
