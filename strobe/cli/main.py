"""``strobe``: the program. Errors a user can mend end it with exit code 2 and a sentence, not a traceback; a rank that
failed ends it with 3, Ctrl-C with 130."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.text import Text

import strobe
from strobe.cli import (
    compare,
    data,
    evaluate,
    ingest,
    inspect,
    models,
    partition,
    plans,
    predict,
    simulate,
    train,
    watch,
)
from strobe.cli.console import err, is_first_rank, out
from strobe.errors import StrobeError
from strobe.io.atomic import disk_is_full

app = typer.Typer(
    help="Train neural networks on graphs that change over time, from one core to a cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

_REFUSED, _FAILED, _INTERRUPTED = 2, 3, 130


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"strobe {strobe.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


app.command("ingest")(ingest.ingest)
app.command("inspect")(inspect.inspect)
app.add_typer(data.app, name="data")
app.command("train")(train.train)
app.command("watch")(watch.watch)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("models")(models.models)
app.command("plans")(plans.plans)
app.command("compare")(compare.compare)
app.command("partition")(partition.partition)
app.command("simulate")(simulate.simulate)


def run() -> None:
    """The entry point of the installed program."""
    try:
        app()
    except train.RunInterruptedError as stopped:
        if is_first_rank():
            err.print(Text(str(stopped)), soft_wrap=True)
        sys.exit(_INTERRUPTED)
    except train.RunFailedError as error:
        _tell(str(error))
        sys.exit(_FAILED)
    except (StrobeError, OSError) as error:
        full = isinstance(error, OSError) and disk_is_full(error)
        _tell("the disk is full: free some space, or choose another place" if full else str(error))
        sys.exit(_REFUSED)
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        advice = "take fewer snapshots a step (--window), compute more again (--recompute), or a smaller --hidden"
        _tell(f"not enough memory: {advice}")
        sys.exit(_REFUSED)
    except SystemExit as left:
        if left.code == _INTERRUPTED:
            err.print("stopped: what was being written is gone, what was there before is as it was")
        raise


def _tell(text: str) -> None:
    who = "error:" if is_first_rank() else f"error in rank {os.environ['RANK']}:"
    err.print(f"[bold red]{who}[/]", Text(text), highlight=False, soft_wrap=True)


def _is_lack_of_memory(error: Exception) -> bool:
    """Torch says it in its own words: on a GPU by a class of its own, on the CPU in a sentence."""
    told = type(error).__name__, str(error)
    return isinstance(error, MemoryError) or told[0] == "OutOfMemoryError" or "can't allocate memory" in told[1]
