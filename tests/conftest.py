"""What tests of all folders share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Barrier, Lock

import pytest
import torch
from torch import nn

from tests.ranks import threads_for_processes

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
    from strobe.engine.checkpoint import State
    from strobe.engine.job import Job

    make, lock = Job.make, Lock()

    def made(job: Job) -> tuple[nn.Module, nn.Module]:
        with lock:  # random numbers are one stream for all threads
            return make(job)

    monkeypatch.setattr(Job, "make", made)
    all_have: dict[int, Barrier] = {}
    for module in ("train", "online"):
        where = import_module(f"strobe.engine.{module}")  # not by its name: a function is called so, too

        def everywhere(job: Job, fresh: Callable[[Job], State] = where.fresh) -> State:
            state = fresh(job)
            with lock:
                barrier = all_have.setdefault(job.comm.num_ranks, Barrier(job.comm.num_ranks))
            barrier.wait(60)  # before one of them goes on and draws something else
            return state

        monkeypatch.setattr(where, "fresh", everywhere)
    monkeypatch.setattr("strobe.engine.launch.run_ranks", threads_for_processes)
