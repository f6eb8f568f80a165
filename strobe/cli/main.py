"""``strobe``: the program. Errors a user can mend end it with exit code 2 and a sentence, not a traceback."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

import strobe
from strobe.cli import data, evaluate, ingest, inspect, models, predict, train
from strobe.cli.console import err, out
from strobe.errors import StrobeError

app = typer.Typer(
    help="Train neural networks on graphs that change over time, from one core to a cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


_INTERRUPTED = 130


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
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("models")(models.models)


def run() -> None:
    """The entry point of the installed program."""
    try:
        app()
    except train.RunInterruptedError as stopped:
        err.print(Text(str(stopped)), soft_wrap=True)
        sys.exit(_INTERRUPTED)
    except StrobeError as error:
        err.print("[bold red]error:[/]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        err.print("[bold red]error:[/]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        advice = "take fewer snapshots a step (--window), compute more again (--recompute), or a smaller --hidden"
        err.print("[bold red]error:[/]", Text(f"not enough memory: {advice}"), highlight=False, soft_wrap=True)
        sys.exit(2)
    except SystemExit as left:
        if left.code == _INTERRUPTED:
            err.print("stopped: what was being written is gone, what was there before is as it was")
        raise


def _is_lack_of_memory(error: Exception) -> bool:
    """Torch says it in its own words: on a GPU by a class of its own, on the CPU in a sentence."""
    told = type(error).__name__, str(error)
    return isinstance(error, MemoryError) or told[0] == "OutOfMemoryError" or "can't allocate memory" in told[1]
