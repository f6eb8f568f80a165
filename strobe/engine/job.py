"""What a run is made of: graph, task, model and settings, chosen, checked against an earlier run, and prepared."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

import strobe
from strobe.engine.choice import ModelChoice, ModelLike, choose_model, choose_task, task_json
from strobe.engine.machine import choose_device, choose_threads, seed_all
from strobe.engine.progress import Progress
from strobe.engine.settings import Settings
from strobe.engine.source import GraphLike, Source, fingerprint, open_source, reopen
from strobe.engine.windows import Window, cut, prepare, stream
from strobe.errors import OptionError
from strobe.ops import native
from strobe.tasks import Problem, Task, make_task


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that stays the same while a run trains."""

    source: Source
    choice: ModelChoice
    task: Task
    problem: Problem
    settings: Settings
    device: torch.device
    threads: int

    def windows(self, times: range) -> list[Window]:
        return cut(self.problem, times, self.settings.window, self.settings.recompute, self.device)

    def stream(self, *parts: range) -> Iterator[Window]:
        """Windows of parts one after the other, cut as in training, each let go of before the next is made."""
        chosen = self.settings.window, self.settings.recompute, self.device
        return chain.from_iterable(stream(self.problem, times, *chosen) for times in parts)

    def make(self) -> tuple[nn.Module, nn.Module]:
        """A fresh model and its head, on the device; the same for the same seed."""
        seed_all(self.settings.seed)
        features = self.problem.graph.features
        assert features is not None  # every task sees to that
        model = self.choice.make(features.shape[0])
        head = self.problem.head(model.width)  # type: ignore[arg-type]
        return model.to(self.device), head.to(self.device)

    def to_json(self) -> dict[str, Any]:
        """What ``config.json`` keeps."""
        versions = {"strobe": strobe.__version__, "torch": torch.__version__, "numpy": np.__version__}
        return {
            "name": f"{self.choice.name} on {self.source.name}",
            "graph": self.source.origin,
            "fingerprint": fingerprint(self.source.graph),
            "model": self.choice.to_json(),
            "task": task_json(self.task),
            "problem": self.problem.state(),
            "settings": self.settings.to_json(),
            "versions": versions | {"python": platform.python_version()},
            "machine": {"device": str(self.device), "threads": self.threads, "cores": os.cpu_count()},
        }


@dataclass(frozen=True)
class Given:
    """What a user said; None is left open."""

    graph: GraphLike | None = None
    model: ModelLike | None = None
    task: str | Task | None = None
    model_options: Mapping[str, Any] | None = None
    settings: Settings | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | os.PathLike[str] | None = None


def choose(given: Given, earlier: dict[str, Any] | None, watch: Progress) -> Job:
    """The job a user asked for. What is left open comes from the run that is resumed, if one is."""
    settings = _settings(given, earlier)
    device, threads = choose_device(settings.device), choose_threads(settings.threads)
    if device.type == "cpu" and native.library() is None:
        watch.note("the CPU kernels are not built, so plain torch runs: python -m strobe.ops.native.build makes them")
    choice = _model(given, earlier)
    source = _source(given, earlier, watch)
    known = given.task is not None or earlier is None
    task = choose_task(given.task if known else make_task(**earlier["task"]), source.graph)  # type: ignore[index]
    if earlier is not None:
        _agree(earlier, source, choice, task, settings)
    watch.stage("fitting to the training snapshots", 0, None)
    problem = task.bind(source.graph, seed=settings.seed, state=None if earlier is None else earlier["problem"])
    return Job(
        source=source,
        choice=choice,
        task=task,
        problem=problem,
        settings=settings,
        device=device,
        threads=threads,
    )


def prepared(job: Job, watch: Progress) -> tuple[list[Window], list[Window]]:
    """The windows that are trained on and those that training is judged by, with all that they need."""
    split = job.problem.split
    total, done = len(split.train) + len(split.validation), 0
    both = []
    for part in (split.train, split.validation):
        windows = job.windows(part)
        for more in prepare(job.problem, windows, part):
            done += more
            watch.stage("preparing snapshots", done, total)
        both.append(windows)
    return both[0], both[1]


def _settings(given: Given, earlier: dict[str, Any] | None) -> Settings:
    start = Settings() if earlier is None else Settings(**earlier["settings"])
    return (start if given.settings is None else given.settings).changed(given.changes)


def _source(given: Given, earlier: dict[str, Any] | None, watch: Progress) -> Source:
    watch.stage("reading the graph", 0, None)
    if given.graph is not None:
        return open_source(given.graph, given.data_dir, watch.stage)
    if earlier is None:
        raise OptionError("say which graph to train on")
    return reopen(earlier["graph"], watch.stage)


def _model(given: Given, earlier: dict[str, Any] | None) -> ModelChoice:
    model, options = given.model, given.model_options
    if model is None:
        if earlier is None:
            raise OptionError("say which model to train")
        if not earlier["model"]["by_name"]:
            raise OptionError(f"the run's model, {earlier['model']['name']}, is none of Strobe's own: give it again")
        model = earlier["model"]["name"]
    if earlier is not None and isinstance(model, str) and model == earlier["model"]["name"]:
        options = earlier["model"]["options"] | dict(options or {})
    return choose_model(model, options)


def _agree(earlier: dict[str, Any], source: Source, choice: ModelChoice, task: Task, settings: Settings) -> None:
    """Refuses to resume a run with something else than it was made of, naming all that differs.

    A run that is only opened, on another graph, says so by having no fingerprint.
    """
    new = {
        "graph": {} if earlier["fingerprint"] is None else fingerprint(source.graph),
        "model": choice.to_json()["options"] | {"name": choice.name},
        "task": task_json(task),
        "setting": settings.fixed(),
    }
    old = {
        "graph": earlier["fingerprint"] or {},
        "model": earlier["model"]["options"] | {"name": earlier["model"]["name"]},
        "task": earlier["task"],
        "setting": Settings(**earlier["settings"]).fixed(),
    }
    differ = [
        f"{what} {name} was {old[what].get(name)!r} and is {new[what].get(name)!r}"
        for what in new
        for name in sorted(old[what].keys() | new[what].keys())
        if old[what].get(name) != new[what].get(name)
    ]
    if differ:
        raise OptionError(f"the run cannot go on as something else: {'; '.join(differ)}. Start another (--out).")
