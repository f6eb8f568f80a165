"""Several plans on the same work, one after the other: what each costs, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from os import PathLike
from statistics import median
from typing import Any

from torch import nn

from strobe.comm.group import DEADLINE_S
from strobe.comm.launch import RankError, in_ranks
from strobe.comm.ledger import merged
from strobe.engine.choice import ModelLike, choose_model, choose_task
from strobe.engine.launch import Team
from strobe.engine.ledger_table import load, sent_by_kind, spent
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.settings import Settings
from strobe.engine.source import GraphLike, open_source
from strobe.engine.train import train
from strobe.errors import OptionError, StrobeError
from strobe.io.temporary import TemporaryFolder
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import Task

EPOCHS = 5
OnPlan = Callable[[str, int, int], None]
"""Told before each plan: its name, its number from 1, how many there are."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a plan came to in a mean epoch after the first; where it could not run only ``reason`` says anything.

    ``sent`` is bytes of all ranks by kind. Loads are the fullest rank's for 1 of the emptiest's: seconds of computing,
    cells and arcs; None where one has nothing. ``exposed_share`` is the part of the ranks' time that went by waiting
    for rows, states or gradients. ``memory_bytes`` is the peak of the rank with the most, on a GPU of its device.
    ``loss`` is the mean training loss of the last epoch, ``loss_difference`` what it has more than the first plan's.
    ``too_early``: all epochs were over before batches had the order that the plan wants them in.
    """

    name: str
    plan: Plan
    reason: str | None = None
    steps: int | None = None
    epoch_s: float | None = None
    sent: dict[str, float] = field(default_factory=dict)
    computing_load: float | None = None
    work_load: float | None = None
    exposed_share: float | None = None
    memory_bytes: int | None = None
    loss: float | None = None
    loss_difference: float | None = None
    too_early: bool = False

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
    model_options: Mapping[str, Any] | None = None,
    data_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    on_plan: OnPlan | None = None,
    on_result: Callable[[Compared], None] | None = None,
    **settings: Any,
) -> list[Compared]:
    """Trains so many epochs by each plan, with the same seed, model, task and settings, and without evaluations.

    A plan that does not fit, or fails, is in the result with its reason; the others go on. Nothing is kept on disk.

    Args:
        plans: names of presets or plans, or plans by a name of your choice.
        on_plan: called before each plan.
        on_result: called after each plan, with what it came to; the differences come at the end.
        settings: fields of ``Settings``: lr, window, seed, device, ….
    """
    watch = Progress() if progress is None else progress
    named = _named(plans)
    _check(model, settings, epochs)
    team = Team(ranks, deadline_s)
    common: dict[str, Any] = {"epochs": epochs, "patience": 0, "evaluate_every": epochs + 1, **settings}
    common |= {"model_options": model_options, "progress": watch}
    common |= {"ranks": team.ranks, "deadline_s": team.deadline_s}
    found: list[Compared] = []
    with _opened(graph, model, task, model_options, data_dir, watch) as (path, chosen):
        for number, (name, plan) in enumerate(named, 1):
            if on_plan is not None:
                on_plan(name, number, len(named))
            found.append(_tried(name, plan, partial(train, path, model, chosen, plan=plan, **common)))
            if on_result is not None:
                on_result(found[-1])
    return with_differences(found)


def _tried(name: str, plan: Plan, run: Callable[[], Run]) -> Compared:
    try:
        done = run()
    except StrobeError as error:
        text = str(error)
        return Compared(name=name, plan=plan, reason=text.splitlines()[0] if isinstance(error, RankError) else text)
    return measured(name, done.job.plan, done)  # the plan as settings have cut it


def measured(name: str, plan: Plan, run: Run) -> Compared:
    """What a run says about its plan. The first epoch, which warms up, counts only where there is no other; nor do
    those that only time batches."""
    lines = [line for line in run.history[1:] if "watched" not in line] or run.history[1:] or run.history
    ranks = [merged(list(each)) for each in zip(*(line.get("ranks", []) for line in lines), strict=True)]
    done = [spent(rank, len(lines)) for rank in ranks]
    held = [each for line in run.history for each in line.get("ranks", [line])]
    return Compared(
        name=name,
        plan=plan,
        steps=lines[-1]["step"] - (run.history[-2]["step"] if len(run.history) > 1 else 0),
        epoch_s=median(line["train_s"] for line in lines),
        sent=sent_by_kind(ranks, len(lines)),
        computing_load=load([rank.computing_s for rank in done]),
        work_load=load([rank.work for rank in done]),
        exposed_share=sum(rank.exposed_s for rank in done) / sum(rank.seconds for rank in done) if done else None,
        memory_bytes=max(each.get("device_bytes") or each["memory_bytes"] for each in held),
        loss=run.history[-1]["loss"],
        too_early=all("watched" in line for line in lines),
    )


def with_differences(found: Sequence[Compared]) -> list[Compared]:
    """The same with what each loss has more than the first."""
    first = next((each.loss for each in found if each.loss is not None), None)
    return [
        each if each.loss is None or first is None else replace(each, loss_difference=each.loss - first)
        for each in found
    ]


def fastest(results: Sequence[Compared]) -> list[Compared]:
    """Those that ran, the one with the shortest epoch first."""
    ran = [(each.epoch_s, number, each) for number, each in enumerate(results) if each.epoch_s is not None]
    return [each for _, _, each in sorted(ran, key=lambda one: one[:2])]


def _named(plans: Sequence[str | Plan] | Mapping[str, Plan]) -> list[tuple[str, Plan]]:
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
        raise OptionError("say which plans to compare")
    return named


def _check(model: ModelLike, settings: Mapping[str, Any], epochs: int) -> None:
    """What would be wrong for every plan is refused before the first."""
    if in_ranks():
        raise OptionError("comparing starts ranks of its own, for each plan anew: leave torchrun out")
    if isinstance(model, nn.Module):
        raise OptionError(
            f"every plan must begin with the same fresh weights, and this {type(model).__name__} is made already: give "
            "a name, or a function that makes one from the number of inputs"
        )
    for name in ("patience", "evaluate_every"):
        if name in settings:
            raise OptionError(f"plans are compared over all epochs and without evaluations: leave {name} out")
    Settings(epochs=epochs).changed(settings)


@contextmanager
def _opened(
    graph: GraphLike,
    model: ModelLike,
    task: str | Task | None,
    model_options: Mapping[str, Any] | None,
    data_dir: str | PathLike[str] | None,
    watch: Progress,
) -> Iterator[tuple[str, Task]]:
    """The graph where every plan's ranks find it, and the task; both and the model refused here if they are wrong."""
    choose_model(model, model_options)
    source = open_source(graph, data_dir, watch.stage)
    chosen = choose_task(task, source.graph)
    if source.origin is not None and "path" in source.origin:
        yield source.origin["path"], chosen
        return
    with TemporaryFolder("graph") as folder:
        source.graph.save(folder.path / "graph")
        yield str(folder.path / "graph"), chosen
