"""Training as several processes: started here, or by torchrun."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import torch

from strobe.comm import Comm
from strobe.comm.launch.environment import Backend, check_backend, rank_from_environment, use_gpu
from strobe.comm.launch.launcher import RankError, run_ranks
from strobe.comm.process_group import DEADLINE_S, join
from strobe.engine.checkpoint.store import load_weights
from strobe.engine.inputs.graph_source import SavedGraph
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.machine import choose_device
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import CONFIG, last_started, read_config
from strobe.engine.records.startup import StartupClock
from strobe.engine.run import Run
from strobe.errors import OptionError
from strobe.format import pluralize
from strobe.io.temporary import TemporaryFolder

Result = TypeVar("Result")

_REPORT_EVERY_S = 0.05
_START_TIMEOUT_S = 120.0
"""Seconds that ranks wait for others to start: slower machines may still be importing."""


@dataclass(frozen=True)
class OutputConfig:
    """The run directory, and what to do with an earlier run in it."""

    out: str | os.PathLike[str] | None = None
    resume: bool = False
    overwrite: bool = False

    @property
    def path(self) -> Path | None:
        return None if self.out is None else Path(self.out)


@dataclass(frozen=True)
class LaunchConfig:
    """Number of ranks, message deadline, restarts from the last checkpoint after a failure, and what carries tensors
    on GPUs."""

    ranks: int = 1
    deadline_s: float = DEADLINE_S
    max_restarts: int = 0
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise OptionError(f"there is at least 1 rank, not {self.ranks}")
        if not self.deadline_s > 0:
            raise OptionError(f"ranks wait for each other for some time, not {self.deadline_s:g} s")
        if self.max_restarts < 0:
            raise OptionError(f"a run goes on 0 times or more, not {self.max_restarts}")


TrainOnRank = Callable[[TrainRequest, OutputConfig, Progress, Comm], Run]


def train_in_processes(
    train_here: TrainOnRank, request: TrainRequest, output: OutputConfig, progress: Progress, launch: LaunchConfig
) -> Run:
    """Train with processes on this machine; the run, in this process."""
    path = output.path
    earlier = read_config(path) if output.resume and path is not None else None
    job = resolve(request, earlier, progress, num_ranks=launch.ranks)
    with ExitStack() as stack:
        request = replace(request, graph=save_for_ranks(job, stack), problem=job.problem.state())
        restarts, before = 0, last_started(path)
        while True:
            try:
                payload = _run(train_here, request, output, progress, launch, job)
                break
            except RankError as error:
                # What is there may be a run to be replaced, if this one had not begun.
                if restarts == launch.max_restarts or (last_started(path) == before and not output.resume):
                    raise
                restarts += 1
                progress.note(f"{str(error).splitlines()[0]}; going on from the last checkpoint ({restarts})")
                output = replace(output, resume=True, overwrite=False)
    model, head = job.make_model()
    load_weights(model, head, payload["weights"])
    return Run(job=job, model=model, head=head, **payload["run"])


def _run(
    train_here: TrainOnRank,
    request: TrainRequest,
    output: OutputConfig,
    progress: Progress,
    launch: LaunchConfig,
    job: Job,
) -> dict[str, Any]:
    progress.stage(f"starting {launch.ranks} ranks", 0, None)
    times = StartupClock.around(progress).times
    check_backend(launch.backend, job.device)
    if job.device.type == "cuda" and launch.ranks > torch.cuda.device_count():
        progress.note(f"{launch.ranks} ranks share {pluralize(torch.cuda.device_count(), 'GPU')}")
    return run_on_ranks(
        lambda reporter, comm: _to_payload(train_here(request, output, StartupClock(reporter, times), comm)),
        launch,
        progress,
        threads=job.settings.threads,
        device=job.device,
    )


def run_on_ranks(
    work: Callable[[Progress, Comm], Result],
    launch: LaunchConfig,
    progress: Progress,
    *,
    threads: int | None,
    device: torch.device,
) -> Result:
    """Run ``work`` as processes on this machine. Rank 0 reports its progress to this process and returns the result."""

    def work_on_rank(comm: Comm, send: Callable[[Any], None]) -> Result | None:
        result = work(RemoteProgress(send) if comm.rank == 0 else Progress(), comm)
        return result if comm.rank == 0 else None

    def on_event(rank: int, event: tuple[str, tuple[Any, ...]]) -> None:
        del rank
        getattr(progress, event[0])(*event[1])

    results = run_ranks(
        work_on_rank,
        launch.ranks,
        deadline_s=launch.deadline_s,
        threads=threads,
        on_event=on_event,
        device=device.type,
        backend=launch.backend,
    )
    assert results[0] is not None
    return results[0]


def train_under_torchrun(
    train_here: TrainOnRank, request: TrainRequest, output: OutputConfig, progress: Progress, launch: LaunchConfig
) -> Run:
    """Train as one of the ranks that torchrun has started. Restarted after a failure, it resumes."""
    path = output.path
    wanted = request.changes.get("device", "auto" if request.settings is None else request.settings.device)
    device, nccl_device = choose_device(wanted), None
    check_backend(launch.backend, device)
    if device.type == "cuda":
        rank_env = rank_from_environment()
        assert rank_env is not None, "torchrun sets RANK"
        device, nccl_device = use_gpu(rank_env, launch.backend)
        request = replace(request, changes={**request.changes, "device": str(device)})
    comm = join(launch.deadline_s, max(launch.deadline_s, _START_TIMEOUT_S), nccl_device=nccl_device)
    # Each machine's torchrun counts for itself, and only failures of its own ranks: one who knows is enough.
    restarts = comm.all_gather_object(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), kind="setup")
    if any(restarts) and path is not None and (path / CONFIG).exists():
        output = replace(output, resume=True, overwrite=False)
    run = train_here(request, output, progress if comm.rank == 0 else Progress(), comm)
    comm.close()
    return replace(run, job=run.job.on_one_rank())


class RemoteProgress(Progress):
    """Sends progress to another process."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._last = 0.0

    def stage(self, what: str, done: int, total: int | None) -> None:
        self._send(("stage", (what, done, total)))

    def begin(self, info: dict[str, Any]) -> None:
        self._send(("begin", (info,)))

    def step(self, epoch: int, step: int) -> None:
        if monotonic() - self._last > _REPORT_EVERY_S:
            self._last = monotonic()
            self._send(("step", (epoch, step)))

    def epoch(self, line: dict[str, Any]) -> None:
        self._send(("epoch", (line,)))

    def note(self, text: str) -> None:
        self._send(("note", (text,)))


def save_for_ranks(job: Job, stack: ExitStack) -> Any:
    """The graph where every rank can open it: where it is, or saved for the while."""
    source = job.source
    if source.origin is not None and "path" in source.origin:
        return source.origin["path"]
    folder = stack.enter_context(TemporaryFolder("graph"))
    source.graph.save(folder.path / "graph")
    return SavedGraph(str(folder.path / "graph"), source.origin, source.name)


def _to_payload(run: Run) -> dict[str, Any]:
    """What the other process needs to have the same run."""
    weights = {"model": run.model.state_dict(), "head": run.head.state_dict()}
    names = ("history", "best_epoch", "validation", "test", "baselines", "memory", "ranks", "window", "seconds")
    more = ("path", "calibration", "backend", "startup")
    return {"weights": weights, "run": {name: getattr(run, name) for name in (*names, *more)}}
