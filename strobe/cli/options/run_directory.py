"""Options of the run directory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from strobe.cli.options.run import RUN_PANEL
from strobe.errors import FormatError, OptionError

RUNS_DIRECTORY = Path("runs")


@dataclass(frozen=True, kw_only=True)
class RunDirectoryOptions:
    """The run directory, and whether to resume or replace the run in it."""

    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="RUN",
            help="The run directory. Without it, runs/GRAPH-MODEL, with a number if that exists.",
            show_default=False,
            rich_help_panel=RUN_PANEL,
        ),
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume the run in --out (else the latest of GRAPH and MODEL) as if it had never stopped.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run.", rich_help_panel=RUN_PANEL)
    ] = False


def resolve_run_directory(options: RunDirectoryOptions, graph: str | None, model: str) -> Path:
    """The run directory: ``--out``, else the next free ``runs/GRAPH-MODEL-N``, with ``--resume`` the latest one."""
    if options.to is not None:
        return options.to
    if graph is None:
        raise OptionError("give a graph to train on, or a run to resume: strobe train --resume --out RUN")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise OptionError("torchrun may restart this run, which must then find its directory: give it with --out")
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(graph).resolve().name)}-{model}"
    number = 1
    while (RUNS_DIRECTORY / _numbered(stem, number)).exists():
        number += 1
    if not options.resume:
        return RUNS_DIRECTORY / _numbered(stem, number)
    if number == 1:
        raise FormatError(f"there is no run at {RUNS_DIRECTORY / stem} to resume: give --out, or leave --resume out")
    return RUNS_DIRECTORY / _numbered(stem, number - 1)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"
