"""Online training: each snapshot is placed, evaluated before it is trained on, trained on, and saved.

Every rank runs this; rank 0 follows the source and builds the graph, which all ranks read. A graph in memory is
replayed instead: its snapshots arrive one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from strobe.comm import Comm, SingleRankComm
from strobe.engine.inputs.graph_source import GraphSource, open_graph_source
from strobe.engine.inputs.resolve import TrainRequest, resolve_plan, resolve_settings
from strobe.engine.launch.processes import LaunchConfig, OutputConfig, run_on_ranks
from strobe.engine.machine import choose_device, kill_on_second_interrupt
from strobe.engine.online.result import OnlineResult
from strobe.engine.online.setup import dry_run, remove_if_refused, replace_run
from strobe.engine.online.trainer import GRAPH, OnlineTrainer
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import RunRecord, open_record, refuse_other_kind
from strobe.engine.settings import Settings
from strobe.errors import OptionError
from strobe.format import pluralize
from strobe.graph import DynamicGraph
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.follow.base import RowCounts
from strobe.plan import Plan
from strobe.tasks import make_task


class SnapshotSource(Protocol):
    """A source of snapshots, which builds the graph on disk as they come."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def counts(self) -> RowCounts:
        """What became of its rows."""
        ...

    def poll(self, *, ended: bool = False) -> int:
        """Builds all snapshots that are complete by now; how many there are. ``ended``: nothing more will come, and
        the last one is complete, too."""
        ...

    def close(self) -> None:
        """Lets go of the source."""
        ...


OpenSource = Callable[[Path], SnapshotSource]
"""Opens or reopens a source that builds its graph in a directory."""


@dataclass(frozen=True, kw_only=True)
class OnlineConfig:
    """A source of snapshots: polled every ``poll_s`` seconds, or ``once``; the run ends after ``snapshots``.
    ``source_config`` is stored with the run. With ``graph`` instead of ``open_source``, its snapshots arrive one after
    the other; all its nodes are known from the beginning."""

    open_source: OpenSource | None = None
    graph: DynamicGraph | None = None
    source_config: Mapping[str, Any] = field(default_factory=dict)
    poll_s: float = 2.0
    once: bool = False
    snapshots: int | None = None

    def __post_init__(self) -> None:
        if (self.open_source is None) == (self.graph is None):
            raise OptionError("snapshots come from a source or from a graph: give open_source or graph")
        if not self.poll_s > 0:
            raise OptionError(f"a source is polled every poll_s seconds, more than 0, not {self.poll_s:g}")
        if self.snapshots is not None and self.snapshots < 1:
            raise OptionError(f"at least 1 snapshot is learnt from, not {self.snapshots}")


FIT = 8
"""Snapshots that scales are fitted to by default."""


def run_online(
    config: OnlineConfig, request: TrainRequest, output: OutputConfig, launch: LaunchConfig, progress: Progress
) -> OnlineResult:
    """Train online in this process or in processes on this machine."""
    if launch.ranks == 1:
        return train_online_on_rank(config, request, output, progress, SingleRankComm())
    if config.poll_s > launch.deadline_s / 2:
        raise OptionError(f"ranks wait for {launch.deadline_s:g} s at most: look at the source more often")

    settings = (request.settings or Settings()).changed(request.changes)
    return run_on_ranks(
        lambda reporter, comm: train_online_on_rank(config, request, output, reporter, comm),
        launch,
        progress,
        threads=settings.threads,
        device=choose_device(settings.device),
    )


