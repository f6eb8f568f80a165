"""The training loop, on ten-line fakes of the contracts it is written against."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from strobe.batching.base import EpochPolicy, EpochResult, Event, StepResult, StepSource
from strobe.comm import SingleRankComm
from strobe.engine import fit as fit_module
from strobe.engine.checkpoint.store import TrainState
from strobe.engine.context import ExchangeSession, RunContext
from strobe.engine.evaluation.evaluate import Evaluator
from strobe.engine.examples import LocalExamples
from strobe.engine.fit import fit, train_epoch
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import RunRecord
from strobe.engine.settings import DivergedError, Settings
from strobe.engine.windows import Segment, Window
from strobe.graph import DynamicGraph
from strobe.schedule.base import Pacer, Totals
from strobe.sync import GradientSync
from strobe.sync.base import Optimizer
from strobe.tasks.base import Examples
from strobe.view import View, WindowData
from tests.support.runs import small_graph

STEPS = 3


class Source(StepSource):
    """Every step trains the cells of one snapshot."""

    steps_per_epoch = STEPS
    validation_windows: Iterable[Any] = ()

    def __init__(self, graph: DynamicGraph, calls: list[str]) -> None:
        self.windows, self.calls = [one_snapshot(graph, t) for t in range(STEPS)], calls
        self.observed: list[StepResult] = []

    def start(self) -> None:
        self.calls.append("start")

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        for number, window in enumerate(self.windows):
            if pacer.more(number, STEPS):
                yield {number: window}

    def observe(self, result: StepResult, pacer: Pacer) -> None:
        self.observed.append(result)

    def end_epoch(self, batch_spans: Any) -> list[Event]:
        return [Event("changed", {"steps": STEPS}, "steps have changed")]

    def close(self) -> None:
        self.calls.append("close source")


class FakePacer(Pacer):
    """One rank, at most ``limit`` steps an epoch, ``examples`` in each (None: as many as there are)."""

    def __init__(self, limit: int = STEPS, examples: float | None = None) -> None:
        self.limit, self.examples = limit, examples

    def count(self, num_examples: int) -> float:
        return num_examples if self.examples is None else self.examples

    def loss(self, value: Tensor | float) -> float:
        return float(value)

    def more(self, step: int, planned: int) -> bool:
        return step < min(planned, self.limit)

    def publish(self, choice: int) -> int:
        return choice

    def after_step(self, model: nn.Module) -> None:
        raise AssertionError("ranks share cells")

    def end_epoch(self, totals: Totals, model: nn.Module) -> Totals:
        return totals


class Sync(GradientSync):
    """Logs when gradients are synchronized, and does nothing to them."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def begin_backward(self, last: bool = True) -> None:
        self.calls.append("backward" if last else "part")

    def end_backward(self) -> None:
        self.calls.append("synchronize")

    def after_step(self) -> None:
        self.calls.append("step")

    def skip_step(self) -> None:
        self.calls.append("skip")

    def close(self) -> None:
        self.calls.append("close sync")


class FakeEvaluator(Evaluator):
    """Validation scores that are known beforehand, one an epoch."""

    def __init__(self, state: TrainState, scores: Iterable[float], calls: list[str]) -> None:
        self._state, self._scores, self._calls = state, iter(scores), calls

    def after_epoch(self, result: EpochResult) -> dict[str, Any]:
        self._calls.append("evaluate")
        self._state.record_metric(value := next(self._scores), higher_is_better=False)
        return {"validation": {"mse": value}}

    def finish(self) -> None:
        self._calls.append("finish")

    def close(self) -> None:
        self._calls.append("close evaluator")


