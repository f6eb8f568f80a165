"""``strobe train``: a model learns from a graph."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from strobe.cli.console import err, is_first_rank, out
from strobe.cli.data import DataDirOption
from strobe.cli.option_groups import grouped, said
from strobe.cli.plan_options import RankOptions, num_ranks
from strobe.cli.run_options import AsJsonOption, QuietOption
from strobe.cli.run_place import PlaceOptions, run_place
from strobe.cli.training_options import USUAL_MODEL, MachineOptions, StoppingOptions, TrainingOptions, WhatOptions

if TYPE_CHECKING:
    from strobe.engine import Run


class RunInterruptedError(Exception):
    """Ctrl-C; the text says how to go on."""


class RunFailedError(Exception):
    """A rank failed, by no choice of the user's; the text says which, where, why, and how to go on."""


@grouped
def train(
    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH",
            help="The directory of a saved graph, or the name of a data set. With --resume, the run's own.",
            show_default=False,
        ),
    ] = None,
    *,
    what: WhatOptions,
    stopping: StoppingOptions,
    training: TrainingOptions,
    ranks: RankOptions,
    where: PlaceOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model on a graph, and score it against trivial answers.

    The first 70% of the snapshots are learnt from, the next 10% decide when to stop, the rest is the test: scored
    once, at the end, with the weights that were best in validation.

    `strobe train social`

    `strobe train payments --model dcrnn --hidden 64 --task regression --task-option ahead=2 --epochs 200`

    `strobe train collegemsg --task link-prediction --window 8 --out runs/messages`

    Several processes share the work as a plan says; `strobe plans` lists plans and choices, `strobe compare` tries
    them out:

    `strobe train social --ranks 4`

    `strobe train social --ranks 4 --plan pts --placement metis`

    `strobe train social --ranks 4 --batching windows:size=8 --time relay:groups=32`

    `torchrun --nnodes 2 --nproc-per-node 8 -m strobe train social --out runs/social`

    Ctrl-C stops it, a crash may: either way the run goes on, to the same weights, with

    `strobe train --resume --out runs/messages`

    It ends with exit code 0 when all is well, 2 if something was asked that cannot be done, 3 if a rank failed, 130
    after Ctrl-C.
    """
    ranks.refuse_two_windows(training.window)
    place = run_place(where, graph, what.model or USUAL_MODEL)
    earlier = place if where.resume else None
    run = _trained(
        place,
        quiet,
        graph=graph,
        resume=where.resume,
        overwrite=where.overwrite,
        data_dir=data_dir,
        **what.chosen(earlier),
        **ranks.chosen(earlier),
        **said(stopping),
        **said(training),
        **said(machine),
    )
    if not is_first_rank():
        return
    if as_json:
        from strobe.io.atomic import without_nan

        typer.echo(json.dumps(without_nan(run.to_json()), allow_nan=False))
    else:
        _show(run, place, quiet)


def _trained(place: Path, quiet: bool, **chosen: Any) -> Run:
    from strobe.cli.run_progress import watched
    from strobe.comm.base import CommError
    from strobe.comm.launch import RankError
    from strobe.engine import train as train_run
    from strobe.engine.record import last_begun

    before = None if chosen["resume"] else last_begun(place)
    try:
        with watched(quiet, num_ranks(chosen.get("ranks"))) as progress:
            return train_run(**chosen, out=place, progress=progress)
    except KeyboardInterrupt:
        kept = f"stopped; all up to the last checkpoint is in {place}"
        raise RunInterruptedError(_and_how(kept, place, before) or "stopped before the first epoch") from None
    except RankError as error:
        if not str(error).startswith(f"rank {error.rank} "):
            raise  # what a rank refused to do is told as if it had been refused here
        raise RunFailedError(_and_how(str(error), place, before) or str(error)) from error
    except CommError as error:
        raise RunFailedError(_and_how(str(error), place, before) or str(error)) from error


def _and_how(said: str, place: Path, before: tuple[int, int] | None) -> str:
    """With how to go on; nothing where there is no checkpoint to go on from, or it is that of the run before."""
    from strobe.engine.checkpoint import has_checkpoint
    from strobe.engine.record import last_begun

    how = f"go on with: strobe train --resume --out {shlex.quote(str(place))}"
    return f"{said}\n{how}" if has_checkpoint(place) and last_begun(place) != before else ""


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
