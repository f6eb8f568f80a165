"""Training as several processes: started here, or by torchrun."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from strobe.comm import Comm
from strobe.comm.group import DEADLINE_S, join
from strobe.comm.launch import RankError, run_ranks
from strobe.comm.rank_environment import gpu_of
from strobe.engine.checkpoint import load_weights
from strobe.engine.job import Given, Job, choose
from strobe.engine.machine import choose_device
from strobe.engine.progress import Progress
from strobe.engine.record import CONFIG, last_begun, read_config
from strobe.engine.run import Run
from strobe.engine.source import Saved
from strobe.errors import OptionError
from strobe.io.temporary import TemporaryFolder
from strobe.numbers import number_of

_TELL_EVERY_S = 0.05
_START_S = 120.0
"""How long ranks wait for others to come: they may be on slower machines, still reading their programs."""


@dataclass(frozen=True)
class Place:
    """Where a run is kept, and what may be there already."""

    out: str | os.PathLike[str] | None = None
    resume: bool = False
    overwrite: bool = False

    @property
    def path(self) -> Path | None:
        return None if self.out is None else Path(self.out)


@dataclass(frozen=True)
class Team:
    """How many ranks, how long they wait for each other, and how often a failed run goes on from its checkpoint."""

    ranks: int = 1
    deadline_s: float = DEADLINE_S
    max_restarts: int = 0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise OptionError(f"there is at least 1 rank, not {self.ranks}")
        if not self.deadline_s > 0:
            raise OptionError(f"ranks wait for each other for some time, not {self.deadline_s:g} s")
        if self.max_restarts < 0:
            raise OptionError(f"a run goes on 0 times or more, not {self.max_restarts}")


TrainHere = Callable[[Given, Place, Progress, Comm], Run]


def in_processes(train_here: TrainHere, given: Given, place: Place, watch: Progress, team: Team) -> Run:
    """Trains with so many processes on this machine; what they came to, in this one."""
    path = place.path
    earlier = read_config(path) if place.resume and path is not None else None
    job = choose(given, earlier, watch, num_ranks=team.ranks)
    with ExitStack() as stack:
        given = replace(given, graph=found_by_all(job, stack), problem=job.problem.state())
        restarts, before = 0, last_begun(path)
        while True:
            try:
                told = _run(train_here, given, place, watch, team, job)
                break
            except RankError as error:
                # What is there may be a run to be replaced, if this one had not begun.
                if restarts == team.max_restarts or (last_begun(path) == before and not place.resume):
                    raise
                restarts += 1
                watch.note(f"{str(error).splitlines()[0]}; going on from the last checkpoint ({restarts})")
                place = replace(place, resume=True, overwrite=False)
    return _assembled(job, told)


def _run(train_here: TrainHere, given: Given, place: Place, watch: Progress, team: Team, job: Job) -> dict[str, Any]:
    def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Any] | None:
        run = train_here(given, place, Telling(tell) if comm.rank == 0 else Progress(), comm)
        return _told(run) if comm.rank == 0 else None

    watch.stage(f"starting {team.ranks} ranks", 0, None)
    if job.device.type == "cuda" and team.ranks > torch.cuda.device_count():
        watch.note(f"{team.ranks} ranks share {number_of(torch.cuda.device_count(), 'GPU')}")

    def heard(rank: int, event: tuple[str, tuple[Any, ...]]) -> None:
        getattr(watch, event[0])(*event[1])

    results = run_ranks(
        work,
        team.ranks,
        deadline_s=team.deadline_s,
        threads=job.settings.threads,
        on_event=heard,
        device=job.device.type,
    )
    assert results[0] is not None
    return results[0]


def as_rank_of_torchrun(train_here: TrainHere, given: Given, place: Place, watch: Progress, team: Team) -> Run:
    """Trains as one of the ranks that torchrun has started. Restarted after a failure, it goes on."""
    path = place.path
    wanted = given.changes.get("device", "auto" if given.settings is None else given.settings.device)
    device = choose_device(wanted)
    if device.type == "cuda":
        device = gpu_of(int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        given = replace(given, changes={**given.changes, "device": str(device)})
    comm = join(team.deadline_s, max(team.deadline_s, _START_S))
    # Each machine's torchrun counts for itself, and only failures of its own ranks: one who knows is enough.
    restarts = comm.gather(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), kind="setup")
    if any(restarts) and path is not None and (path / CONFIG).exists():
        place = replace(place, resume=True, overwrite=False)
    run = train_here(given, place, watch if comm.rank == 0 else Progress(), comm)
    comm.close()
    return replace(run, job=run.job.alone())


class Telling(Progress):
    """Tells another process."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._last = 0.0

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._tell(("stage", (what, done, total)))

    def begin(self, info: dict[str, Any]) -> None:
        self._tell(("begin", (info,)))

    def step(self, epoch: int, step: int) -> None:
        if monotonic() - self._last > _TELL_EVERY_S:
            self._last = monotonic()
            self._tell(("step", (epoch, step)))

    def epoch(self, line: dict[str, Any]) -> None:
        self._tell(("epoch", (line,)))

    def note(self, text: str) -> None:
        self._tell(("note", (text,)))


def found_by_all(job: Job, stack: ExitStack) -> Any:
    """The graph where every rank can open it: where it is, or saved for the while."""
    source = job.source
    if source.origin is not None and "path" in source.origin:
        return source.origin["path"]
    folder = stack.enter_context(TemporaryFolder("graph"))
    source.graph.save(folder.path / "graph")
    return Saved(str(folder.path / "graph"), source.origin, source.name)


def _told(run: Run) -> dict[str, Any]:
    """What the other process needs to have the same run."""
    weights = {"model": run.model.state_dict(), "head": run.head.state_dict()}
    names = ("history", "best_epoch", "validation", "test", "baselines", "memory", "ranks", "window", "seconds", "path")
    return {"weights": weights, "run": {name: getattr(run, name) for name in names}}


def _assembled(job: Job, told: dict[str, Any]) -> Run:
    model, head = job.make()
    load_weights(model, head, told["weights"])
    return Run(job=job, model=model, head=head, **told["run"])
