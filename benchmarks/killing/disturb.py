"""Disturbs a process from inside: SIGKILL before its n-th file-system call, a clock that jumps, a memory limit.

Only the standard library is imported here: ranks load this file before anything else.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

VARIABLE = "STROBE_DISTURB_RANK"
"""The environment variable that says how a rank is disturbed, as JSON, with the rank in ``rank``."""

_EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
_PATCHED = ("fsync", "fdatasync", "write", "pwrite", "ftruncate", "copy_file_range", "sendfile")
_METHODS = {"write", "writelines", "flush", "truncate", "close", "tofile", "write_record", "write_end_of_file"}
_HOURS = (-10_000, -24, -1, 1, 24, 10_000)


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """What happens to a process. ``rank``: to this rank of the processes that it starts, not to itself.

    Args:
        kill_at: the file-system call, counted from 1, before which it is killed.
        writes: whether writes to Python's file objects count, besides calls that open, sync, rename or remove.
        clock_seed: of the moments and hours by which ``time.time`` jumps; None: it does not.
        memory_mib: what it may allocate beyond what it has.
    """

    kill_at: int | None = None
    writes: bool = False
    clock_seed: int | None = None
    memory_mib: int | None = None
    rank: int | None = None

    def install(self) -> Calls:
        """Disturb this process from now on, or the rank that it will start. Returns what it counts."""
        calls = Calls(self.kill_at)
        if self.rank is not None:
            os.environ[VARIABLE] = json.dumps(asdict(self))
            sys.path.insert(0, str(Path(__file__).parent / "site"))
            return calls
        calls.watch(writes=self.writes)
        if self.clock_seed is not None:
            _jump(self.clock_seed)
        if self.memory_mib is not None:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit = used + (self.memory_mib << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return calls


class Calls:
    """Counts calls that change files, and kills the process before one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.number = self.writes = 0
        self._kill_at = kill_at

    def count(self, *, write: bool = False) -> None:
        self.number += 1
        self.writes += write
        if self.number == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, *, writes: bool) -> None:
        """Count from now on. ``writes``: also writes to Python's file objects, which slows Python code down."""
        sys.addaudithook(self._audited)
        for name in _PATCHED:
            setattr(os, name, self._counted(getattr(os, name)))
        if writes:
            sys.setprofile(self._profiled)
            threading.setprofile(self._profiled)

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        opens = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if opens or event in _EVENTS:
            self.count()

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.count()
            return call(*args, **options)

        return counted

    def _profiled(self, frame: FrameType, event: str, arg: Any) -> None:
        del frame
        if event == "c_call" and arg.__name__ in _METHODS:
            of = getattr(arg, "__self__", None)
            if isinstance(of, io.IOBase) or arg.__name__ in ("tofile", "write_record", "write_end_of_file"):
                self.count(write=True)


def _jump(seed: int) -> None:
    """The time of day jumps by hours, forwards and backwards, about every third time it is read."""
    drawn, real, offset = random.Random(seed), time.time, [0.0]

    def jumping() -> float:
        if drawn.random() < 0.3:
            offset[0] = 3600.0 * drawn.choice(_HOURS)
        return real() + offset[0]

    time.time = jumping
    time.time_ns = lambda: int(jumping() * 1e9)


def disturb_rank() -> None:
    """In a rank's first moment: is this the one?"""
    told = os.environ.get(VARIABLE)
    if told is None or "RANK" not in os.environ:
        return
    what = json.loads(told)
    if what.pop("rank") == int(os.environ["RANK"]):
        Disturbance(**what).install()
