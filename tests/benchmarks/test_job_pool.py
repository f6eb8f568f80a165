"""Jobs in processes side by side: what fails costs one job, what is done is not run again."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.job_pool import Job, run_jobs


def run_job(job: Job) -> int:
    """The square of a number; raises at 2, ends its process at 3."""
    if job["number"] == 2:
        raise ValueError("two")
    if job["number"] == 3:
        os._exit(7)
    return int(job["number"]) ** 2


def test_a_job_that_raises_or_whose_process_dies_costs_that_job_alone(tmp_path: Path) -> None:
    missing = dict[str, str]()
    jobs = [{"number": number} for number in range(6)]
    results = run_jobs(run_job, jobs, 1, tmp_path / "partial.jsonl", missing)
    assert results == [({"number": number}, number**2) for number in (0, 1, 4, 5)]
    assert missing == {
        '{"number": 2}': "ValueError('two')",
        '{"number": 3}': "the process ended with exit code 7",
    }


def test_results_that_are_there_are_not_computed_again(tmp_path: Path) -> None:
    partial = tmp_path / "partial.jsonl"
    partial.write_text('{"job": "{\\"number\\": 4}", "result": 17}\n')
    assert run_jobs(run_job, [{"number": 4}], 2, partial) == [({"number": 4}, 17)]
