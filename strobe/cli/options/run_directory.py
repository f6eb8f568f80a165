"""Options of the run directory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

from strobe.cli.options.groups import option
from strobe.cli.options.run import RUN_PANEL
from strobe.errors import FormatError, OptionError

RUNS_DIRECTORY = Path("runs")
_TO = "The run directory. Without it, runs/GRAPH-MODEL, with a number if that exists."
_RESUME = "Resume the run in --out (else the latest of GRAPH and MODEL) as if it had never stopped."


@dataclass(frozen=True, kw_only=True)
class RunDirectoryOptions:
    """The run directory, and whether to resume or replace the run in it."""

    to: Annotated[Path | None, option(_TO, "--out", "-o", metavar="RUN", panel=RUN_PANEL)] = None
    resume: Annotated[bool, option(_RESUME, "--resume", panel=RUN_PANEL)] = False
    overwrite: Annotated[bool, option("Replace an existing run.", "--overwrite", panel=RUN_PANEL)] = False


def resolve_run_directory(options: RunDirectoryOptions, graph: str | None, model: str) -> Path:
    """The run directory: ``--out``, else the next free ``runs/GRAPH-MODEL-N``, with ``--resume`` the latest one."""
    if options.to is not None:
        return options.to
    if graph is None:
        raise OptionError("give a graph to train on, or a run to resume: strobe train --resume --out RUN")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise OptionError("torchrun may restart this run, which must then find its directory: give it with --out")
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(graph).resolve().name)}-{model}"
    latest, path = None, RUNS_DIRECTORY / stem
    for number in count(2):
        if not path.exists():
            break
        latest, path = path, RUNS_DIRECTORY / f"{stem}-{number}"
    if not options.resume:
        return path
    if latest is None:
        raise FormatError(f"there is no run at {path} to resume: give --out, or leave --resume out")
    return latest
