"""What tests of all folders share."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import isfunction
from types import CodeType
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.support.ranks import begin_alike, threads_for_processes

settings.register_profile("strobe", deadline=None)  # a test never fails because a machine is slow
settings.load_profile("strobe")

_USER_CACHE = "STROBE_TESTS_CACHE"


def pytest_configure() -> None:
    """No test reads or writes the user's cache folder, nor do the processes that it starts."""
    os.environ["STROBE_CACHE_LIMIT"] = "1G"  # benchmarks would turn the cache off
    os.environ["XDG_CACHE_HOME"] = os.environ[_USER_CACHE] = tempfile.mkdtemp(prefix="strobe-tests-")


def pytest_unconfigure() -> None:
    """Remove what tests have cached."""
    shutil.rmtree(os.environ[_USER_CACHE], ignore_errors=True)


MARKED = {
    "gpu": ("tests/comm/test_nccl.py", "tests/engine/test_cuda.py", "tests/ops/test_triton.py"),
    "ranks": (
        "tests/benchmarks/test_fingerprint.py",
        "tests/benchmarks/test_kills.py",
        "tests/engine/test_kill.py",
        "tests/examples",
        "tests/store/test_training.py",
        "tests/test_docs.py",
    ),
}
"""Marker -> files and folders of which all tests have it."""
STARTS = {
    "Popen",
    "forked",
    "get_context",
    "killed_before_step",
    "run_ranks",
    "start_ranks",
    "start_torchrun",
    "subprocess",
}
"""Names by which tests start processes."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set markers by path, and ``ranks`` where a test or its fixtures start processes; other tests are fast."""
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        for marker, prefixes in MARKED.items():
            if path.startswith(prefixes):
                item.add_marker(marker)
        if starts_processes(item):
            item.add_marker("ranks")
        if not any(item.get_closest_marker(name) for name in ("slow", "gpu", "ranks")):
            item.add_marker("fast")


def starts_processes(item: pytest.Item) -> bool:
    """Return whether a test, a fixture of it, or a function of its module that it calls has a name of ``STARTS``."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures is not None else ()
    functions = [getattr(item, "function", None), *(each[-1].func for each in definitions)]
    names = set[str]().union(*map(names_of, functions))
    helpers = [getattr(getattr(item, "module", None), name, None) for name in names]
    return not STARTS.isdisjoint(names.union(*(names_of(helper) for helper in helpers if isfunction(helper))))


@cache
def names_of(function: Any) -> frozenset[str]:
    """Return the global names and attributes that a function and the functions inside it use."""
    names, codes = set[str](), [getattr(function, "__code__", None)]
    while codes:
        if (code := codes.pop()) is not None:
            names.update(code.co_names)
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(names)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of torch threads inside the block."""
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
def interruptible() -> Iterator[None]:
    """SIGINT interrupts this process and the programs it starts, also where the suite ignores it (a background job)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of several ranks start no process, each of which would take seconds to load torch."""
    begin_alike(monkeypatch)
    monkeypatch.setattr("strobe.engine.launch.processes.run_ranks", threads_for_processes)
