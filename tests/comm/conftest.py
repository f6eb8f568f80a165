"""One job of three ranks for all tests of messages: processes take seconds to start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from strobe.comm.launch.launcher import run_ranks
from tests.support.comm_jobs import NUM_RANKS, all_checks


@dataclass(frozen=True)
class Job:
    """Results and events of the ranks."""

    results: list[dict[str, Any]]
    events: list[tuple[int, Any]]

    def part(self, name: str) -> list[Any]:
        return [result[name] for result in self.results]


@pytest.fixture(scope="session")
def job() -> Job:
    events = []
    offset = 40
    results = run_ranks(
        lambda comm, tell: all_checks(comm, tell, offset),
        NUM_RANKS,
        threads=2,
        on_event=lambda rank, event: events.append((rank, event)),
    )
    return Job(results, events)