def train_online_on_rank(
    config: OnlineConfig, request: TrainRequest, output: OutputConfig, progress: Progress, comm: Comm
) -> OnlineResult:
    """The same as one rank."""
    path = output.path
    if path is None and config.graph is None:
        raise OptionError("a source needs a run directory, where its graph is built: say which (out, --out)")
    mine = output if comm.rank == 0 else OutputConfig()
    with ExitStack() as stack:
        stack.enter_context(kill_on_second_interrupt())
        with comm.rank_0_alone("open"):
            record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.broadcast_object(record.earlier, kind="setup")
        if earlier is not None:
            assert path is not None
            refuse_other_kind(path, earlier, online=True)
        plan, settings = _plan_and_settings(request, earlier)
        plan.check(comm.num_ranks)
        request = replace(_with_earlier(request, earlier), plan=plan, settings=settings, changes={})
        arrivals: _Arrivals
        if config.graph is not None:
            arrivals = _ReplayedGraph(config.graph, path)
        else:
            assert path is not None
            arrivals = _FollowedSource(config, path, progress, comm)
        with comm.rank_0_alone("start"):  # at its end the graph is there
            if comm.rank == 0:
                arrivals.start(stack, _Opening(record, request, earlier, mine.overwrite))
        online = OnlineTrainer(
            request,
            earlier,
            path,
            record,
            progress,
            comm,
            source=arrivals.graph_source,
            source_config=config.source_config,
            limit=config.snapshots,
        )
        try:
            for graph in arrivals.snapshots(online):
                online.add_snapshot(graph)
                if online.is_done:
                    break
        except KeyboardInterrupt:
            record.event("interrupted", epoch=online.num_learned)
            raise
        return online.finish(arrivals.row_counts)


@dataclass(frozen=True)
class _Opening:
    """What a run starts from: its record and request, and the config of the earlier run that it continues."""

    record: RunRecord
    request: TrainRequest
    earlier: dict[str, Any] | None
    overwrite: bool


class _Arrivals(Protocol):
    """Where a run's snapshots come from, on one rank."""

    @property
    def graph_source(self) -> GraphSource | None:
        """The graph of the run, with its place; None: it is built in the run directory."""
        ...

    @property
    def row_counts(self) -> Mapping[str, int]:
        """What became of the rows of the source, on rank 0."""
        ...

    def start(self, stack: ExitStack, opening: _Opening) -> None:
        """Prepare the run directory and open the source; rank 0 alone calls it."""
        ...

    def snapshots(self, online: OnlineTrainer) -> Iterator[DynamicGraph]:
        """Yield the graph whenever one more snapshot has arrived. A resumed run is brought up to date first."""
        ...


@dataclass
class _ReplayedGraph:
    """The snapshots of a graph in memory."""

    graph: DynamicGraph
    path: Path | None
    row_counts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def graph_source(self) -> GraphSource:
        return open_graph_source(self.graph)

    def start(self, stack: ExitStack, opening: _Opening) -> None:
        del stack, opening
        if self.path is not None and (self.path / GRAPH).exists():
            raise OptionError(f"the run at {self.path} has the graph of a source: choose another place (out)")

    def snapshots(self, online: OnlineTrainer) -> Iterator[DynamicGraph]:
        online.resume(lambda count: self.graph[:count])
        while online.num_arrived < len(self.graph):
            yield self.graph[: online.num_arrived + 1]


class _FollowedSource:
    """The snapshots of a source, which rank 0 polls; rows skipped since the last poll are reported."""

    graph_source = None

    def __init__(self, config: OnlineConfig, path: Path, progress: Progress, comm: Comm) -> None:
        self._config, self._path, self._progress, self._comm = config, path, progress, comm
        self._source: SnapshotSource | None = None
        self._known = RowCounts()

    @property
    def row_counts(self) -> Mapping[str, int]:
        return {} if self._source is None else asdict(self._source.counts)

    def start(self, stack: ExitStack, opening: _Opening) -> None:
        config, path, earlier = self._config, self._path, opening.earlier
        assert config.open_source is not None
        if earlier is None:
            if not opening.overwrite:
                stack.enter_context(remove_if_refused(path))
            replace_run(
                path,
                opening.record,
                opening.request,
                self._comm.num_ranks,
                open_source=config.open_source,
                source_config=config.source_config,
            )
        self._source = stack.enter_context(closing(config.open_source(path / GRAPH)))
        if earlier is None or earlier["problem"] is None:
            dry_run(opening.request, GrowingGraph(path / GRAPH).open(0))
        self._known = RowCounts() if earlier is None else self._source.counts

    def snapshots(self, online: OnlineTrainer) -> Iterator[DynamicGraph]:
        config, source = self._config, self._source
        growing: GrowingGraph | None = None
        resumed, before = False, -1
        while True:
            with self._comm.rank_0_alone("read"):
                looked = None if source is None else (source.poll(ended=config.once), source.ended)
            if source is not None:
                _report_skipped(self._known, source.counts, self._progress)
                self._known = source.counts
            there, ended = self._comm.broadcast_object(looked, kind="arrivals")
            if growing is None and there:
                growing = GrowingGraph(self._path / GRAPH)
            if growing is not None and not resumed:
                resumed = True
                online.resume(growing.open)
            while growing is not None and online.num_arrived < there:
                yield growing.open(online.num_arrived + 1)
            if ended:
                return
            if there == before:  # one that has had something may have more
                online.save_pending()
                self._progress.stage(_waiting_message(growing), online.num_learned, config.snapshots)
                if self._comm.rank == 0:
                    _sleep(config.poll_s)
            before = there


