"""What all commands share: the two consoles, progress bars, and how a new graph is announced."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from strobe.graph.dynamic import DynamicGraph
from strobe.graph.progress import OnProgress, OnStage
from strobe.numbers import file_size

out = Console()
"""Results: what a user may pipe into a file."""

err = Console(stderr=True)
"""Progress, hints and errors."""


def is_first_rank() -> bool:
    """Whether this process may print results: of all ranks that torchrun has started only one does."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def stage_bar() -> Iterator[OnStage]:
    """A progress bar on stderr; call what it gives with (stage, done, total), or total None while it is unknown."""
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
def progress_bar(what: str) -> Iterator[OnProgress]:
    """A progress bar of one stage; call what it gives with (done, total)."""
    with stage_bar() as on_stage:
        on_stage(what, 0, None)
        yield lambda done, total: on_stage(what, done, total)


def show_written(graph: DynamicGraph, path: Path) -> None:
    """Says what was written, where, how large it is, and what to do next."""
    size = file_size(sum(file.stat().st_size for file in path.iterdir()))
    out.print(f"{graph!r}\n{size} at {path}", highlight=False, markup=False, soft_wrap=True)
    err.print(f"Next: strobe inspect {shlex.quote(str(path))}", highlight=False, markup=False, soft_wrap=True)
