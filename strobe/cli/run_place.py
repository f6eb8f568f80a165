"""Where a run is kept: the directory that is given, the next that is free, or the last that is there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from strobe.cli.run_options import RUN_PANEL
from strobe.errors import FormatError, OptionError

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """The run directory, and what to do with a run that is there."""

    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="RUN",
            help="The run's directory. Without it, runs/GRAPH-MODEL, with a number if that is taken.",
            show_default=False,
            rich_help_panel=RUN_PANEL,
        ),
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in --out (else the latest of GRAPH and MODEL) as if it had never stopped.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.", rich_help_panel=RUN_PANEL)
    ] = False


def run_place(chosen: PlaceOptions, graph: str | None, model: str) -> Path:
    """The run directory that is meant."""
    if chosen.to is not None:
        return chosen.to
    if graph is None:
        raise OptionError("say which graph to train on, or which run to resume: strobe train --resume --out RUN")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise OptionError("torchrun may start this run again, which must then find its directory: say which with --out")
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(graph).resolve().name)}-{model}"
    number = 1
    while (RUNS / _numbered(stem, number)).exists():
        number += 1
    if not chosen.resume:
        return RUNS / _numbered(stem, number)
    if number == 1:
        raise FormatError(f"there is no run at {RUNS / stem} to resume: say which with --out, or leave --resume out")
    return RUNS / _numbered(stem, number - 1)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"
