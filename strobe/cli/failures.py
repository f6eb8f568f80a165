"""Failures of a run, explained with the command that resumes it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from strobe.cli.errors import RunFailedError, RunInterruptedError
from strobe.comm.base import CommError
from strobe.comm.launch.failure import RankError
from strobe.errors import InputError


@contextmanager
def explain_failures(command: str, run_directory: Path, can_resume: Callable[[], bool]) -> Iterator[None]:
    """Convert Ctrl-C and failed ranks into errors that name the command to resume the run.

    Args:
        command: ``train`` or ``online``.
        run_directory: the directory of the run.
        can_resume: whether ``run_directory`` holds a checkpoint of this run.

    Raises:
        RunInterruptedError: after Ctrl-C.
        RunFailedError: a rank failed or did not answer.
        InputError: the source has bad rows.
    """

    def hint() -> str:
        resume = f"strobe {command} --resume --out {shlex.quote(str(run_directory))}"
        return f"\nresume with: {resume}" if can_resume() else ""

    try:
        yield
    except KeyboardInterrupt:
        how = hint()
        state = f"stopped; the last checkpoint is in {run_directory}" if how else "stopped before the first checkpoint"
        raise RunInterruptedError(state + how) from None
    except InputError as error:
        if not (how := hint()):
            raise
        raise InputError(f"{error}{how}") from error
    except (RankError, CommError) as error:
        if isinstance(error, RankError) and not str(error).startswith(f"rank {error.rank} "):
            raise  # a rank refused an option: the error is reported as if this process had refused it
        raise RunFailedError(f"{error}{hint()}") from error
