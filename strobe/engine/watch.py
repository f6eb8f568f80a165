"""Training while snapshots arrive: each is placed, judged before it is learnt from, trained on, and kept.

Every rank runs this; rank 0 follows the source and builds the graph, which all read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Protocol

from strobe.comm import Alone, Comm
from strobe.comm.group import DEADLINE_S
from strobe.comm.launch import run_ranks
from strobe.engine.arrivals import Arrivals
from strobe.engine.checkpoint import State
from strobe.engine.choice import ModelLike, choose_model
from strobe.engine.diverged import DivergedError
from strobe.engine.evaluate import score
from strobe.engine.interrupt import second_interrupt_kills
from strobe.engine.job import Given, Job, choose
from strobe.engine.launch import Place, Team, Telling
from strobe.engine.machine import choose_device, peak_bytes, random_state
from strobe.engine.progress import Progress
from strobe.engine.record import ONLINE, Record, open_record, refuse_other_kind
from strobe.engine.rehearsal import rehearse
from strobe.engine.sampled import SampledSteps
from strobe.engine.settings import Settings
from strobe.engine.source import Source
from strobe.engine.train import begin, ledgers, train_step
from strobe.engine.watched import Watched
from strobe.errors import InputError, OptionError, StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.description import is_growing
from strobe.graph.growing import Growing
from strobe.numbers import number_of
from strobe.plan import Plan
from strobe.presets import ARRIVING, preset
from strobe.sync import Syncing
from strobe.tasks import make_task
from strobe.tasks.base import Metrics, Task

if TYPE_CHECKING:
    from strobe.graph.follow import Counts

GRAPH = "graph"
"""Where a run keeps the graph that has arrived."""


class Arriving(Protocol):
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


Follow = Callable[[Path], Arriving]
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
        record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.share(record.earlier, kind="setup")
        if earlier is not None:
            refuse_other_kind(path, earlier, watches=True)
        plan, settings = _plan_and_settings(given, earlier)
        plan.check(comm.num_ranks)
        given = replace(_with_earlier(given, earlier), plan=plan, settings=settings, changes={})
        if comm.rank == 0 and earlier is None:
            if not mine.overwrite:
                stack.enter_context(_gone_if_refused(path))
            _begin_anew(path, record, watching, given, comm.num_ranks)
        source = stack.enter_context(_following(watching, path / GRAPH)) if comm.rank == 0 else None
        if source is not None and (earlier is None or earlier["problem"] is None):
            rehearse(given, Growing(path / GRAPH).open(0))
        comm.share(None, kind="setup")  # the graph is there
        online = Online(watching, given, earlier, path, record, progress, comm)
        try:
            for graph in _arriving(watching, source, path / GRAPH, online, progress, comm):
                online.arrive(graph)
                if online.enough:
                    break
        except KeyboardInterrupt:
            record.event("interrupted", epoch=online.learnt)
            raise
        return online.finish({} if source is None else asdict(source.counts))


class Online:
    """A run that learns from snapshots one by one; it begins when there are enough to fit scales to."""

    def __init__(
        self,
        watching: Watching,
        given: Given,
        earlier: dict[str, Any] | None,
        path: Path,
        record: Record,
        progress: Progress,
        comm: Comm,
    ) -> None:
        assert given.settings is not None
        assert isinstance(given.plan, Plan)
        assert given.settings.fit is not None
        assert given.plan.batching.sampling is not None
        self._watching, self._given, self._path = watching, given, path
        self._record, self._progress, self._comm = record, progress, comm
        self._fit, self._limit = given.settings.fit, watching.snapshots
        self._earlier = earlier if earlier is not None and earlier["problem"] is not None else None
        keeps = given.plan.batching.sampling.snapshots + self._fit  # answers may be known that much later
        self._arrivals = Arrivals(given.plan, comm, given.settings.seed, keeps)
        self._job: Job | None = None
        self._state: State | None = None
        self._steps: SampledSteps | None = None
        self._sync: Syncing | None = None
        self._unsaved = False

    @property
    def learnt(self) -> int:
        """How many snapshots have been learnt from."""
        return 0 if self._state is None else self._state.epoch

    @property
    def arrived(self) -> int:
        """How many snapshots have been placed."""
        return self._arrivals.count

    @property
    def enough(self) -> bool:
        return self._limit is not None and self.learnt >= self._limit

    def resume(self, graph: Growing) -> None:
        """Goes on where the run stopped."""
        if self._earlier is not None:
            self._begin(graph.open())
            self._learn_all(graph.open(self.arrived))

    def arrive(self, graph: DynamicGraph) -> None:
        """The last snapshot of a graph has arrived; all before it had."""
        self._arrivals.arrive(graph[len(graph) - 1])
        self._learn_all(graph)

    def _learn_all(self, graph: DynamicGraph) -> None:
        """Learns from all snapshots whose answers are known."""
        if len(graph) < self._fit:
            return
        if self._job is None:
            self._begin(graph)
        assert self._job is not None
        self._follow(graph)
        newest = self._job.problem.split.validation.start
        for t in range(self.learnt, newest + 1):
            if self.enough:
                return
            self._learn(graph, t, judged=len(graph) > self._fit)

    def finish(self, rows: Mapping[str, int]) -> Watched:
        """All that came of it; ``rows`` are those of the source, counted by what became of them."""
        job, state = self._job, self._state
        if job is None or state is None:
            raise OptionError(
                f"no more than {number_of(self.arrived, 'snapshot')} arrived, and scales are fitted to {self._fit}: "
                "go on when there are more, or fit them to fewer (fit, --fit)"
            )
        self._save()
        watched = replace(self._watched(job, state), rows=rows)
        self._record.finish(watched.to_json(), {ONLINE: watched.picture()})
        return watched

    def _watched(self, job: Job, state: State) -> Watched:
        return Watched(
            path=self._path,
            graph=job.source.name,
            model=job.choice.name,
            task=job.task.name,
            metric=job.problem.metric,
            higher_is_better=job.problem.higher_is_better,
            history=state.history,
            weights=state.weights(),
        )

    def _begin(self, graph: DynamicGraph) -> None:
        """Weights, and what they are trained with; from a checkpoint, where there is one."""
        given = replace(self._given, graph=graph[: self._fit] if self._earlier is None else graph)
        earlier = None if self._earlier is None else self._earlier | {"fingerprint": None}
        try:
            job = choose(given, earlier, self._progress, self._comm)
        except InputError as error:
            about = f"the first {self._fit} snapshots, to which scales are fitted (fit, --fit)"
            raise InputError(f"{error}\nThis is about {about}.") from error
        name = str(self._watching.told.get("name", GRAPH))
        self._job = replace(job, source=Source(graph, {"path": str((self._path / GRAPH).resolve())}, name))
        told = self._job.to_json() | {"fingerprint": None, "watch": dict(self._watching.told)}
        self._state = begin(self._job, self._record, self._progress, resumed=self._earlier is not None, config=told)
        arrived = self._comm.share(self._state.arrived, kind="setup")
        if self._earlier is not None and arrived is not None:
            self._arrivals.recall(arrived, graph)
        self._state.arrived = None
        weights = self._state.optimiser.param_groups[0]["params"]
        self._sync = self._job.plan.sync.start(weights, self._comm, self._state.optimiser, free=False)

    def _follow(self, graph: DynamicGraph) -> None:
        """The same run on a graph that has grown."""
        assert self._job is not None
        job = self._job
        problem = job.task.bind(graph, seed=job.settings.seed, state=job.problem.state())
        newest = problem.split.test.stop - 1
        self._job = replace(job, source=replace(job.source, graph=graph), problem=problem.at(newest))
        placed = self._arrivals.placed(graph)
        self._job.decide(placed)

    def _learn(self, graph: DynamicGraph, t: int, *, judged: bool) -> None:
        """Judges the newest snapshot whose answers are known, then learns from it."""
        assert self._job is not None
        assert self._state is not None
        assert self._sync is not None
        job, state = self._job, self._state
        self._steps = SampledSteps(job) if self._steps is None else self._steps
        line: dict[str, Any] = {"epoch": t + 1, "snapshot": str(graph.times[t]), "arrived": len(graph)}
        began = perf_counter()
        if judged:
            line |= self._judged(t)
        trained = perf_counter()
        steps, loss = self._trained(t)
        state.epoch = t + 1
        before = state.history[-1]["step"] if state.history else 0
        line |= {"step": before + steps, "loss": loss, "best": None, "best_epoch": 0, "lr": job.settings.lr}
        line |= {"train_s": round(perf_counter() - trained, 6), "evaluate_s": round(trained - began, 6)}
        line |= peak_bytes(job.device)
        did, _ = ledgers(job)
        line |= did
        if not state.is_finite():
            raise DivergedError("a weight of the model", state.epoch, job.settings)
        state.history.append(line)
        self._record.epoch(line)
        self._unsaved = True
        if self._comm.share(self._record.is_due(), kind="setup"):
            self._save()
        self._progress.epoch(line)

    def rest(self) -> None:
        """Nothing has arrived: what was learnt is saved, for those who want to use it meanwhile."""
        if self._unsaved:
            self._save()

    def _judged(self, t: int) -> dict[str, Any]:
        assert self._job is not None
        assert self._state is not None
        part = range(t, t + 1)
        found: Metrics = score(self._state.model, self._state.head, self._job, self._job.stream(part), part)
        baselines = self._job.problem.baselines("validation") if self._comm.rank == 0 else {}
        problem = self._job.problem
        told = {"metric": problem.metric, "higher_is_better": problem.higher_is_better}
        return {**told, "validation": found, "baselines": baselines}

    def _trained(self, t: int) -> tuple[int, float | None]:
        """The steps that were taken, and the mean loss of all examples, each before the step it led to; None without
        any."""
        assert self._job is not None
        assert self._state is not None
        assert self._steps is not None
        assert self._sync is not None
        self._state.model.train()
        self._state.head.train()
        self._sync.epoch_begins()
        total, examples, step = 0.0, 0.0, 0
        for step, mine in enumerate(self._steps.windows(self._job, range(t, t + 1), 0), 1):
            self._comm.ledger.at(t + 1, step)
            value, number, _ = train_step(self._job, self._state, self._sync, mine, None, 0)
            if not math.isfinite(value):
                raise DivergedError("the loss", t + 1, self._job.settings)
            total, examples = total + value, examples + number
            self._progress.step(t + 1, step)
        self._sync.epoch_ends()
        return step, total / examples if examples else None

    def _save(self) -> None:
        assert self._job is not None
        assert self._state is not None
        with self._comm.ledger.phase("save"):
            self._state.random = self._comm.gather(random_state(), kind="setup")
            self._state.arrived = self._arrivals.remembered() if self._comm.rank == 0 else None
            self._record.save(self._state)
            self._state.arrived = None
            if self._comm.rank == 0:
                self._record.draw({ONLINE: self._watched(self._job, self._state).picture()})
        self._unsaved = False


def _arriving(
    watching: Watching, source: Arriving | None, path: Path, online: Online, progress: Progress, comm: Comm
) -> Iterator[DynamicGraph]:
    """The graph as it is whenever one more snapshot has arrived. Rank 0 looks, all are told."""
    growing: Growing | None = None
    resumed, before = False, -1
    known = None if source is None else source.counts
    while True:
        looked = None if source is None else (source.poll(ended=watching.once), source.ended)
        if source is not None and known is not None:
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
            rmtree(path, ignore_errors=True)
        raise


@contextmanager
def _following(watching: Watching, path: Path) -> Iterator[Arriving]:
    source = watching.follow(path)
    try:
        yield source
    finally:
        source.close()


def _plan_and_settings(given: Given, earlier: dict[str, Any] | None) -> tuple[Plan, Settings]:
    """What was said, what the earlier run had, or what is usual for a run that watches."""
    start = Settings(fit=FIT) if earlier is None else Settings(**earlier["settings"])
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


def _begin_anew(path: Path, record: Record, watching: Watching, given: Given, ranks: int) -> None:
    """Removes what an earlier run left, and says what this one is, before the first snapshot."""
    if (path / GRAPH).exists():
        _refuse_in_vain(path, watching)
    rmtree(path / GRAPH, ignore_errors=True)
    (path / f"{GRAPH}.rejects.csv").unlink(missing_ok=True)
    assert isinstance(given.plan, Plan)
    assert given.settings is not None
    if given.model is None:
        raise OptionError("say which model to train")
    record.announce(
        {
            "graph": {"path": str((path / GRAPH).resolve())},
            "fingerprint": None,
            "model": choose_model(given.model, given.model_options).to_json(),
            "task": _task_json(given.task),
            "problem": None,
            "settings": given.settings.to_json(),
            "plan": given.plan.to_json(),
            "ranks": ranks,
            "watch": dict(watching.told),
        }
    )


def _refuse_in_vain(path: Path, watching: Watching) -> None:
    """Raises where a run would be removed for a source that cannot be followed, or that is its own graph."""
    source = watching.told.get("source")
    if source is not None and Path(source).resolve().is_relative_to((path / GRAPH).resolve()):
        raise OptionError(f"{source} is what the run at {path} has kept: choose another place (--out)")
    with TemporaryDirectory(prefix="strobe-watch-") as aside, _following(watching, Path(aside) / GRAPH):
        pass


def _task_json(task: str | Task | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {"name": task} if isinstance(task, str) else task.to_json()
