"""Online training: each snapshot is placed, evaluated before it is trained on, trained on, and saved.

Every rank runs this; rank 0 follows the source and builds the graph, which all ranks read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from strobe.comm import Comm, SingleRankComm
from strobe.comm.launch.launcher import run_ranks
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import LaunchConfig, OutputConfig, RemoteProgress
from strobe.engine.machine import choose_device, kill_on_second_interrupt
from strobe.engine.online.preflight import dry_run, replace_run
from strobe.engine.online.result import OnlineResult
from strobe.engine.online.trainer import GRAPH, OnlineTrainer
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import open_record, refuse_other_kind, remove_run
from strobe.engine.settings import Settings
from strobe.errors import OptionError, StrobeError
from strobe.format import pluralize
from strobe.graph import DynamicGraph
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import is_growing
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
    ``source_config`` is stored with the run."""

    open_source: OpenSource
    source_config: Mapping[str, Any] = field(default_factory=dict)
    poll_s: float = 2.0
    once: bool = False
    snapshots: int | None = None

    def __post_init__(self) -> None:
        if not self.poll_s > 0:
            raise OptionError(f"a source is looked at every so many seconds, not every {self.poll_s:g}")
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

    def work(comm: Comm, send: Callable[[Any], None]) -> OnlineResult | None:
        reporter = RemoteProgress(send) if comm.rank == 0 else Progress()
        result = train_online_on_rank(config, request, output, reporter, comm)
        return result if comm.rank == 0 else None

    def on_event(rank: int, event: tuple[str, tuple[Any, ...]]) -> None:
        del rank
        getattr(progress, event[0])(*event[1])

    settings = (request.settings or Settings()).changed(request.changes)
    device = choose_device(settings.device).type
    results = run_ranks(
        work,
        launch.ranks,
        deadline_s=launch.deadline_s,
        threads=settings.threads,
        on_event=on_event,
        device=device,
    )
    assert results[0] is not None
    return results[0]


def train_online_on_rank(
    config: OnlineConfig, request: TrainRequest, output: OutputConfig, progress: Progress, comm: Comm
) -> OnlineResult:
    """The same as one rank."""
    path = output.path
    assert path is not None
    mine = output if comm.rank == 0 else OutputConfig()
    with ExitStack() as stack:
        stack.enter_context(kill_on_second_interrupt())
        with comm.rank_0_alone("open"):
            record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.broadcast_object(record.earlier, kind="setup")
        if earlier is not None:
            refuse_other_kind(path, earlier, online=True)
        plan, settings = _plan_and_settings(request, earlier)
        plan.check(comm.num_ranks)
        request = replace(_with_earlier(request, earlier), plan=plan, settings=settings, changes={})
        with comm.rank_0_alone("start"):  # at its end the graph is there
            if comm.rank == 0 and earlier is None:
                if not mine.overwrite:
                    stack.enter_context(_remove_if_refused(path))
                replace_run(
                    path,
                    record,
                    request,
                    comm.num_ranks,
                    open_source=config.open_source,
                    source_config=config.source_config,
                )
            source = stack.enter_context(closing(config.open_source(path / GRAPH))) if comm.rank == 0 else None
            if source is not None and (earlier is None or earlier["problem"] is None):
                dry_run(request, GrowingGraph(path / GRAPH).open(0))
        online = OnlineTrainer(
            request,
            earlier,
            path,
            record,
            progress,
            comm,
            source_config=config.source_config,
            limit=config.snapshots,
        )
        try:
            known = RowCounts() if source is None or earlier is None else source.counts
            for graph in _snapshots(config, source, known, path / GRAPH, online, progress, comm):
                online.add_snapshot(graph)
                if online.is_done:
                    break
        except KeyboardInterrupt:
            record.event("interrupted", epoch=online.num_learned)
            raise
        return online.finish({} if source is None else asdict(source.counts))


def _snapshots(
    config: OnlineConfig,
    source: SnapshotSource | None,
    known: RowCounts,
    path: Path,
    online: OnlineTrainer,
    progress: Progress,
    comm: Comm,
) -> Iterator[DynamicGraph]:
    """Yield the graph whenever one more snapshot has arrived. Rank 0 polls the source; rows skipped since ``known`` are
    reported."""
    growing: GrowingGraph | None = None
    resumed, before = False, -1
    while True:
        with comm.rank_0_alone("read"):
            looked = None if source is None else (source.poll(ended=config.once), source.ended)
        if source is not None:
            _report_skipped(known, source.counts, progress)
            known = source.counts
        there, ended = comm.broadcast_object(looked, kind="arrivals")
        if growing is None and there:
            growing = GrowingGraph(path)
        if growing is not None and not resumed:
            resumed = True
            online.resume(growing)
        while growing is not None and online.num_arrived < there:
            yield growing.open(online.num_arrived + 1)
        if ended:
            return
        if there == before:  # one that has had something may have more
            online.save_pending()
            progress.stage(_waiting_message(growing), online.num_learned, config.snapshots)
            if comm.rank == 0:
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


@contextmanager
def _remove_if_refused(path: Path) -> Iterator[None]:
    """A run that is refused before its first snapshot arrives leaves nothing: the same command may be given again."""
    try:
        yield
    except StrobeError:
        if not is_growing(path / GRAPH) or not len(GrowingGraph(path / GRAPH)):
            remove_run(path)
        raise


def _plan_and_settings(request: TrainRequest, earlier: dict[str, Any] | None) -> tuple[Plan, Settings]:
    """Plan and settings of the request, of the earlier run, or the defaults of online training."""
    start = Settings(fit_snapshots=FIT) if earlier is None else Settings().changed(earlier["settings"])
    settings = (start if request.settings is None else request.settings).changed(request.changes)
    settings = settings if settings.fit_snapshots is not None else replace(settings, fit_snapshots=FIT)
    plan = request.plan
    if plan is None:
        plan = request.services.online_plan() if earlier is None else Plan.from_json(earlier["plan"])
    plan = request.services.plan(plan) if isinstance(plan, str) else plan
    if settings.window is not None:
        plan = replace(plan, batching=plan.batching.with_window(settings.window))
    if "streaming batches" not in plan.batching.gives:
        raise OptionError(
            f"batching {plan.batching} wants all snapshots at once, and they arrive one by one: take batching sampled"
        )
    return plan, settings


def _with_earlier(request: TrainRequest, earlier: dict[str, Any] | None) -> TrainRequest:
    """The request, completed by that of a run that was stopped before its first snapshot."""
    if earlier is None or earlier["problem"] is not None:
        return request
    model, task = earlier["model"], earlier["task"]
    same = request.model is None or request.model == model["name"]
    options = (model["options"] if same else {}) | dict(request.model_options or {})
    known = request.task or (None if task is None else make_task(**task))
    return replace(request, model=request.model or model["name"], model_options=options, task=known)