def _report_skipped(before: RowCounts, now: RowCounts, progress: Progress) -> None:
    late, bad = now.late_rows - before.late_rows, now.bad_rows - before.bad_rows
    if late:
        progress.note(f"left out {pluralize(late, 'row')} that came too late: the snapshot was complete")
    if bad:
        progress.note(f"left out {pluralize(bad, 'bad row')}: see {GRAPH}.rejects.csv in the run")


def _sleep(seconds: float) -> None:
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        sleep(min(left, 0.5))


def _waiting_message(growing: GrowingGraph | None) -> str:
    if growing is None or not growing.parts:
        return "waiting for the first snapshot"
    return f"waiting for what comes after {growing.parts[-1].time}"


def _plan_and_settings(request: TrainRequest, earlier: dict[str, Any] | None) -> tuple[Plan, Settings]:
    """Plan and settings of the request, of the earlier run, or the defaults of online training."""
    settings = resolve_settings(request, earlier, Settings(fit_snapshots=FIT))
    settings = settings if settings.fit_snapshots is not None else replace(settings, fit_snapshots=FIT)
    plan = resolve_plan(request, earlier, settings, request.services.online_plan)
    if "streaming batches" not in plan.batching.gives:
        raise OptionError(
            f"batching {plan.batching} wants all snapshots at once, and they arrive one by one: take batching sampled, "
            "or windows of 1 snapshot (window=1, --window 1)"
        )
    _check_settings(plan, settings)
    if request.changes.get("patience") and not settings.validation_share:
        raise OptionError(
            "patience counts steps on a snapshot without a lower validation loss: give validation_share "
            "(--validation-share), too"
        )
    if "replay_memory" in request.changes and not settings.replay:
        raise OptionError("replay_memory is what replay draws from: give replay (--replay), too")
    return plan, settings


def _check_settings(plan: Plan, settings: Settings) -> None:
    """Refuse settings that the batches of a plan give no meaning to."""
    is_whole_snapshot = plan.batching.window == 1
    if not is_whole_snapshot and (settings.steps_per_snapshot > 1 or settings.validation_share or settings.replay):
        raise OptionError(
            "steps_per_snapshot, validation_share and replay are for steps of a whole snapshot, and batching "
            f"{plan.batching} takes steps of some examples: take windows of 1 snapshot (--batching windows:size=1), or "
            "more passes (--passes)"
        )
    if is_whole_snapshot and settings.eval_history != "auto":
        raise OptionError(
            f"batching {plan.batching} predicts each snapshot from the states carried to it: leave out eval_history"
        )
    if settings.offload == "always" or settings.precision == "bf16":
        what = "offload" if settings.offload == "always" else "precision bf16"
        raise OptionError(f"{what} is for windows that are kept, and snapshots that arrive are not: leave it out")


def _with_earlier(request: TrainRequest, earlier: dict[str, Any] | None) -> TrainRequest:
    """The request, completed by that of a run that was stopped before its first snapshot."""
    if earlier is None or earlier["problem"] is not None:
        return request
    model, task = earlier["model"], earlier["task"]
    same = request.model is None or request.model == model["name"]
    options = (model["options"] if same else {}) | dict(request.model_options or {})
    known = request.task or (None if task is None else make_task(**task))
    return replace(request, model=request.model or model["name"], model_options=options, task=known)
