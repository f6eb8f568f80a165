"""Ranks that one process forks which has loaded torch: processes like all others, without the seconds of loading it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from types import SimpleNamespace
from typing import Any

import pytest

_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ["strobe.api", "strobe.comm.launch.worker", "numba"]
"""Modules that ranks load, the last one once they train."""


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``run_ranks`` have its ranks forked. The launcher is not their parent, and OpenMP is loaded before."""
    _CONTEXT.set_forkserver_preload(_LOADED)
    first = _CONTEXT.Process(target=os.getpid)
    first.start()  # starts the process that forks, whose files stay open
    first.join()
    first.close()
    forking = SimpleNamespace(Popen=ForkedProcess, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("strobe.comm.launch.launcher.subprocess", forking)


class ForkedProcess:
    """What the launcher uses of ``subprocess.Popen``."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], **_: Any) -> None:
        files = [_File(number) for number in (1, 2, *pass_fds)]
        self._process = _CONTEXT.Process(target=_run_rank, args=(dict(env), files))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, minus the signal that ended it, or None while it runs."""
        if self._status is None and (status := self._process.exitcode) is not None:
            self._status = status
            self._process.close()
        return self._status

    def wait(self, timeout: float) -> None:
        if self.poll() is None:
            self._process.join(timeout)
            self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _File:
    """A file descriptor that a forked process receives under another number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.number),)


def _received(file: Any) -> _File:
    return _File(file.detach())


def _run_rank(environment: dict[str, str], files: list[_File]) -> None:
    from strobe.comm.launch import worker

    os.environ.clear()
    os.environ.update(environment)
    out, err, *others = (file.number for file in files)
    os.dup2(out, 1)
    os.dup2(err, 2)
    worker.main([str(number) for number in (os.getppid(), *others)])
