"""Training while snapshots arrive: each is placed, judged before it is learnt from, trained on, and kept.

Every rank runs this; rank 0 follows the source and builds the graph, which all read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from strobe.comm import Alone, Comm
from strobe.comm.group import DEADLINE_S
from strobe.comm.launch import run_ranks
from strobe.engine.anew import begin_anew
from strobe.engine.choice import ModelLike
from strobe.engine.interrupt import second_interrupt_kills
from strobe.engine.job import Given
from strobe.engine.launch import Place, Team, Telling
from strobe.engine.machine import choose_device
from strobe.engine.online import GRAPH, Online
from strobe.engine.progress import Progress
from strobe.engine.record import open_record, refuse_other_kind, remove_run
from strobe.engine.rehearsal import rehearse
from strobe.engine.settings import Settings
from strobe.engine.watched import Watched
from strobe.errors import OptionError, StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.description import is_growing
from strobe.graph.follow.base import Counts
from strobe.graph.growing import Growing
from strobe.numbers import number_of
from strobe.plan import Plan
from strobe.presets import ARRIVING, preset
from strobe.tasks import make_task
from strobe.tasks.base import Task


class Followed(Protocol):
    """A source of snapshots, which builds the graph on disk as they come."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def counts(self) -> Counts:
        """What became of its rows."""
        ...

    def poll(self, *, ended: bool = False) -> int:
        """Builds all snapshots that are complete by now; how many there are. ``ended``: nothing more will come, and
        the last one is complete, too."""
        ...

    def close(self) -> None:
        """Lets go of the source."""
        ...


