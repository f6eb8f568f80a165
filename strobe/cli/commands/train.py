"""``strobe train``: training on a graph."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from strobe.api import train as train_model
from strobe.cli.console import is_first_rank, out, print_json, print_note, print_result
from strobe.cli.failures import explain_failures
from strobe.cli.options.groups import explicit_options, flatten_options, option
from strobe.cli.options.plan import RankOptions, num_ranks
from strobe.cli.options.run import MACHINE_PANEL, AsJsonOption, DataDirOption, GraphOrResumeArgument, QuietOption
from strobe.cli.options.run_directory import RunDirectoryOptions, resolve_run_directory
from strobe.cli.options.training import (
    DEFAULT_MODEL,
    MachineOptions,
    ModelAndTaskOptions,
    StoppingOptions,
    TrainingOptions,
)
from strobe.cli.progress import show_progress
from strobe.engine import Run
from strobe.engine.checkpoint.store import has_checkpoint
from strobe.engine.records.run_directory import last_started
from strobe.report.charts.learning_curve import build_curves, terminal_curve

_CACHE = "Reuse scales, baselines, partitions and memory estimates of earlier runs on the graph (`strobe cache`)."


@flatten_options
def train(
    graph: GraphOrResumeArgument = None,
    *,
    model_and_task: ModelAndTaskOptions,
    stopping: StoppingOptions,
    training: TrainingOptions,
    ranks: RankOptions,
    run_directory: RunDirectoryOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    cache: Annotated[bool, option(_CACHE, "--cache/--no-cache", panel=MACHINE_PANEL)] = True,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model on a graph, and compare it with trivial baselines.

    The first 70% of the snapshots are for training, the next 10% for validation and early stopping, the rest for the
    test: scored once, at the end, with the weights that were best in validation.

    `strobe train social`

    `strobe train payments --model dcrnn --hidden 64 --task regression --task-option ahead=2 --epochs 200`

    `strobe train collegemsg --task link-prediction --window 8 --out runs/messages`

    A plan divides the work among ranks; `strobe plans` lists plans and choices, `strobe compare` measures them:

    `strobe train social --ranks 4`

    `strobe train social --ranks 4 --plan pts --placement metis`

    `strobe train social --ranks 4 --batching windows:size=8 --time relay:pipeline_groups=32`

    `torchrun --nnodes 2 --nproc-per-node 8 -m strobe train social --out runs/social`

    After Ctrl-C or a crash, resume the run; it reaches equal weights:

    `strobe train --resume --out runs/messages`

    Exit codes: 0 for success, 2 for an error that you can fix, 3 for a failed rank, 130 after Ctrl-C.
    """
    ranks.check_single_window(training.window)
    directory = resolve_run_directory(run_directory, graph, model_and_task.model or DEFAULT_MODEL)
    earlier = directory if run_directory.resume else None
    run = _run_training(
        directory,
        quiet,
        graph=graph,
        resume=run_directory.resume,
        overwrite=run_directory.overwrite,
        **model_and_task.to_arguments(earlier),
        **ranks.to_arguments(earlier),
        **explicit_options(stopping, training, machine, data_dir=data_dir, cache=cache),
    )
    if not is_first_rank():
        return
    if as_json:
        print_json(run.to_json())
    else:
        _show(run, directory, quiet)


def _run_training(directory: Path, quiet: bool, **arguments: Any) -> Run:
    before = None if arguments["resume"] else last_started(directory)
    with (
        explain_failures("train", directory, lambda: has_checkpoint(directory) and last_started(directory) != before),
        show_progress(quiet, num_ranks(arguments.get("ranks"))) as progress,
    ):
        return train_model(**arguments, out=directory, progress=progress)


def _show(run: Run, directory: Path, quiet: bool) -> None:
    if not quiet:
        width = max(min(out.width - 14, 60), 20)
        for curve in build_curves(run.to_json(), run.history):
            print_result(*terminal_curve(curve, width=width, height=5), "")
    print_result(run.summary())
    if quiet:
        return
    quoted = shlex.quote(str(directory))
    print_note(
        f"\nrun: {directory} (chart: {directory / 'learning_curve.svg'})\n"
        f"Next: strobe predict {quoted} -o predictions.parquet\n"
        f"      strobe evaluate {quoted} --part validation\n"
        f"      tensorboard --logdir {quoted}"
    )
