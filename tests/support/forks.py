"""Ranks forked from this process, which has all modules loaded, instead of started: seconds less for each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Set
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strobe.comm.launch import launcher, worker
from tests.support.kills import forked


class ForkedRank:
    """What the launcher uses of ``subprocess.Popen``."""

    def __init__(self, command: list[str], *, env: dict[str, str], pass_fds: Collection[int], **_: Any) -> None:
        def work() -> None:
            _close_all_but({0, 1, 2, *pass_fds})
            os.environ.clear()
            os.environ.update(env)
            worker.main(command[command.index("strobe.comm.launch.worker_main") + 1 :])

        self.returncode: int | None = None
        self.pid = forked(work)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float) -> int | None:
        until = monotonic() + timeout
        while self.poll() is None:
            if monotonic() > until:
                raise subprocess.TimeoutExpired("a rank", timeout)
            sleep(0.005)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _close_all_but(kept: Set[int]) -> None:
    """Close files of the parent, as Popen does: a rank with the launcher's end of its pipe would not see it close."""
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number not in kept:
            with suppress(OSError):  # that of the listing
                os.close(number)


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the launcher fork; but not where there is a GPU, for which autograd has threads that no fork survives."""
    if not torch.cuda.is_available():
        import_module("strobe.api")  # each rank would, as soon as it trains
        names = {"Popen": ForkedRank, "DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
        monkeypatch.setattr(launcher, "subprocess", SimpleNamespace(**names))