Follow = Callable[[Path], Followed]
"""Begins to follow a source, or goes on with it, into a directory."""


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What a user said about a source that is watched: it is looked at every ``poll_s`` seconds, or ``once``, and then
    nothing more comes; the run ends after so many ``snapshots``. ``told`` is what the run remembers of the source."""

    follow: Follow
    told: Mapping[str, Any] = field(default_factory=dict)
    poll_s: float = 2.0
    once: bool = False
    snapshots: int | None = None

    def __post_init__(self) -> None:
        if not self.poll_s > 0:
            raise OptionError(f"a source is looked at every so many seconds, not every {self.poll_s:g}")
        if self.snapshots is not None and self.snapshots < 1:
            raise OptionError(f"at least 1 snapshot is learnt from, not {self.snapshots}")


FIT = 8
"""Snapshots that scales are fitted to, where nobody says how many."""


def watch(
    watching: Watching,
    model: ModelLike | None,
    task: str | Task | None = None,
    *,
    out: str | PathLike[str],
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    model_options: Mapping[str, Any] | None = None,
    plan: Plan | str | None = None,
    ranks: int = 1,
    deadline_s: float = DEADLINE_S,
    settings: Settings | None = None,
    **changes: Any,
) -> Watched:
    """Trains a model while snapshots arrive, until the source ends or enough are learnt from.

    The first ``fit`` snapshots say how features and targets are scaled, and are learnt from unjudged. From then on each
    is predicted from what came before it, judged, learnt from and saved. Stopped or killed at any moment, a run goes on
    with ``resume``: no snapshot is lost, none is learnt from twice.

    Args:
        watching: the source, and how it is looked at.
        model, task, model_options, settings, changes: as for ``train``; epochs and what goes with them do not count.
        out: the run directory; the graph that has arrived is in ``graph`` there, for ``train`` and ``inspect``, too.
        plan: a plan whose batches are sampled; by default the preset for snapshots that arrive.
        ranks: processes on this machine that train together.
    """
    progress = Progress() if progress is None else progress
    given = Given(None, model, task, model_options, settings, changes, None, plan)
    place, team = Place(out, resume, overwrite), Team(ranks, deadline_s)
    if ranks == 1:
        return watch_here(watching, given, place, progress, Alone())
    if watching.poll_s > deadline_s / 2:
        raise OptionError(f"ranks wait for {deadline_s:g} s at most: look at the source more often")

    def work(comm: Comm, tell: Callable[[Any], None]) -> Watched | None:
        heard = Telling(tell) if comm.rank == 0 else Progress()
        watched = watch_here(watching, given, place, heard, comm)
        return watched if comm.rank == 0 else None

    def heard(rank: int, event: tuple[str, tuple[Any, ...]]) -> None:
        del rank
        getattr(progress, event[0])(*event[1])

    start = (settings or Settings()).changed(changes)
    kind = choose_device(start.device).type
    watched = run_ranks(work, ranks, deadline_s=team.deadline_s, threads=start.threads, on_event=heard, device=kind)[0]
    assert watched is not None
    return watched


def watch_here(watching: Watching, given: Given, place: Place, progress: Progress, comm: Comm) -> Watched:
    """The same as one rank."""
    path = place.path
    assert path is not None
    mine = place if comm.rank == 0 else Place()
    with ExitStack() as stack:
        stack.enter_context(second_interrupt_kills())
        with comm.rank_0_alone("open"):
            record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.share(record.earlier, kind="setup")
        if earlier is not None:
            refuse_other_kind(path, earlier, watches=True)
        plan, settings = _plan_and_settings(given, earlier)
        plan.check(comm.num_ranks)
        given = replace(_with_earlier(given, earlier), plan=plan, settings=settings, changes={})
        with comm.rank_0_alone("start"):  # at its end the graph is there
            if comm.rank == 0 and earlier is None:
                if not mine.overwrite:
                    stack.enter_context(_gone_if_refused(path))
                begin_anew(path, record, given, comm.num_ranks, follow=watching.follow, told=watching.told)
            source = stack.enter_context(closing(watching.follow(path / GRAPH))) if comm.rank == 0 else None
            if source is not None and (earlier is None or earlier["problem"] is None):
                rehearse(given, Growing(path / GRAPH).open(0))
        online = Online(
            given,
            earlier,
            path,
            record,
            progress,
            comm,
            told=watching.told,
            limit=watching.snapshots,
        )
        try:
            known = Counts() if source is None or earlier is None else source.counts
            for graph in _arriving(watching, source, known, path / GRAPH, online, progress, comm):
                online.arrive(graph)
                if online.enough:
                    break
        except KeyboardInterrupt:
            record.event("interrupted", epoch=online.learnt)
            raise
        return online.finish({} if source is None else asdict(source.counts))


def _arriving(
    watching: Watching,
    source: Followed | None,
    known: Counts,
    path: Path,
    online: Online,
    progress: Progress,
    comm: Comm,
) -> Iterator[DynamicGraph]:
    """The graph as it is whenever one more snapshot has arrived. Rank 0 looks, all are told; the user is of what has
    been left out since so much was ``known``."""
    growing: Growing | None = None
    resumed, before = False, -1
    while True:
        with comm.rank_0_alone("read"):
            looked = None if source is None else (source.poll(ended=watching.once), source.ended)
        if source is not None:
            _tell_left_out(known, source.counts, progress)
            known = source.counts
        there, ended = comm.share(looked, kind="arrivals")
        if growing is None and there:
            growing = Growing(path)
        if growing is not None and not resumed:
            resumed = True
            online.resume(growing)
        while growing is not None and online.arrived < there:
            yield growing.open(online.arrived + 1)
        if ended:
            return
        if there == before:  # one that has had something may have more
            online.rest()
            progress.stage(_waiting(growing), online.learnt, watching.snapshots)
            if comm.rank == 0:
                _rest(watching.poll_s)
        before = there


def _tell_left_out(before: Counts, now: Counts, progress: Progress) -> None:
    late, bad = now.late_rows - before.late_rows, now.bad_rows - before.bad_rows
    if late:
        progress.note(f"left out {number_of(late, 'row')} that came too late: the snapshot was complete")
    if bad:
        progress.note(f"left out {number_of(bad, 'bad row')}: see {GRAPH}.rejects.csv in the run")


def _rest(seconds: float) -> None:
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        sleep(min(left, 0.5))


def _waiting(growing: Growing | None) -> str:
    if growing is None or not growing.parts:
        return "waiting for the first snapshot"
    return f"waiting for what comes after {growing.parts[-1].time}"


@contextmanager
def _gone_if_refused(path: Path) -> Iterator[None]:
    """A run that is refused before its first snapshot arrives leaves nothing: the same command may be given again."""
    try:
        yield
    except StrobeError:
        if not is_growing(path / GRAPH) or not len(Growing(path / GRAPH)):
            remove_run(path)
        raise


def _plan_and_settings(given: Given, earlier: dict[str, Any] | None) -> tuple[Plan, Settings]:
    """What was said, what the earlier run had, or what is usual for a run that watches."""
    start = Settings(fit=FIT) if earlier is None else Settings().changed(earlier["settings"])
    settings = (start if given.settings is None else given.settings).changed(given.changes)
    settings = settings if settings.fit is not None else replace(settings, fit=FIT)
    plan = given.plan
    if plan is None:
        plan = preset(ARRIVING) if earlier is None else Plan.from_json(earlier["plan"])
    plan = preset(plan) if isinstance(plan, str) else plan
    if settings.window is not None:
        plan = replace(plan, batching=plan.batching.cut(settings.window))
    if plan.batching.sampling is None:
        raise OptionError(
            f"batching {plan.batching} wants all snapshots at once, and they arrive one by one: take batching sampled"
        )
    return plan, settings


def _with_earlier(given: Given, earlier: dict[str, Any] | None) -> Given:
    """What was said; of a run that was stopped before it began, what was said then."""
    if earlier is None or earlier["problem"] is not None:
        return given
    model, task = earlier["model"], earlier["task"]
    same = given.model is None or given.model == model["name"]
    options = (model["options"] if same else {}) | dict(given.model_options or {})
    known = given.task or (None if task is None else make_task(**task))
    return replace(given, model=given.model or model["name"], model_options=options, task=known)
