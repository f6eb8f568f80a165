"""From a user's request to a job, or an error: settings, plan, model, graph and task, checked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch

from strobe.comm import Comm, SingleRankComm
from strobe.engine.checkpoint.store import loading
from strobe.engine.inputs.cached_results import CachedResults, task_key
from strobe.engine.inputs.graph_source import GraphLike, GraphSource, SavedGraph, fingerprint, open_graph_source, reopen
from strobe.engine.inputs.model_choice import ModelChoice, ModelLike, choose_model, choose_task, task_json
from strobe.engine.job import Job
from strobe.engine.machine import choose_arithmetic, choose_device, choose_threads
from strobe.engine.progress import Progress
from strobe.engine.services import Services
from strobe.engine.settings import Settings
from strobe.errors import OptionError
from strobe.io.cache import NO_CACHE, Cache
from strobe.io.limits import check_address_space
from strobe.ops import native, triton
from strobe.plan import Plan
from strobe.tasks import Problem, Task, make_task

MIN_ADDRESS_SPACE = 256 << 20
"""Bytes that a run must be allowed to map: with 16 MiB, torch was seen to hang or to end the process."""


@dataclass(frozen=True)
class TrainRequest:
    """A user's request for a run; None leaves a choice open."""

    graph: GraphLike | SavedGraph | None = None
    model: ModelLike | None = None
    task: str | Task | None = None
    model_options: Mapping[str, Any] | None = None
    settings: Settings | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | os.PathLike[str] | None = None
    plan: Plan | str | None = None
    problem: dict[str, Any] | None = None  # what another rank has fitted already
    services: Services = field(default_factory=Services)
    cache: Cache = NO_CACHE  # of results that do not depend on weights


def resolve(
    request: TrainRequest,
    earlier: dict[str, Any] | None,
    progress: Progress,
    comm: Comm | None = None,
    *,
    num_ranks: int | None = None,
) -> Job:
    """The job of a request. Open choices come from ``earlier``, the configuration of the run that is resumed.

    Args:
        request: the user's choices.
        earlier: the configuration of the run to resume, or None.
        progress: reports what is read.
        comm: the ranks, one by default.
        num_ranks: the number of ranks to check the plan for, where they have not been started.

    Raises:
        StrobeError: the request is invalid, or is not the run that is resumed.
    """
    check_address_space(MIN_ADDRESS_SPACE, "a run")
    settings = resolve_settings(request, earlier, Settings())
    comm = SingleRankComm() if comm is None else comm
    plan = resolve_plan(request, earlier, settings, Plan)
    plan.check(num_ranks or comm.num_ranks)
    device, threads = choose_device(settings.device), choose_threads(settings.threads)
    choose_arithmetic(device, tf32=settings.precision in ("tf32", "bf16"), deterministic=settings.deterministic)
    _report_missing_kernels(device, progress)
    triton.load_in_background(device)
    choice = _model(request, earlier)
    source = _source(request, earlier, progress)
    if request.task is None and earlier is not None:
        task = make_task(**earlier["task"])
    else:
        task = choose_task(request.task, source.graph)
    if earlier is not None:
        _check_same_run(earlier, source, choice, task, settings, plan)
    results = CachedResults(request.cache, source, progress=progress)
    problem = _bind(request, earlier, task, results, settings, plan)
    job = Job(
        source=source,
        choice=choice,
        task=task,
        problem=problem,
        settings=settings,
        plan=plan,
        comm=comm,
        device=device,
        threads=threads,
        progress=progress,
        services=request.services,
        graph_results=replace(results, problem=problem),
    )
    if settings.offload == "always":
        _require_cached_windows(job, "windows wait in the host's memory", "--offload")
    if settings.precision == "bf16":
        if (num_ranks or comm.num_ranks) > 1:
            raise OptionError("rows are stored in 16 bits on one rank only: leave out --precision bf16 or --ranks")
        _require_cached_windows(job, "rows are stored in 16 bits", "--precision")
    return job


def _report_missing_kernels(device: torch.device, progress: Progress) -> None:
    if device.type == "cuda" and not triton.available():
        progress.note("Triton is not installed, so plain torch runs on the GPU, several times slower")
    if device.type == "cpu" and native.library() is None:
        progress.note(
            "the CPU kernels are not built, so plain torch runs: python -m strobe.ops.native.build makes them"
        )


