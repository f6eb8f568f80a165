"""What tests of all folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.ranks import begin_alike, threads_for_processes

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the programs that tests start, and for runs that leave it open


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def usual_threads() -> Iterator[None]:
    """For graphs of a handful of cells one: threads would only wait for each other, long if others use the cores."""
    with threads(1):
        yield


@pytest.fixture
def ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of several ranks start no process, each of which would take seconds to load torch."""
    begin_alike(monkeypatch)
    monkeypatch.setattr("strobe.engine.launch.run_ranks", threads_for_processes)