class Record(RunRecord):
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.saved: list[int] = []
        self.events: list[str] = []

    def epoch(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def event(self, event: str, **values: Any) -> None:
        self.events.append(event)

    def is_due(self, *, now: bool = False) -> bool:
        return now

    def save(self, state: TrainState) -> None:
        self.saved.append(state.epoch)


class Linear(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 1)

    def forward(self, view: View) -> Tensor:
        found: Tensor = self.linear(view.x)
        return found


class Identity(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return z


def squared_error(predictions: Tensor, examples: Examples) -> Tensor:
    return (predictions - examples.labels).square().sum()


def one_snapshot(graph: DynamicGraph, t: int) -> Window:
    data = WindowData(graph[t : t + 1])
    examples = LocalExamples(Examples(None, torch.full((data.num_cells, 1), float(t))), None)
    return (Segment(range(t, t + 1), data, examples_fn=lambda: examples),)


def make_run(pacer: Pacer | None = None, scores: Iterable[float] | None = None, **settings: Any) -> Any:
    """A run on one rank. Its ``calls`` are those of all fakes, in order."""
    graph, calls = small_graph(), list[str]()
    source = Source(graph, calls)
    torch.manual_seed(0)
    model, head = Linear(source.windows[0][0].data.x.shape[1]), Identity()
    state = TrainState(model, head, SGD(model.parameters(), lr=0.01))
    split = SimpleNamespace(train=range(STEPS))
    problem = SimpleNamespace(
        split=split, loss=squared_error, metric="mse", resamples_each_epoch=False, is_edge_level=False
    )
    comm, record = SingleRankComm(), Record()
    job: Any = SimpleNamespace(
        comm=comm, problem=problem, device=torch.device("cpu"), settings=Settings(**{"epochs": 2} | settings)
    )
    session, known = ExchangeSession(comm, source.local_partitions), scores or range(100, 0, -1)
    evaluator = FakeEvaluator(state, known, calls)
    run: Any = RunContext(job, state, source, Sync(calls), pacer or FakePacer(), session, evaluator, record, Progress())
    run.calls = calls
    return run


def plain_training(run: RunContext, epochs: int) -> list[float]:
    """The same steps in five lines of PyTorch."""
    model: Any = run.state.model
    optimizer: Optimizer = run.state.optimizer
    losses = []
    for _ in range(epochs):
        total = count = 0.0
        for (segment,) in run.source.windows:  # type: ignore[attr-defined]
            target = torch.full((segment.data.num_cells, 1), float(segment.times[0]))
            loss = (model.linear(segment.data.x) - target).square().sum()
            (loss / len(target)).backward()
            optimizer.step()
            optimizer.zero_grad()
            total, count = total + float(loss.detach()), count + len(target)
        losses.append(total / count)
    return losses


def test_fit_takes_the_steps_of_plain_pytorch() -> None:
    run, plain = make_run(), make_run()
    fit(run)
    losses = plain_training(plain, 2)
    assert [line["loss"] for line in run.record.lines] == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(run.state.model.state_dict(), plain.state.model.state_dict())
    assert [line["step"] for line in run.record.lines] == [STEPS, 2 * STEPS]
    assert [each.num_examples for each in run.source.observed[:STEPS]] == [
        segment.data.num_cells for (segment,) in run.source.windows
    ]


def test_an_epoch_is_trained_evaluated_logged_and_the_end_is_saved() -> None:
    run = make_run()
    fit(run)
    epoch = [*["backward", "synchronize", "step"] * STEPS, "evaluate"]
    assert run.calls == ["start", *epoch * 2, "finish", "close sync", "close evaluator", "close source"]
    assert run.record.saved == [2]
    assert run.record.events == ["changed", "changed"]
    assert [line["validation"] for line in run.record.lines] == [{"mse": 100}, {"mse": 99}]


def test_a_step_of_several_batches_is_one_optimizer_step() -> None:
    run = make_run()
    run.source.epoch = lambda epoch, pacer: iter([dict(enumerate(run.source.windows))])
    train_epoch(run)
    assert run.calls == ["part", "part", "backward", "synchronize", "step"]


def test_a_rank_takes_as_many_steps_as_its_pacer_lets_it() -> None:
    run = make_run(FakePacer(limit=1))
    assert train_epoch(run).num_steps == 1
    assert run.calls.count("step") == 1


def test_a_step_without_examples_changes_no_weight() -> None:
    run = make_run(FakePacer(examples=0))
    before = run.state.model.linear.weight.clone()
    assert train_epoch(run) == EpochResult(STEPS, 0.0)
    assert run.calls == ["skip"] * STEPS
    assert torch.equal(run.state.model.linear.weight, before)


def test_patience_ends_training() -> None:
    run = make_run(scores=[3, 2, 2, 4, 1, 0], epochs=6, patience=2)
    fit(run)
    assert (run.state.epoch, run.state.best_epoch) == (4, 2)
    assert run.record.saved == [4]


def test_a_policy_decides_how_often_an_epoch_is_trained() -> None:
    class Twice(EpochPolicy):
        def run(self, train_epoch: Any) -> EpochResult:
            train_epoch()
            result: EpochResult = train_epoch()
            return result

        def log(self) -> dict[str, Any]:
            return {"passes": 2}

    run, plain = make_run(epochs=1), make_run()
    run.policy = Twice()
    fit(run)
    (line,) = run.record.lines
    assert (line["passes"], line["step"]) == (2, STEPS)
    assert line["loss"] == pytest.approx(plain_training(plain, 2)[-1], rel=1e-6)


@pytest.mark.parametrize("what", ["loss", "weight"])
def test_what_is_no_number_ends_the_run_and_releases_everything(what: str) -> None:
    run = make_run()
    if what == "loss":
        run.problem.loss = lambda predictions, examples: predictions.sum() * float("inf")
    else:
        run.sync.after_step = lambda: run.state.model.linear.bias.data.fill_(float("nan"))
        run.source.windows = run.source.windows[:1]
    with pytest.raises(DivergedError, match=what):
        fit(run)
    assert run.calls[-2:] == ["close evaluator", "close source"]
    assert not run.record.saved


MECHANISMS = {
    *("drawn", "sliding", "sampled", "decay", "tuning", "judging", "agrees", "follows", "at_hand", "relay", "stale"),
    *("reservoir", "trapezoid"),
}


def test_the_loop_is_short_and_names_no_mechanism() -> None:
    source = Path(fit_module.__file__ or "").read_text()
    assert len(source.splitlines()) <= 120
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        fields = (getattr(node, name, None) for name in ("id", "attr", "arg", "name", "asname", "module"))
        names |= {name.lower() for name in fields if isinstance(name, str)}
    assert {"run", "evaluator", "strobe.engine.context"} <= names
    assert not [name for name in names if any(each in name for each in MECHANISMS)]