def _bind(
    request: TrainRequest,
    earlier: dict[str, Any] | None,
    task: Task,
    results: CachedResults,
    settings: Settings,
    plan: Plan,
) -> Problem:
    """Bind the task to the graph: fit it to the training snapshots, or take what the earlier run, another rank or
    another run on the graph has fitted."""
    assert results.source is not None
    progress, graph = results.progress, results.source.graph
    progress.stage("fitting to the training snapshots", 0, None)
    state = request.problem if earlier is None else earlier["problem"]
    key, began = None, perf_counter()
    if state is None and (key := task_key(task, plan)) is not None:
        key |= {"seed": settings.seed, "fit_snapshots": settings.fit_snapshots}
        state = results.load_json("fit", key)
    is_fitted = state is not None
    if state is None and settings.fit_snapshots is not None:
        state = task.bind(graph[: settings.fit_snapshots], seed=settings.seed).state()
    with nullcontext() if earlier is None else loading("the run's config.json"):
        problem = task.bind(plan.store.wrap(graph), seed=settings.seed, state=state)
    if not is_fitted:
        results.save_json("fit", key, problem.state(), perf_counter() - began)
    if problem.note is not None and earlier is None and request.problem is None:
        progress.note(problem.note)
    if problem.is_edge_level and (plan.batching.needs_hops or "local inputs" in plan.exchange.gives):
        axis, chosen = ("batching", plan.batching) if plan.batching.needs_hops else ("exchange", plan.exchange)
        raise OptionError(
            f"{axis} {chosen} has all that examples of single nodes read, not the other end of a pair: take batching "
            "full or windows, and exchange structure halo"
        )
    return problem


def _require_cached_windows(job: Job, what: str, option: str) -> None:
    """Refuse a batching that makes its windows while training."""
    if not job.caches_windows:
        raise OptionError(
            f"{what} where windows are kept, and batching {job.plan.batching} makes them when they are needed: leave "
            f"out {option}"
        )


def resolve_plan(
    request: TrainRequest, earlier: dict[str, Any] | None, settings: Settings, default: Callable[[], Plan]
) -> Plan:
    """The plan of the request, of the earlier run, or the default, cut to ``window``."""
    if request.plan is None:
        plan = default() if earlier is None else Plan.from_json(earlier["plan"])
    else:
        plan = request.services.plan(request.plan) if isinstance(request.plan, str) else request.plan
        if not isinstance(plan, Plan):
            raise OptionError(f"a plan is a Plan or the name of a preset, not {plan!r}")
    return plan if settings.window is None else replace(plan, batching=plan.batching.with_window(settings.window))


def resolve_settings(request: TrainRequest, earlier: dict[str, Any] | None, default: Settings) -> Settings:
    """The settings of the request, or of the earlier run, or the default, with the request's changes."""
    start = default if earlier is None else Settings().changed(earlier["settings"])
    return (start if request.settings is None else request.settings).changed(request.changes)


def _source(request: TrainRequest, earlier: dict[str, Any] | None, progress: Progress) -> GraphSource:
    progress.stage("reading the graph", 0, None)
    if request.graph is not None:
        return open_graph_source(request.graph, request.data_dir, progress.stage)
    if earlier is None:
        raise OptionError("say which graph to train on")
    return reopen(earlier["graph"], progress.stage)


def _model(request: TrainRequest, earlier: dict[str, Any] | None) -> ModelChoice:
    model, options = request.model, request.model_options
    if model is None:
        if earlier is None:
            raise OptionError("say which model to train")
        if not earlier["model"]["by_name"]:
            raise OptionError(f"the run's model, {earlier['model']['name']}, is none of Strobe's own: give it again")
        model = earlier["model"]["name"]
    if earlier is not None and isinstance(model, str) and model == earlier["model"]["name"]:
        options = earlier["model"]["options"] | dict(options or {})
    return choose_model(model, options)


def _check_same_run(
    earlier: dict[str, Any], source: GraphSource, choice: ModelChoice, task: Task, settings: Settings, plan: Plan
) -> None:
    """Refuse to resume a run with other inputs, naming all differences.

    A run that is only opened, on another graph, has no fingerprint.
    """
    new = {
        "graph": {} if earlier["fingerprint"] is None else fingerprint(source.graph),
        "model": choice.to_json()["options"] | {"name": choice.name},
        "task": task_json(task),
        "setting": settings.fixed(),
        "plan": {axis: _describe(value) for axis, value in json.loads(json.dumps(plan.to_json())).items()},
    }
    old = {
        "graph": earlier["fingerprint"] or {},
        "model": earlier["model"]["options"] | {"name": earlier["model"]["name"]},
        "task": earlier["task"],
        "setting": Settings().changed(earlier["settings"]).fixed(),
        "plan": {axis: _describe(value) for axis, value in earlier["plan"].items()},
    }
    differ = [
        f"{what} {name} was {old[what].get(name)!r} and is {new[what].get(name)!r}"
        for what in new
        for name in sorted(old[what].keys() | new[what].keys())
        if old[what].get(name) != new[what].get(name)
    ]
    if differ:
        raise OptionError(f"the run cannot go on as something else: {'; '.join(differ)}. Start another (--out).")


def _describe(choice: dict[str, Any]) -> str:
    """A choice of a plan, from its JSON: a strategy of the user's own cannot be made from it."""
    options = [f"{name} {_describe(value) if isinstance(value, dict) else value}" for name, value in choice.items()]
    return ", ".join(option.removeprefix("name ") for option in options)
