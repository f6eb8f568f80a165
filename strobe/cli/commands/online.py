"""``strobe online``: training while snapshots arrive."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from strobe.api import train_online
from strobe.cli.console import err, out
from strobe.cli.failures import explain_failures
from strobe.cli.options.groups import explicit_options, flatten_options
from strobe.cli.options.online import OnlineRankOptions, OnlineTrainingOptions, SourceOptions
from strobe.cli.options.run import AsJsonOption, DataDirOption, QuietOption
from strobe.cli.options.run_directory import RunDirectoryOptions, resolve_run_directory
from strobe.cli.options.training import DEFAULT_MODEL, MachineOptions, ModelAndTaskOptions, TrainingOptions
from strobe.cli.progress import show_online_progress
from strobe.engine.online.loop import OnlineConfig
from strobe.engine.online.result import OnlineResult
from strobe.engine.records.run_directory import last_started, read_config, refuse_other_kind
from strobe.errors import OptionError
from strobe.io.atomic import nan_to_none


@flatten_options
def online(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A directory where files arrive, a text file that grows, an SQLite database, a saved graph, or the "
            "name of a data set. With --resume, the run's own.",
            show_default=False,
        ),
    ] = None,
    *,
    events: SourceOptions,
    online_training: OnlineTrainingOptions,
    model_and_task: ModelAndTaskOptions,
    training: TrainingOptions,
    ranks: OnlineRankOptions,
    run_directory: RunDirectoryOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model while snapshots arrive.

    An event of a later period completes the snapshot before it. The snapshot is added to the graph and placed on the
    ranks; the model's predictions of it are scored, then the model is trained on it and saved. Each line of output
    names the snapshot that a prediction was made from.

    `strobe online payments/ --src payer --dst payee --time at --per day --task link-prediction --out runs/live`

    `strobe online events.csv --src 0 --dst 1 --time 2 --every 1h --ranks 2 --out runs/live`

    `strobe online events.db --table transfers --src a --dst b --time at --per week --out runs/live`

    A saved graph or a data set arrives snapshot by snapshot:

    `strobe online collegemsg --model sage --task link-prediction`

    After Ctrl-C or a crash, resume the run; no snapshot is lost and none is trained on twice:

    `strobe online --resume --out runs/live`

    RUN/graph is the graph so far: `strobe inspect`, `strobe train` and `strobe predict RUN` can read it.
    """
    if source is None and not run_directory.resume:
        raise OptionError("give a source: a directory, a file, a database, a graph or a data set")
    if source is None and run_directory.to is None:
        raise OptionError("give the run to resume: strobe online --resume --out RUN")
    directory = resolve_run_directory(run_directory, source, model_and_task.model or DEFAULT_MODEL)
    earlier: dict[str, Any] | None = None
    if run_directory.resume:
        earlier = read_config(directory)
        refuse_other_kind(directory, earlier, online=True)
    fit = online_training.fit_snapshots
    arguments = {
        **model_and_task.to_arguments(None if earlier is None else directory),
        **ranks.to_arguments(earlier, online_training.passes),
        **explicit_options(training),
        **explicit_options(machine),
        **({} if fit is None else {"fit_snapshots": fit}),
    }
    result = _run_online(
        _make_config(source, events, online_training, earlier, data_dir),
        directory,
        quiet,
        run_directory.resume,
        run_directory.overwrite,
        arguments,
    )
    if as_json:
        typer.echo(json.dumps(nan_to_none(result.to_json()), allow_nan=False))
    else:
        _show(result, directory, quiet)


def _make_config(
    source: str | None,
    events: SourceOptions,
    online_training: OnlineTrainingOptions,
    earlier: dict[str, Any] | None,
    data_dir: Path | None,
) -> OnlineConfig:
    """Configure the source; options not given are those of ``earlier``, the config of a resumed run."""
    folder = None if data_dir is None else str(data_dir)
    if earlier is not None:
        saved = earlier["online"]
        source, folder = source or saved["source"], folder or saved["data_dir"]
        events = SourceOptions(**(saved["events"] | events.explicit()))
    assert source is not None
    location = str(Path(source).resolve()) if Path(source).exists() else source
    return OnlineConfig(
        open_source=lambda into: events.follow(location, into, folder),
        source_config={
            "source": location,
            "events": events.explicit(),
            "data_dir": folder,
            "name": Path(location).name,
        },
        poll_s=online_training.poll,
        once=online_training.once,
        snapshots=online_training.snapshots,
    )


def _run_online(
    config: OnlineConfig, directory: Path, quiet: bool, resume: bool, overwrite: bool, arguments: dict[str, Any]
) -> OnlineResult:
    before = None if resume else last_started(directory)
    with (
        explain_failures("online", directory, lambda: last_started(directory) != before),
        show_online_progress(quiet) as progress,
    ):
        return train_online(config, **arguments, out=directory, resume=resume, overwrite=overwrite, progress=progress)


def _show(result: OnlineResult, directory: Path, quiet: bool) -> None:
    out.print(Text(result.summary()), soft_wrap=True)
    if quiet:
        return
    run = shlex.quote(str(directory))
    chart = f" (chart: {directory / 'online.svg'})" if result.evaluated else ""
    lines = (
        f"\nrun: {directory}{chart}",
        f"Next: strobe online --resume --out {run}",
        f"      strobe predict {run} -o predictions.parquet",
        f"      strobe inspect {run}/graph",
    )
    err.print(Text("\n".join(lines)), soft_wrap=True)
