"""One job of three ranks for all tests of messages: processes take seconds to start."""

from __future__ import annotations

from typing import Any

import pytest

from strobe.comm.launch.launcher import run_ranks
from tests.support.comm_jobs import NUM_RANKS, all_checks
from tests.support.forks import fork_ranks

Job = dict[str, list[Any]]
"""Results of all ranks, by check."""


@pytest.fixture(scope="session")
def job() -> Job:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fork_ranks(monkeypatch)
        results = run_ranks(all_checks, NUM_RANKS, threads=1)
    return {name: [result[name] for result in results] for name in results[0]}
