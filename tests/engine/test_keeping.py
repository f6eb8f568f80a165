"""Where windows are kept: wherever, runs are the same to the bit; what fits is foretold, chosen and said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strobe
from strobe.batching import Sampled
from strobe.engine import Progress, keeping
from strobe.engine.job import Given, Job, choose
from strobe.engine.keeping import Kept, settle
from strobe.engine.record import read_lines
from strobe.errors import OptionError
from strobe.exchange import Exchange, Fetch, Stay
from strobe.graph import Static
from strobe.models import MODELS
from strobe.plan import Plan
from strobe.planner import device_memory
from strobe.planner.device_memory import Foretold, foretold
from strobe.view.streamed import Streamed
from tests.engine.runs import same_tensors, small_graph

GRAPH = small_graph()
TASKS = ("regression", "link-prediction", "classification")


class Notes(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("recompute", [None, 1, 2])
@pytest.mark.parametrize(("number", "model"), list(enumerate(MODELS)))
def test_windows_that_wait_beside_the_device_change_no_bit(number: int, model: str, recompute: int | None) -> None:
    given: dict[str, Any] = {"epochs": 3, "window": 3, "recompute": recompute, "device": "cpu", "threads": 1}
    task = TASKS[(number + (recompute or 0)) % 3]
    stay, wait = (strobe.train(GRAPH, model, task, keep=keep, **given) for keep in ("device", "host"))
    assert [line["loss"] for line in stay.history] == [line["loss"] for line in wait.history]
    assert stay.test == wait.test
    assert same_tensors(stay.model.state_dict(), wait.model.state_dict())
    assert wait.job.sharing.streamed is not None
    assert stay.job.sharing.streamed is None


def test_no_more_than_two_windows_are_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    there = []
    enter = Streamed.enter

    def entered(streamed: Streamed, *given: Any) -> None:
        enter(streamed, *given)
        there.append((streamed.device_bytes, streamed.host_bytes))

    monkeypatch.setattr(Streamed, "enter", entered)
    strobe.train(GRAPH, "tgcn", "regression", epochs=3, window=1, keep="host", device="cpu")
    most, waiting = (max(each) for each in zip(*there, strict=True))
    assert 0 < most < 0.4 * waiting, "two of seven windows"


def scarce(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    """A device with so much memory of its own."""
    monkeypatch.setattr(keeping, "_OWN_MEMORY", ("cpu",))
    has(monkeypatch, free)


def has(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr(keeping, "free_bytes", lambda device: int(free / keeping._ROOM["cpu"]))


def job_of(watch: Progress | None = None, **changes: Any) -> Job:
    chosen = {"device": "cpu", "threads": 1, "window": 3} | changes
    return choose(Given(GRAPH, "mpnn-lstm", "regression", None, None, chosen), None, watch or Progress())


def foretold_in(size: int | None) -> Foretold:
    return foretold(job_of(recompute=size))


def test_windows_that_fit_stay_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, whole = Notes(), foretold_in(None)
    scarce(monkeypatch, whole.resident * 1.01)
    job, kept = settle(job_of(notes))
    assert (job.streams, job.settings.recompute) == (False, None)
    assert not kept.streamed
    assert kept.foretold_bytes == pytest.approx(whole.resident, rel=1e-3)
    (said,) = notes.said
    assert re.fullmatch(r"1.* are free on cpu, about 1.* will be taken", said)


def test_of_what_is_known_to_fit_all_examples_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, foretold_in(None).resident * 1.01)
    job, _ = settle(job_of())
    unknown, _ = settle(job_of(keep="device"))
    assert job.sharing.room.left > 1e15
    assert unknown.sharing.room.left < 1e15


def test_windows_that_do_not_fit_wait_in_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, whole = Notes(), foretold_in(None)
    assert whole.streamed < whole.resident
    scarce(monkeypatch, whole.streamed * 1.01)
    job, kept = settle(job_of(notes))
    assert (job.streams, job.settings.recompute) == (True, None)
    assert kept.streamed
    assert kept.foretold_bytes == pytest.approx(whole.streamed, rel=1e-3)
    (said,) = notes.said
    assert "would be taken: windows wait in the host's memory, so that about" in said


def test_windows_of_which_not_even_two_fit_are_computed_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, halves = Notes(), foretold_in(2)
    scarce(monkeypatch, halves.streamed * 1.01)
    job, kept = settle(job_of(notes))
    assert (job.streams, job.settings.recompute) == (True, 2)
    assert kept.foretold_bytes == pytest.approx(halves.streamed, rel=1e-3)
    assert "windows wait in the host's memory and 2 snapshots are computed at a time (--recompute 2)" in notes.said[0]


def test_a_host_computes_in_segments_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    whole, ones = (foretold(job_of(window=6, recompute=size)).resident for size in (None, 1))
    room = (whole + ones) / 2
    has(monkeypatch, room)
    job, kept = settle(job_of(notes, window=6))
    size = job.settings.recompute
    assert not job.streams
    assert size is not None
    assert kept.foretold_bytes == pytest.approx(foretold(job_of(window=6, recompute=size)).resident, rel=1e-3)
    assert foretold(job_of(window=6, recompute=size)).resident <= room < whole
    assert re.search(rf"would be taken: {size} snapshots? .*--recompute {size}\), so that about", notes.said[0])


def test_a_host_that_has_too_little_is_told_and_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    has(monkeypatch, foretold_in(1).resident * 0.9)
    job, kept = settle(job_of(notes))
    assert (job.streams, job.settings.recompute) == (False, None)
    assert kept.foretold_bytes == pytest.approx(foretold_in(None).resident, rel=1e-3)
    assert re.match(r"training takes at least .* are free: .*--window 1.*--hidden.*--ranks", notes.said[0])


def test_what_does_not_fit_at_all_is_refused_with_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, foretold_in(1).streamed * 0.9)
    with pytest.raises(OptionError, match=r"takes at least .* are free: .*--window 1.*--hidden.*--ranks"):
        settle(job_of())


def test_segments_that_were_asked_for_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, foretold_in(2).streamed * 0.9)
    with pytest.raises(OptionError, match="takes at least"):
        settle(job_of(recompute=2))


def test_what_fits_easily_is_neither_tried_nor_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    scarce(monkeypatch, 1e12)
    assert settle(job_of(notes))[1] == Kept()
    assert not notes.said


def test_a_run_of_which_nothing_can_be_foretold_is_trained_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.full(GRAPH.num_nodes, -1)
    labels[[3, 17, 25, 31]] = 0, 1, 0, 1
    graph = GRAPH.with_labels(Static(labels))
    has(monkeypatch, 1)
    monkeypatch.setitem(device_memory.NODES, "cpu", 4)  # too few to train, validate and test
    notes = Notes()
    run = strobe.train(graph, "tgcn", "classification", epochs=1, device="cpu", progress=notes)
    assert len(run.history) == 1
    assert any(said.startswith("how much memory it takes cannot be foretold: ") for said in notes.said)


def test_who_says_where_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, 1)
    assert settle(job_of(keep="device"))[1] == Kept()


def test_a_run_says_what_was_foretold_and_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = foretold_in(2)
    scarce(monkeypatch, halves.streamed * 1.01)
    given: dict[str, Any] = {"device": "cpu", "threads": 1, "window": 3}
    GRAPH.save(tmp_path / "graph")
    there = tmp_path / "run"
    strobe.train(tmp_path / "graph", "mpnn-lstm", "regression", epochs=2, out=there, **given)
    (line,) = (line for line in read_lines(there) if line["event"] == "prepared")
    assert line["streamed"]
    assert line["foretold_bytes"] == pytest.approx(halves.streamed, rel=1e-3)
    run = strobe.train(None, None, out=there, resume=True, epochs=4)
    stays = strobe.train(GRAPH, "mpnn-lstm", "regression", epochs=4, keep="device", recompute=2, **given)
    assert same_tensors(run.model.state_dict(), stays.model.state_dict())


def test_windows_of_several_ranks_and_windows_that_nobody_keeps_cannot_wait() -> None:
    with pytest.raises(OptionError, match="one rank has all windows"):
        strobe.train(GRAPH, "tgcn", "regression", epochs=1, keep="host", device="cpu", ranks=2)
    plan = Plan(batching=Sampled(history=2, size=8), exchange=Exchange(structure=Fetch(), time=Stay()))
    with pytest.raises(OptionError, match="makes them when they are needed"):
        strobe.train(GRAPH, "tgcn", "regression", epochs=1, keep="host", device="cpu", plan=plan)
