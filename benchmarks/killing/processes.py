"""Processes of a case: forked from one that has all modules loaded, each with what it starts a session of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

GONE_S = 10.0
"""How long ranks may outlive the process that started them."""

PARENT = -1
"""The process that started the ranks, where a rank's number may stand."""

_PR_SET_PDEATHSIG = 1


def forked(work: Callable[[], object], log: Path) -> int:
    """Start ``work`` in a child that writes to ``log``. Returns its process id; it ends with 0, 1 or a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child of a process with threads uses none of them
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        into = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(into, 1)
        os.dup2(into, 2)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def wait(pid: int, seconds: float) -> int | None:
    """The exit status of a child, minus the signal that ended it; None where it had to be ended after ``seconds``."""
    until = monotonic() + seconds
    while monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def orphans(session: int, seconds: float = GONE_S) -> int:
    """How many processes of a session are still there after ``seconds``; they are ended."""
    until = monotonic() + seconds
    while (left := _members(session)) and monotonic() < until:
        sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def _members(session: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, theirs = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has just ended
            continue
        if int(theirs) == session and state != "Z":
            found.append(int(folder.name))
    return found


def ranks_of(parent: int) -> dict[int, int]:
    """The ranks that a process has started and that still live: their process numbers by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(above) != parent or state == "Z" or b"worker_main" not in (folder / "cmdline").read_bytes():
                continue
            told = dict(each.split(b"=", 1) for each in (folder / "environ").read_bytes().split(b"\0") if each)
            found[int(told[b"RANK"])] = int(folder.name)
        except (OSError, KeyError):  # it has just ended, or just begun
            continue
    return found
