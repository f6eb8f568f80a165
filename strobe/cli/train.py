"""``strobe train``: a model learns from a graph."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from strobe.cli import run_options as given
from strobe.cli.console import err, out
from strobe.cli.data import DataDirOption
from strobe.cli.run_options import MACHINE_PANEL, RUN_PANEL, TRAIN_PANEL
from strobe.errors import FormatError, OptionError

if TYPE_CHECKING:
    from strobe.engine import Run
    from strobe.tasks import Task

RUNS = Path("runs")


class RunInterruptedError(Exception):
    """Ctrl-C; the text says how to go on."""


def train(
    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH",
            help="The directory of a saved graph, or the name of a data set. With --resume, the run's own.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A model that `strobe models` names.", show_default="tgcn")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            "-t",
            help="A task that `strobe models` names. Without it, the one that fits the graph's labels.",
            show_default=False,
        ),
    ] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the model's embeddings.", show_default="32")] = None,
    model_option: Annotated[
        list[str] | None,
        typer.Option("--model-option", metavar="NAME=VALUE", help="An option of the model, such as layers=2."),
    ] = None,
    task_option: Annotated[
        list[str] | None,
        typer.Option("--task-option", metavar="NAME=VALUE", help="An option of the task, such as ahead=2."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the training snapshots.", show_default="100", rich_help_panel=TRAIN_PANEL),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of Adam.", show_default="0.01", rich_help_panel=TRAIN_PANEL)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Pulls weights towards 0.", show_default="0", rich_help_panel=TRAIN_PANEL)
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Largest norm of a step's gradient.", show_default="none", rich_help_panel=TRAIN_PANEL),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Snapshots per step: fewer take less memory, and gradients reach less far back.",
            show_default="all",
            rich_help_panel=TRAIN_PANEL,
        ),
    ] = None,
    recompute: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep states of every Nth snapshot only and compute the rest again: less memory, a third more time, "
            "the same gradients.",
            show_default="never",
            rich_help_panel=TRAIN_PANEL,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(metavar="N", help="Epochs between evaluations.", show_default="1", rich_help_panel=TRAIN_PANEL),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many evaluations without a better one; 0 never does.",
            show_default="20",
            rich_help_panel=TRAIN_PANEL,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed gives the same weights.", show_default="0", rich_help_panel=TRAIN_PANEL),
    ] = None,
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
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in --out (else the latest of GRAPH and MODEL) as if it had never stopped.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.", rich_help_panel=RUN_PANEL)
    ] = False,
    data_dir: DataDirOption = None,
    device: given.DeviceOption = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads.", show_default="all cores", rich_help_panel=MACHINE_PANEL)
    ] = None,
    as_json: given.AsJsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, curve or hints; only the result.")] = False,
) -> None:
    """Train a model on a graph, and score it against trivial answers.

    The first 70% of the snapshots are learnt from, the next 10% decide when to stop, the rest is the test: scored
    once, at the end, with the weights that were best in validation.

    `strobe train social`

    `strobe train payments --model dcrnn --hidden 64 --task regression --task-option ahead=2 --epochs 200`

    `strobe train collegemsg --task link-prediction --window 8 --out runs/messages`

    Ctrl-C stops it, a crash may: either way the run goes on, to the same weights, with

    `strobe train --resume --out runs/messages`
    """
    settings: dict[str, Any] = {
        "epochs": epochs,
        "lr": lr,
        "weight_decay": weight_decay,
        "clip": clip,
        "window": window,
    }
    settings |= {"recompute": recompute, "evaluate_every": evaluate_every, "patience": patience, "seed": seed}
    settings |= {"device": device, "threads": threads}
    place = _place(to, graph, model or "tgcn", resume)
    name = model or (None if resume else "tgcn")
    options = _model_options(name, place, model_option or [], hidden)
    run = _trained(
        place,
        quiet,
        graph=graph,
        model=name,
        task=_task(task, task_option or [], place if resume else None),
        model_options=options,
        resume=resume,
        overwrite=overwrite,
        data_dir=data_dir,
        **{key: value for key, value in settings.items() if value is not None},
    )
    if as_json:
        from strobe.atomic import without_nan

        typer.echo(json.dumps(without_nan(run.to_json()), allow_nan=False))
    else:
        _show(run, place, quiet)


def _trained(place: Path, quiet: bool, **chosen: Any) -> Run:
    from strobe.cli.run_progress import watched
    from strobe.engine import train as train_run
    from strobe.engine.checkpoint import LAST

    try:
        with watched(quiet) as progress:
            return train_run(**chosen, out=place, progress=progress)
    except KeyboardInterrupt:
        kept = (place / LAST).exists()
        how = f"go on with: strobe train --resume --out {shlex.quote(str(place))}"
        raise RunInterruptedError(
            f"stopped; all up to the last checkpoint is in {place}\n{how}" if kept else "stopped before the first epoch"
        ) from None


def _place(to: Path | None, graph: str | None, model: str, resume: bool) -> Path:
    """The run directory that is meant: the one given, the first that is free, or the last that is there."""
    if to is not None:
        return to
    if graph is None:
        raise OptionError("say which graph to train on, or which run to resume: strobe train --resume --out RUN")
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(graph).resolve().name)}-{model}"
    number = 1
    while (RUNS / _numbered(stem, number)).exists():
        number += 1
    if not resume:
        return RUNS / _numbered(stem, number)
    if number == 1:
        raise FormatError(f"there is no run at {RUNS / stem} to resume: say which with --out, or leave --resume out")
    return RUNS / _numbered(stem, number - 1)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _model_options(name: str | None, place: Path, pairs: list[str], hidden: int | None) -> dict[str, Any] | None:
    """Options of the model; None leaves them as they are in the run that is resumed."""
    if not pairs and hidden is None:
        return None
    if name is None:
        from strobe.engine.record import read_config

        name = str(read_config(place)["model"]["name"])
    options = given.read_options(pairs, given.model_hints(name), f"the model {name}")
    return options if hidden is None else {"hidden": hidden, **options}


def _task(name: str | None, pairs: list[str], earlier: Path | None) -> str | Task | None:
    if not pairs:
        return name
    from strobe.tasks import make_task

    if name is None:
        if earlier is None:
            raise OptionError("--task-option needs to know which task: give --task, too")
        from strobe.engine.record import read_config

        name = str(read_config(earlier)["task"]["name"])
    return make_task(name, **given.read_options(pairs, given.task_hints(name), f"the task {name}"))


def _show(run: Run, place: Path, quiet: bool) -> None:
    from strobe.engine.curve import curves, terminal_curve

    result = run.to_json()
    if not quiet:
        width = max(min(out.width - 14, 60), 20)
        for curve in curves(result, run.history):
            out.print(Text("\n".join([*terminal_curve(curve, width=width, height=5), ""])), soft_wrap=True)
    out.print(Text(run.summary()), soft_wrap=True)
    if quiet:
        return
    where = shlex.quote(str(place))
    lines = (
        f"\nrun: {place} (picture: {place / 'learning_curve.svg'})",
        f"Next: strobe predict {where} -o predictions.parquet",
        f"      strobe evaluate {where} --part validation",
        f"      tensorboard --logdir {where}",
    )
    err.print(Text("\n".join(lines)), soft_wrap=True)
