"""Comparison of plans: a few epochs of equal work by each, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from os import PathLike
from statistics import median
from typing import Any

from torch import nn

from strobe.api import train
from strobe.comm.launch.environment import Backend, is_launched_rank
from strobe.comm.launch.failure import RankError
from strobe.comm.ledger import merge_ledgers
from strobe.comm.ledger_stats import imbalance, mean_rank_stats, sent_by_kind
from strobe.comm.process_group import DEADLINE_S
from strobe.engine.inputs.graph_source import GraphLike, open_graph_source
from strobe.engine.inputs.model_choice import ModelLike, choose_model, choose_task
from strobe.engine.launch.processes import LaunchConfig
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.settings import Settings
from strobe.errors import OptionError, StrobeError
from strobe.io.temporary import TemporaryFolder
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import Task

EPOCHS = 5
OnPlan = Callable[[str, int, int], None]
"""Called before each plan with its name, its number from 1 and the number of plans."""


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """Costs of a mean epoch after the first by one plan. If the plan could not run, only ``reason`` is set.

    Attributes:
        sent: bytes of all ranks by kind.
        compute_imbalance: computing seconds of the slowest rank, relative to the fastest; None if a rank has none.
        work_imbalance: as above, of cells and arcs.
        exposed_share: fraction of the ranks' time spent waiting for rows, states or gradients.
        memory_bytes: peak of the rank with the most, on a GPU of its device.
        loss: mean training loss of the last epoch.
        loss_difference: ``loss`` minus that of the first plan.
        only_profiled: all epochs passed before the plan's schedule had measured its batches.
    """

    name: str
    plan: Plan
    reason: str | None = None
    steps: int | None = None
    epoch_s: float | None = None
    sent: dict[str, float] = field(default_factory=dict)
    compute_imbalance: float | None = None
    work_imbalance: float | None = None
    exposed_share: float | None = None
    memory_bytes: int | None = None
    loss: float | None = None
    loss_difference: float | None = None
    only_profiled: bool = False

    @property
    def sent_bytes(self) -> float:
        return sum(self.sent.values())

    def to_json(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"plan": self.plan.to_json(), "sent_bytes": self.sent_bytes}


def compare(
    graph: GraphLike,
    model: ModelLike = "tgcn",
    task: str | Task | None = None,
    *,
    plans: Sequence[str | Plan] | Mapping[str, Plan],
    ranks: int = 2,
    epochs: int = EPOCHS,
    deadline_s: float = DEADLINE_S,
    backend: Backend = "auto",
    model_options: Mapping[str, Any] | None = None,
    data_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    on_plan: OnPlan | None = None,
    on_result: Callable[[PlanResult], None] | None = None,
    **settings: Any,
) -> list[PlanResult]:
    """Train a few epochs by each plan, with equal seed, model, task and settings, and without evaluation.

    Nothing is kept on disk. A plan that does not fit or fails is in the result with its reason.

    Args:
        graph, model, task, model_options, data_dir, deadline_s, backend: as for ``train``.
        plans: names of presets or plans, or a mapping of names to plans.
        ranks: number of processes on this machine.
        epochs: to train by each plan.
        on_plan: called before each plan.
        on_result: called after each plan, with its result without ``loss_difference``.
        settings: fields of ``Settings``: lr, window, seed, device, ….

    Returns:
        A result per plan, in the order of ``plans``.

    Raises:
        OptionError: an option is wrong for every plan.
    """
    progress = Progress() if progress is None else progress
    named = _named_plans(plans)
    _check(model, settings, epochs)
    launch = LaunchConfig(ranks, deadline_s, backend=backend)
    common: dict[str, Any] = {"epochs": epochs, "patience": 0, "evaluate_every": epochs + 1, **settings}
    common |= {"model_options": model_options, "progress": progress}
    common |= {"cache": False}  # what the first plan computes would cost later ones nothing
    common |= {"ranks": launch.ranks, "deadline_s": launch.deadline_s, "backend": launch.backend}
    results: list[PlanResult] = []
    with _open_inputs(graph, model, task, model_options, data_dir, progress) as (path, chosen):
        for number, (name, plan) in enumerate(named, 1):
            if on_plan is not None:
                on_plan(name, number, len(named))
            results.append(_run_plan(name, plan, partial(train, path, model, chosen, plan=plan, **common)))
            if on_result is not None:
                on_result(results[-1])
    return add_loss_differences(results)


def _run_plan(name: str, plan: Plan, run: Callable[[], Run]) -> PlanResult:
    try:
        done = run()
    except StrobeError as error:
        text = str(error)
        return PlanResult(name=name, plan=plan, reason=text.splitlines()[0] if isinstance(error, RankError) else text)
    return measure_run(name, done.job.plan, done)  # the resolved plan


def measure_run(name: str, plan: Plan, run: Run) -> PlanResult:
    """Compute the costs of a plan from the history of a run.

    Skips the first epoch, which warms up, and epochs that only profiled batches, unless there are no others.
    """
    lines = [line for line in run.history[1:] if "profiled" not in line] or run.history[1:] or run.history
    ranks = [merge_ledgers(list(each)) for each in zip(*(line.get("ranks", []) for line in lines), strict=True)]
    stats = [mean_rank_stats(rank, len(lines)) for rank in ranks]
    exposed_s, total_s = (sum(getattr(rank, name) for rank in stats) for name in ("exposed_comm_s", "seconds"))
    memory = [each for line in run.history for each in line.get("ranks", [line])]
    return PlanResult(
        name=name,
        plan=plan,
        steps=lines[-1]["step"] - (run.history[-2]["step"] if len(run.history) > 1 else 0),
        epoch_s=median(line["train_s"] for line in lines),
        sent=sent_by_kind(ranks, len(lines)),
        compute_imbalance=imbalance([rank.computing_s for rank in stats]),
        work_imbalance=imbalance([rank.work for rank in stats]),
        exposed_share=exposed_s / total_s if stats else None,
        memory_bytes=max(each.get("device_bytes") or each["memory_bytes"] for each in memory),
        loss=run.history[-1]["loss"],
        only_profiled=all("profiled" in line for line in lines),
    )


def add_loss_differences(results: Sequence[PlanResult]) -> list[PlanResult]:
    """Set ``loss_difference`` relative to the first plan that ran."""
    first = next((each.loss for each in results if each.loss is not None), None)
    return [
        each if each.loss is None or first is None else replace(each, loss_difference=each.loss - first)
        for each in results
    ]


def sort_by_epoch_time(results: Sequence[PlanResult]) -> list[PlanResult]:
    """Return the plans that ran, fastest epoch first."""
    return sorted((each for each in results if each.epoch_s is not None), key=lambda each: each.epoch_s or 0.0)


def _named_plans(plans: Sequence[str | Plan] | Mapping[str, Plan]) -> list[tuple[str, Plan]]:
    if isinstance(plans, str):
        raise OptionError(f"plans are a list, such as [{plans!r}]")
    if isinstance(plans, Mapping):
        named = list(plans.items())
    else:
        named = [
            (each, preset(each)) if isinstance(each, str) else (f"plan {number}", each)
            for number, each in enumerate(plans, 1)
        ]
    if not named:
        raise OptionError("no plans to compare: give at least one")
    return named


def _check(model: ModelLike, settings: Mapping[str, Any], epochs: int) -> None:
    """Refuse options that are wrong for every plan."""
    if is_launched_rank():
        raise OptionError("compare starts its own ranks for each plan: do not run it under torchrun")
    if isinstance(model, nn.Module):
        raise OptionError(
            f"every plan must start from fresh weights, but this {type(model).__name__} already has weights: give a "
            "model name, or a function that makes a model from the number of features"
        )
    for name in ("patience", "evaluate_every"):
        if name in settings:
            raise OptionError(f"plans are compared over all epochs without evaluation: leave out {name}")
    Settings(epochs=epochs).changed(settings)


@contextmanager
def _open_inputs(
    graph: GraphLike,
    model: ModelLike,
    task: str | Task | None,
    model_options: Mapping[str, Any] | None,
    data_dir: str | PathLike[str] | None,
    progress: Progress,
) -> Iterator[tuple[str, Task]]:
    """Check model, graph and task; yield the graph's path (a temporary directory if it has none) and the task."""
    choose_model(model, model_options)
    source = open_graph_source(graph, data_dir, progress.stage)
    chosen = choose_task(task, source.graph)
    if source.origin is not None and "path" in source.origin:
        yield source.origin["path"], chosen
        return
    with TemporaryFolder("graph") as folder:
        source.graph.save(folder.path / "graph")
        yield str(folder.path / "graph"), chosen
