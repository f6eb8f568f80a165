"""The program ``strobe``.

Exit codes: 2 for an error that the user can fix (one sentence, no traceback), 3 for a failed rank, 130 after Ctrl-C.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

import strobe
from strobe.cli.console import err, is_first_rank, out
from strobe.cli.errors import RunFailedError, RunInterruptedError
from strobe.errors import StrobeError
from strobe.io.atomic import disk_is_full

COMMANDS = {
    "ingest": "Make a dynamic graph from tables of events.",
    "inspect": "Show a graph's size, churn, degrees, sequence lengths, bytes and imbalance.",
    "data": "Download data sets by name, and generate synthetic graphs.",
    "train": "Train a model on a graph, and compare it with trivial baselines.",
    "online": "Train a model while snapshots arrive.",
    "evaluate": "Score the best weights of a run next to trivial baselines.",
    "predict": "Write the predictions of a run as a table, a row per node (or pair) and snapshot.",
    "models": "List models and tasks with their options and defaults.",
    "plans": "List plans and the choices they are made of, or show one plan.",
    "compare": "Train with several plans, one after the other, and compare their costs.",
    "benchmark": "Run published evaluation protocols, and show results beside the published ones.",
    "partition": "Show the cells, load and messages of every rank under a placement, without training.",
    "simulate": "Predict the time of an epoch on more ranks than this machine has.",
    "cache": "Show or clear the cache of results that runs on the same graph share.",
}
"""The first line of each command's help; ``strobe --help`` lists them without importing torch."""

_REFUSED, _FAILED, _INTERRUPTED = 2, 3, 130


def load_command(name: str) -> Any:
    """Import the module of a command and build its click command."""
    with _without_garbage_collection():
        command = getattr(import_module(f"strobe.cli.commands.{name}"), name)
        if not isinstance(command, typer.Typer):
            function, command = command, typer.Typer(add_completion=False, rich_markup_mode="markdown")
            command.command(name)(function)
        return typer.main.get_command(command)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Load modules, whose objects stay: torch makes half a million, and looking for garbage among them takes 0.15 s."""
    gc.disable()
    try:
        yield
    finally:
        _freeze_modules()
        gc.enable()


def _freeze_modules() -> None:
    """Leave what is loaded out of all later searches for garbage, also the one at exit. DuckDB reports objects that
    are not freed at exit; commands that load it need no torch."""
    if "duckdb" not in sys.modules:
        gc.freeze()


class _LazyGroup(TyperGroup):
    """A group that imports the module of the command that is run, and no other."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest


app = typer.Typer(
    cls=_LazyGroup,
    help="Train neural networks on graphs that change over time, from one core to a cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"strobe {strobe.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the program; the entry point of the installed script."""
    try:
        _run()
    finally:
        _freeze_modules()  # the search at exit takes 0.35 s where torch is loaded


def _run() -> None:
    try:
        app()
    except RunInterruptedError as interrupted:
        if is_first_rank():
            err.print(Text(str(interrupted)), soft_wrap=True)
        sys.exit(_INTERRUPTED)
    except RunFailedError as error:
        _print_error(str(error))
        sys.exit(_FAILED)
    except (StrobeError, OSError) as error:
        full = isinstance(error, OSError) and disk_is_full(error)
        _print_error("the disk is full: free some space, or choose another directory" if full else str(error))
        sys.exit(_REFUSED)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        advice = "use fewer snapshots per step (--window), recompute more (--recompute), or a smaller --hidden"
        _print_error(f"not enough memory: {advice}")
        sys.exit(_REFUSED)
    except SystemExit as left:
        if left.code == _INTERRUPTED:
            err.print("stopped: unfinished files were removed, existing files are unchanged")
        raise


def _print_error(text: str) -> None:
    prefix = "error:" if is_first_rank() else f"error in rank {os.environ['RANK']}:"
    err.print(f"[bold red]{prefix}[/]", Text(text), highlight=False, soft_wrap=True)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed: torch raises its own class on a GPU and a RuntimeError on the CPU."""
    name, text = type(error).__name__, str(error)
    return isinstance(error, MemoryError) or name == "OutOfMemoryError" or "can't allocate memory" in text
