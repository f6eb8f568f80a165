"""Online training: each snapshot is placed, evaluated before it is trained on, trained on, and saved.

Every rank runs this; rank 0 follows the source and builds the graph, which all ranks read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from time import monotonic, sleep
from typing import Any, Protocol

import numpy as np

from strobe.comm import Comm, SingleRankComm
from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.inputs.resolve import TrainRequest, resolve, resolve_plan, resolve_settings
from strobe.engine.launch.processes import LaunchConfig, OutputConfig, run_on_ranks
from strobe.engine.machine import choose_device, kill_on_second_interrupt
from strobe.engine.online.result import OnlineResult
from strobe.engine.online.trainer import GRAPH, OnlineTrainer
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import CONFIG, RunRecord, open_record, refuse_other_kind, remove_run
from strobe.engine.settings import Settings
from strobe.engine.sources.context import EngineSources
from strobe.errors import OptionError, StrobeError
from strobe.format import pluralize
from strobe.graph import DynamicGraph
from strobe.graph.convert import from_edges
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import hidden_sibling, is_growing
from strobe.graph.features import FeatureProvider, find_stored
from strobe.graph.follow.base import RowCounts
from strobe.plan import Plan
from strobe.tasks import make_task
from strobe.tasks.split import PARTS


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
            raise OptionError(f"a source is polled every poll_s seconds, more than 0, not {self.poll_s:g}")
        if self.snapshots is not None and self.snapshots < 1:
            raise OptionError(f"at least 1 snapshot is learnt from, not {self.snapshots}")


FIT = 8
"""Snapshots that scales are fitted to by default."""

_REJECTS = f"{GRAPH}.rejects.csv"
_NODES, _EDGES, _SNAPSHOTS = 8, 16, 64
"""Size of the synthetic graph that a request is checked on before any snapshot has arrived."""


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
    settings = resolve_settings(request, earlier, Settings(fit_snapshots=FIT))
    settings = settings if settings.fit_snapshots is not None else replace(settings, fit_snapshots=FIT)
    plan = resolve_plan(request, earlier, settings, request.services.online_plan)
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


def replace_run(
    path: Path,
    record: RunRecord,
    request: TrainRequest,
    ranks: int,
    *,
    open_source: OpenSource,
    source_config: Mapping[str, Any],
) -> None:
    """Record the configuration of a run before its first snapshot, and remove an earlier run: once the request and the
    source's first rows have been validated."""
    config = _config(path, request, ranks, source_config)
    if not (path / CONFIG).exists():
        record.announce(config)
        return
    _refuse_own_graph(path, source_config.get("source"))
    with _read_once(path, request, open_source) as arrived:
        rmtree(path / GRAPH, ignore_errors=True)
        (path / _REJECTS).unlink(missing_ok=True)
        record.announce(config)
        for each in arrived:
            each.rename(path / each.name)


@contextmanager
def _read_once(path: Path, request: TrainRequest, open_source: OpenSource) -> Iterator[list[Path]]:
    """Read the source once into a temporary directory; the run continues with it."""
    aside = hidden_sibling(path.resolve(), "arriving")
    rmtree(aside, ignore_errors=True)  # of one that was killed
    try:
        aside.mkdir()
        with closing(open_source(aside / GRAPH)) as source:
            dry_run(request, GrowingGraph(aside / GRAPH).open(0))
            source.poll()
        yield [aside / name for name in (GRAPH, _REJECTS) if (aside / name).exists()]
    finally:
        rmtree(aside, ignore_errors=True)


def _config(path: Path, request: TrainRequest, ranks: int, source_config: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(request.plan, Plan)
    assert request.settings is not None
    if request.model is None:
        raise OptionError("say which model to train")
    return {
        "graph": {"path": str((path / GRAPH).resolve())},
        "fingerprint": None,
        "model": choose_model(request.model, request.model_options).to_json(),
        "task": {"name": request.task} if isinstance(request.task, str) else request.task and request.task.to_json(),
        "problem": None,
        "settings": request.settings.to_json(),
        "plan": request.plan.to_json(),
        "ranks": ranks,
        "online": dict(source_config),
    }


def _refuse_own_graph(path: Path, source: str | None) -> None:
    if source is not None and Path(source).resolve().is_relative_to((path / GRAPH).resolve()):
        raise OptionError(f"{source} is what the run at {path} has kept: choose another place (--out)")


def dry_run(request: TrainRequest, empty: DynamicGraph) -> None:
    """Raises where model, task, plan or settings cannot be used on a graph like one that has no snapshots yet.

    Only what is derived from snapshots can be made up: a source that brings features or labels of its own is a graph,
    whose snapshots are there at once.
    """
    if empty.labels is not None or empty.features is None or find_stored(empty.features) is not None:
        return
    settings = request.settings
    assert settings is not None
    assert settings.fit_snapshots is not None
    made_up = _synthetic_graph(empty.features, directed=empty.directed)
    job = resolve(replace(request, graph=made_up, settings=replace(settings, fit_snapshots=None)), None, Progress())
    job.plan.batching.start(EngineSources(job))
    split = job.problem.split
    least = _SNAPSHOTS - split.test.stop + 2 * split.gap + len(PARTS)  # the last ones' targets have not arrived
    if settings.fit_snapshots < least:
        raise OptionError(
            f"a run of {job.task.name} begins with at least {least} snapshots, not {settings.fit_snapshots}: wait "
            "for more (fit_snapshots, --fit-snapshots)"
        )


def _synthetic_graph(features: FeatureProvider, *, directed: bool) -> DynamicGraph:
    drawn = np.random.default_rng(0)
    edges = [drawn.integers(0, _NODES, (2, _EDGES)) for _ in range(_SNAPSHOTS)]
    return from_edges(edges, num_nodes=_NODES, directed=directed, parallel="count").with_features(features)
