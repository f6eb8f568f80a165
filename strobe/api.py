"""Training as users call it: the engine, with presets, the planner's estimates and the report's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from strobe.comm.launch.environment import Backend
from strobe.comm.process_group import DEADLINE_S
from strobe.engine.inputs.graph_source import GraphLike
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import LaunchConfig, OutputConfig
from strobe.engine.online.result import OnlineResult
from strobe.engine.progress import Progress
from strobe.engine.records.timing import EpochTrace
from strobe.engine.run import Run
from strobe.engine.run import open_run as open_saved_run
from strobe.engine.settings import Settings
from strobe.engine.train import run_training
from strobe.errors import InputError
from strobe.graph import DynamicGraph, NodeNames
from strobe.io.cache import NO_CACHE, Cache
from strobe.plan import Plan
from strobe.planner.services import PlannerServices
from strobe.report.charts.learning_curve import learning_curve_svg
from strobe.report.run import online_result_svg, online_summary, run_charts
from strobe.report.summary import run_summary
from strobe.tasks.base import Task

if TYPE_CHECKING:
    from pyarrow import Table

    from strobe.engine.online.loop import OnlineConfig


class StandardServices(PlannerServices):
    """Presets, estimates, summaries and charts."""

    def summary(self, result: Mapping[str, Any]) -> str:
        return run_summary(result)

    def learning_curve(self, run: Run) -> str:
        return learning_curve_svg(run.to_json(), run.history)

    def charts(self, run: Run, artifacts: Mapping[str, Any], trace: EpochTrace) -> dict[str, str | None]:
        return run_charts(run, artifacts, trace)

    def online_summary(self, result: OnlineResult) -> str:
        return online_summary(result)

    def online_chart(self, result: OnlineResult) -> str | None:
        return online_result_svg(result)


SERVICES = StandardServices()


def train(
    graph: GraphLike | None,
    model: ModelLike | None,
    task: str | Task | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    data_dir: str | PathLike[str] | None = None,
    model_options: Mapping[str, Any] | None = None,
    plan: Plan | str | None = None,
    ranks: int = 1,
    deadline_s: float = DEADLINE_S,
    max_restarts: int = 0,
    backend: Backend = "auto",
    settings: Settings | None = None,
    cache: bool = True,
    **changes: Any,
) -> Run:
    """Trains a model on a graph for a task, and scores it on the test part with its best weights.

    Args:
        graph: a dynamic graph, the directory of one, or the name of a data set.
        model: a registered name, a torch module with ``width`` and ``forward(view)``, or a function that makes one
            from the number of input features.
        task: a name, a task, or None for the one that fits the graph's labels.
        out: the run directory: checkpoints, a record of every epoch, the result. Without it nothing is kept.
        resume: go on with the run in ``out``, to the weights it would have had if it had never stopped. What is
            left out (graph and model may be None) is as it was; ``epochs`` and ``patience`` may be raised.
        overwrite: replace the run in ``out``.
        plan: how ranks share the work: a plan, the name of a preset, or None for time blocks with relay.
        ranks: processes on this machine that train together. A process that torchrun has started is one of the ranks
            it has made, whatever is said here.
        deadline_s: a rank that does not hear from another for so long ends the run.
        max_restarts: how often a run that failed goes on from its last checkpoint by itself (it needs ``out``).
        backend: what carries tensors on GPUs between ranks: ``auto`` (NCCL, unless ranks share a GPU), ``nccl`` or
            ``gloo``, through the memory of the host. Tensors on CPUs always go over gloo.
        cache: use the user's cache of results that do not depend on weights (scales, baselines, partitions, memory);
            ``strobe cache`` shows it. Results are equal to the last bit without.
        changes: fields of ``Settings``: epochs, lr, window, seed, device, ….
    """
    request = TrainRequest(graph, model, task, model_options, settings, changes, data_dir, plan, services=SERVICES)
    request = replace(request, cache=Cache.of_user() if cache else NO_CACHE)
    output, launch = OutputConfig(out, resume, overwrite), LaunchConfig(ranks, deadline_s, max_restarts, backend)
    return run_training(request, output, launch, Progress() if progress is None else progress)


def train_online(
    config: OnlineConfig | DynamicGraph,
    model: ModelLike | None,
    task: str | Task | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    model_options: Mapping[str, Any] | None = None,
    plan: Plan | str | None = None,
    ranks: int = 1,
    deadline_s: float = DEADLINE_S,
    backend: Backend = "auto",
    settings: Settings | None = None,
    **changes: Any,
) -> OnlineResult:
    """Trains a model while snapshots arrive, until the source ends or enough have been trained on.

    Scales of features and targets are fitted to the first ``fit_snapshots`` snapshots, which are trained on but not
    evaluated. Every later snapshot is predicted from the snapshots before it, evaluated, trained on and saved. A run
    that was stopped or killed continues with ``resume``: no snapshot is lost, none is trained on twice.

    Whole snapshots with states carried from one to the next (the live update of ROLAND) take a plan with windows of 1
    snapshot, such as ``plan="relay", window=1``, and the settings ``steps_per_snapshot``, ``validation_share``,
    ``patience`` and ``reset_optimizer``.

    Args:
        config: the source of snapshots, or a graph, whose snapshots arrive one after the other.
        model: as for ``train``.
        task: as for ``train``.
        out: the run directory; the graph that a source has brought is in ``graph`` there, for ``train`` and
            ``inspect``, too. A graph may be trained on without one: then nothing is kept.
        resume: continue the run in ``out``; a graph must be given again.
        overwrite: replace the run in ``out``.
        progress: is told what happens.
        model_options: as for ``train``.
        plan: a plan whose batches are sampled or windows of 1 snapshot; by default the preset for snapshots that
            arrive, which samples.
        ranks: processes on this machine that train together.
        deadline_s: a rank that does not hear from another for so long ends the run.
        backend: as for ``train``.
        settings: as for ``train``; epochs and evaluations between them do not count.
        changes: fields of ``Settings``.

    Returns:
        The metrics of every snapshot (``evaluated``), their means (``metrics``) and the latest weights.

    Raises:
        StrobeError: the request is invalid, or the source has bad rows.
    """
    # Readers of tables take half a second to load.
    from strobe.engine.online.loop import OnlineConfig, run_online

    config = OnlineConfig(graph=config) if isinstance(config, DynamicGraph) else config
    request = TrainRequest(None, model, task, model_options, settings, changes, None, plan, services=SERVICES)
    output, launch = OutputConfig(out, resume, overwrite), LaunchConfig(ranks, deadline_s, backend=backend)
    return run_online(config, request, output, launch, Progress() if progress is None else progress)


def open_run(
    run: Run | str | PathLike[str],
    *,
    graph: GraphLike | None = None,
    model: ModelLike | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Open a run with its best weights.

    Args:
        run: a run, or its directory.
        graph: another graph with the same features, to put the run on.
        model: needed only where the run's model is not one of Strobe's own.
        device: where the model goes.
        progress: is told what is read.

    Returns:
        The run.

    Raises:
        StrobeError: the directory is damaged, or was written by another version.
    """
    return open_saved_run(run, graph=graph, model=model, device=device, progress=progress, services=SERVICES)


