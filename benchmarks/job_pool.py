"""Independent parts of a benchmark in processes side by side, each result kept as soon as it is there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

Job = dict[str, Any]


def run_jobs(
    function: Callable[[Job], Any],
    jobs: Iterable[Job],
    workers: int,
    partial: Path,
    missing: dict[str, str] | None = None,
) -> list[tuple[Job, Any]]:
    """Run jobs on one thread each; those whose result is in ``partial`` already are not run again.

    A job that raises, or whose process ends, has no result; the other jobs run on.

    Args:
        function: a function of a module, called with a job; what it returns must survive JSON.
        jobs: what to run, the most important first.
        workers: processes.
        partial: file with a line per result, to which results are appended.
        missing: gets the reason of each job without a result, by the job as JSON.

    Returns:
        Jobs and results, in the order of ``jobs``; without those that failed.
    """
    jobs = list(jobs)
    known = {line["job"]: line["result"] for line in _lines(partial)}
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that begin from here on
    waiting = [job for job in jobs if _key(job) not in known]
    done, total = 0, len(waiting)
    idle = [_Worker.start(function) for _ in range(min(workers, total))]
    busy: dict[Connection[Any, Any], tuple[_Worker, str]] = {}
    try:
        while waiting or busy:
            while idle and waiting:
                worker, job = idle.pop(), waiting.pop(0)
                worker.connection.send(job)
                busy[worker.connection] = worker, _key(job)
            ready = wait(list(busy))
            for connection in [each for each in busy if each in ready]:
                worker, key = busy.pop(connection)
                result, error = worker.receive()
                idle.append(worker if worker.process.is_alive() else _Worker.start(function))
                done += 1
                print(f"{done} of {total}: {key}{'' if error is None else f': {error}'}", flush=True)
                if error is not None:
                    (missing if missing is not None else {})[key] = error
                    continue
                known[key] = result
                with partial.open("a") as file:
                    file.write(json.dumps({"job": key, "result": result}) + "\n")
    finally:
        for worker in (*idle, *(worker for worker, _ in busy.values())):
            worker.process.terminate()
            worker.process.join()
    return [(job, known[_key(job)]) for job in jobs if _key(job) in known]


@dataclass(frozen=True)
class _Worker:
    """A process that runs jobs one after the other, and the connection to it."""

    process: SpawnProcess
    connection: Connection[Any, Any]

    @classmethod
    def start(cls, function: Callable[[Job], Any]) -> _Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(function, theirs))
        process.start()
        theirs.close()  # else its end would not be seen
        return cls(process, ours)

    def receive(self) -> tuple[Any, str | None]:
        """The result of the job sent, and the error if there is none."""
        try:
            result, error = json.loads(self.connection.recv())
        except (EOFError, ConnectionResetError):
            self.process.join()
            return None, f"the process ended with exit code {self.process.exitcode}"
        return result, error


def _serve(function: Callable[[Job], Any], connection: Connection[Any, Any]) -> None:
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            answer = json.dumps((function(job), None))
        except Exception as error:
            answer = json.dumps((None, repr(error)))
        connection.send(answer)


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
