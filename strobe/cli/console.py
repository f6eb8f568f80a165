"""Consoles, progress bars and other output that commands share."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from strobe.format import file_size
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.progress import OnProgress, OnStage
from strobe.io.atomic import nan_to_none

out = Console()
"""Results, on stdout."""

err = Console(stderr=True)
"""Progress, hints and errors, on stderr."""


def print_result(*lines: str) -> None:
    """Print lines on stdout as they are."""
    out.print(Text("\n".join(lines)), soft_wrap=True)


def print_note(text: str, style: str = "") -> None:
    """Print a hint or a warning on stderr as it is."""
    err.print(Text(text), style=style, soft_wrap=True)


def print_json(values: Any) -> None:
    """Print one line of JSON on stdout; numbers that JSON does not know become null."""
    typer.echo(json.dumps(nan_to_none(values), allow_nan=False))


def is_first_rank() -> bool:
    """Whether this process prints results: rank 0 of torchrun, or a process that torchrun did not start."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def stage_bar() -> Iterator[OnStage]:
    """Show a progress bar on stderr; yields a function of (stage, done, total), total None while it is unknown."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def update(stage: str, done: int, total: int | None) -> None:
            if bar.tasks[0].description != stage:
                bar.reset(task, total=total, description=stage)
            bar.update(task, completed=done, total=total)

        yield update


@contextmanager
def progress_bar(stage: str) -> Iterator[OnProgress]:
    """Show a progress bar of one stage; yields a function of (done, total)."""
    with stage_bar() as on_stage:
        on_stage(stage, 0, None)
        yield lambda done, total: on_stage(stage, done, total)


def text_bar(share: float, width: int) -> str:
    """Draw a share, clipped to 1, as a bar of full and partial blocks."""
    full, eighths = divmod(round(min(share, 1.0) * width * 8), 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")


def show_written(graph: DynamicGraph, path: Path) -> None:
    """Print a written graph, its size on disk and the next command."""
    size = file_size(sum(file.stat().st_size for file in path.iterdir()))
    print_result(repr(graph), f"{size} at {path}")
    print_note(f"Next: strobe inspect {shlex.quote(str(path))}")
