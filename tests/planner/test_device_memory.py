"""What training takes of a device, known from graphs that are smaller."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import strobe
from strobe.engine.job import Given, Job, choose
from strobe.engine.progress import Progress
from strobe.engine.scheduling import batch_loads
from strobe.graph.synthetic import Growth, Social
from strobe.ops.allocation import peak_bytes_of
from strobe.planner.device_memory import foretold
from strobe.planner.pass_times import pass_bytes

GRAPH = Social(nodes=6_000, snapshots=10, edges=24_000, away=0.2, communities=4, seed=1).write()


def job_of(model: str, task: str, **changes: Any) -> Job:
    chosen = {"threads": 1, "device": "cpu", "window": 4} | changes
    return choose(Given(GRAPH, model, task, None, None, chosen), None, Progress())


@pytest.mark.parametrize(
    ("model", "task", "recompute"),
    [
        ("tgcn", "regression", None),
        ("tgcn", "link-prediction", 2),
        ("mpnn-lstm", "regression", 2),
        ("gat-lstm", "link-prediction", None),
        ("evolvegcn-o", "regression", None),
    ],
)
def test_a_pass_takes_within_a_tenth_of_what_was_said(model: str, task: str, recompute: int | None) -> None:
    job = job_of(model, task, recompute=recompute)
    said = foretold(job, nodes=2_400)
    largest = job.batches[int(batch_loads(job.problem.graph, job.batches).argmax())]
    segments = 1 if recompute is None else 2
    taken = pass_bytes(job, largest)
    assert said.segment * segments + said.working == pytest.approx(taken, rel=0.1)
    assert said.kept > said.segment * segments, "there is more than one window"
    computed = max(said.working, said.scoring)
    assert said.resident - said.weights - computed == said.kept
    assert said.streamed - said.weights - computed == 2 * said.segment


@pytest.mark.parametrize(
    ("model", "recompute"), [("tgcn", 2), ("gat-lstm", None), ("evolvegcn-o", None), ("mpnn-lstm", 2)]
)
def test_a_run_on_a_graph_that_grows_takes_within_a_tenth_of_what_was_said(model: str, recompute: int | None) -> None:
    """Its test snapshots are much larger than those it learns from: of EvolveGCN, scoring takes most."""
    graph = Growth(nodes=3_000, snapshots=16, edges=6_000, ratio=8.0, curve="exponential", noise=0.0, seed=1).write()
    given: dict[str, Any] = {"threads": 1, "device": "cpu", "window": 4, "keep": "device", "epochs": 1}
    given["recompute"] = recompute
    said = foretold(choose(Given(graph, model, "regression", None, None, given), None, Progress()), nodes=2_400)
    taken = peak_bytes_of(lambda: strobe.train(graph, model, "regression", **given), torch.device("cpu"))
    assert said.resident == pytest.approx(taken, rel=0.1)
    if model == "evolvegcn-o":
        assert said.scoring > 1.2 * said.working


def test_less_is_kept_of_segments() -> None:
    whole, each = (foretold(job_of("mpnn-lstm", "regression", recompute=size), nodes=600) for size in (None, 1))
    assert each.working < 0.8 * whole.working
    assert each.segment < 0.3 * whole.segment
    assert each.kept == pytest.approx(whole.kept, rel=0.02)


def test_what_is_carried_on_from_window_to_window_counts() -> None:
    """Attention over time sees all that was before: the second window takes more than the first."""
    fresh, second = (foretold(job_of("dysat", "regression", window=size), nodes=600).working for size in (7, 4))
    assert second > 0.8 * fresh, "of four snapshots that see those before, and of seven that see none"


def test_adam_keeps_two_numbers_of_every_weight() -> None:
    adam, sgd = (foretold(job_of("tgcn", "regression", optimiser=name), nodes=100) for name in ("adam", "sgd"))
    assert adam.weights == 3 * sgd.weights > 0


def test_neither_the_job_nor_its_random_numbers_notice() -> None:
    job = job_of("tgcn", "regression")
    first, _ = job.make()
    foretold(job, nodes=100)
    second, _ = job.make()
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
