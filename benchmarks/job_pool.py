"""Independent parts of a benchmark in processes side by side, each result kept as soon as it is there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Job = dict[str, Any]


def run_jobs(function: Callable[[Job], Any], jobs: Iterable[Job], workers: int, partial: Path) -> list[tuple[Job, Any]]:
    """Run jobs on one thread each; those whose result is in ``partial`` already are not run again.

    Args:
        function: a function of a module, called with a job; what it returns must survive JSON.
        jobs: what to run, the most important first.
        workers: processes.
        partial: file with a line per result, to which results are appended.

    Returns:
        Jobs and results, in the order of ``jobs``; without those that failed.
    """
    jobs = list(jobs)
    known = {line["job"]: line["result"] for line in _lines(partial)}
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that begin from here on
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(function, job): _key(job) for job in jobs if _key(job) not in known}
        for number, future in enumerate(as_completed(futures), 1):
            key = futures[future]
            if (error := future.exception()) is not None:
                print(f"{key}: {error!r}", flush=True)
                continue
            known[key] = json.loads(json.dumps(future.result()))
            with partial.open("a") as file:
                file.write(json.dumps({"job": key, "result": known[key]}) + "\n")
            print(f"{number} of {len(futures)}: {key}", flush=True)
    return [(job, known[_key(job)]) for job in jobs if _key(job) in known]


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
