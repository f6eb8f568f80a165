"""What all commands share: the two consoles, progress bars, numbers for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

out = Console()
"""Results: what a user may pipe into a file."""

err = Console(stderr=True)
"""Progress, hints and errors."""

OnProgress = Callable[[int, int | None], None]


@contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """A progress bar on stderr; call what it gives with (done, total), or total None while it is unknown."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def file_size(num_bytes: float) -> str:
    """Bytes for people: 12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"
