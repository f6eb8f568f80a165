"""Runs fuzz targets in processes that may crash or hang, and says which input did it."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic

from benchmarks.fuzzing.target import FuzzTarget, SilentDifferenceError
from strobe.errors import StrobeError

HANG_S = 10.0
"""An input that takes longer is a hang."""
MEMORY_LIMIT = 16 << 30
"""Address space of a worker: an input that makes Strobe allocate without bound fails instead of taking the machine."""
_SETUP_S = 300.0
_INPUTS_PER_WORKER = 5_000  # then a fresh process: libraries' caches do not add up


@dataclass(frozen=True)
class Finding:
    """One input that broke a rule. ``python -m benchmarks.fuzz --replay TARGET:SEED`` runs it again."""

    target: str
    seed: str
    verdict: str
    """silent, foreign, native_crash or hang."""
    detail: str


@dataclass
class Outcome:
    """What came of one target's inputs."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest_s: float = 0.0


def run_input(target: FuzzTarget, seed: str, folder: Path) -> tuple[str, str]:
    """Run one input in this process. Returns its outcome, or a verdict, and a detail (empty where all is well)."""
    folder.mkdir()
    try:
        return target.run(random.Random(f"{target.name}:{seed}"), folder), ""
    except SilentDifferenceError as error:
        return "silent", str(error)
    except StrobeError:
        return "refused", ""
    except Exception:
        return "foreign", traceback.format_exc(limit=-6)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(make: Callable[[], FuzzTarget], seeds: list[str], scratch: Path, core: int, pipe: Connection) -> None:
    """A worker process, on one core: announce each seed, run it, report."""
    os.sched_setaffinity(0, {core})
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    target, cache = make(), scratch / "cache"
    cache.mkdir(parents=True)
    target.setup(cache)
    pipe.send(("ready", "", 0.0))
    for seed in seeds:
        pipe.send(("begin", seed, 0.0))
        began = monotonic()
        verdict, detail = run_input(target, seed, scratch / "input")
        pipe.send((verdict, detail, monotonic() - began))


class _Worker:
    """One worker process and the input it is running."""

    def __init__(self, make: Callable[[], FuzzTarget], seeds: list[str], scratch: Path, core: int) -> None:
        self.seeds, self.core, self.done, self.current = seeds, core, 0, ""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(make, seeds, scratch, core, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.deadline = monotonic() + _SETUP_S

    def end(self) -> int | None:
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def run_campaign(
    make: Callable[[], FuzzTarget],
    *,
    inputs: int,
    seed: int,
    workers: int,
    until: float,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Run inputs of a target until all are done or the clock (``monotonic``) passes ``until``.

    Args:
        make: makes the target in each worker; must be importable.
        inputs: how many inputs.
        seed: of the campaign; input k has seed ``{seed}.{k}``.
        workers: processes at a time.
        until: no input begins after this moment.
        progress: called after every input.
    """
    name, found = make().name, Outcome()
    chunk = max(1, min(_INPUTS_PER_WORKER, -(-inputs // workers)))
    waiting = [[f"{seed}.{k}" for k in range(at, min(at + chunk, inputs))] for at in range(0, inputs, chunk)][::-1]
    with tempfile.TemporaryDirectory(prefix="strobe-fuzz-") as scratch:
        number, running, cores = 0, list[_Worker](), sorted(os.sched_getaffinity(0))
        while (waiting or running) and (running or monotonic() < until):
            while waiting and len(running) < workers and monotonic() < until:
                number += 1
                core = min(cores, key=[worker.core for worker in running].count)
                running.append(_Worker(make, waiting.pop(), Path(scratch) / str(number), core))
            nearest = min([*(worker.deadline for worker in running), until]) - monotonic()
            ready = wait([worker.pipe for worker in running], timeout=min(max(nearest, 0.01), 1.0))
            for worker in list(running):
                if worker.pipe in ready and not _receive(worker, name, found, progress):
                    running.remove(worker)
                    if rest := worker.seeds[worker.done :]:
                        waiting.append(rest)
                elif monotonic() > worker.deadline:
                    assert worker.current, f"{name}: setup took longer than {_SETUP_S} s"
                    worker.end()
                    found.findings.append(Finding(name, worker.current, "hang", f"over {HANG_S:.0f} s"))
                    found.inputs += 1
                    running.remove(worker)
                    if rest := worker.seeds[worker.done + 1 :]:
                        waiting.append(rest)
            if monotonic() > until:
                for worker in running:
                    worker.end()
                break
    return found


def _receive(worker: _Worker, name: str, found: Outcome, progress: Callable[[Outcome], None]) -> bool:
    """Take one message of a worker; False once it has ended. A worker that died did so on its current input."""
    try:
        verdict, detail, seconds = worker.pipe.recv()
    except EOFError:
        worker.process.join()
        code = worker.process.exitcode
        if worker.current:
            worker.done += 1
            found.inputs += 1
            found.findings.append(Finding(name, worker.current, "native_crash", f"exit code {code}"))
        elif code:
            raise RuntimeError(f"{name}: a worker ended with code {code} before its first input") from None
        return False
    if verdict in ("ready", "begin"):
        worker.current = detail
        worker.deadline = monotonic() + (HANG_S if verdict == "begin" else _SETUP_S)
        return True
    found.inputs += 1
    found.outcomes[verdict] += 1
    found.slowest_s = max(found.slowest_s, seconds)
    if verdict in ("silent", "foreign"):
        found.findings.append(Finding(name, worker.current, verdict, detail))
    worker.done += 1
    worker.current = ""
    worker.deadline = monotonic() + _SETUP_S  # between inputs, and while the process ends, no input can hang
    progress(found)
    return True