def predict_links(
    run: Run | str | PathLike[str],
    top: int = 20,
    nodes: Sequence[int | str] | None = None,
    *,
    exclude: str = "none",
    graph: GraphLike | None = None,
) -> Table:
    """The likeliest destinations of nodes in the snapshot after the last one.

    Args:
        run: a run of link-prediction or link-ranking, or its directory.
        top: destinations of each node, at most.
        nodes: sources, as node ids or names; None for all nodes that may be sources.
        exclude: ``last`` leaves out pairs with an edge in the snapshot read, ``ever`` with an edge in any snapshot. By
            default nothing is left out: in most graphs the likeliest edges are repeated ones.
        graph: another graph with the same features.

    Returns:
        An Arrow table, a row per source and destination: names, rank, ``score`` and, if the run is calibrated,
        ``probability``.

    Raises:
        StrobeError: the task predicts no links, or a node is not in the graph.
    """
    opened = open_run(run, graph=graph)
    names = opened.problem.graph.names
    ids = None if nodes is None else [_node_id(names, node) for node in nodes]
    return opened.predict_links(top, ids, exclude=exclude)


def _node_id(names: NodeNames | None, node: int | str) -> int:
    if not isinstance(node, str):
        return int(node)
    if names is None:
        raise InputError(f"the graph has no names: give node ids, not {node!r}")
    return names.find(node)
