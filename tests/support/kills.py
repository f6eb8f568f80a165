"""Run a function in a child that is killed before its n-th change to the file system."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any


def forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child and return its pid; it ends with 0, 1, the code of an exit, or by a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads: the child only writes files
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def is_running(child: int) -> bool:
    """Return whether a child of this process has not ended; one that has can still be killed and waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def killed_before_step(step: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a child that kills itself before its n-th change to the file system; False if it finished."""

    def work_and_die() -> None:
        steps = 0

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal steps
            written = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if written or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
                steps += 1
                if steps > step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    _, status = os.waitpid(forked(work_and_die), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
