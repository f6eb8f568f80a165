"""``strobe online``: training while snapshots arrive."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from strobe.api import train_online
from strobe.batching import Sampled
from strobe.cli.console import print_json, print_note, print_result
from strobe.cli.failures import explain_failures
from strobe.cli.options.events import COLUMNS_PANEL, DstOption, EventOptions, SrcOption
from strobe.cli.options.groups import explicit_options, flatten_options, option
from strobe.cli.options.plan import RANKS_PANEL, BackendOption, DeadlineOption, axis_option, choose_plan, read_plan
from strobe.cli.options.run import AsJsonOption, DataDirOption, QuietOption
from strobe.cli.options.run_directory import RunDirectoryOptions, resolve_run_directory
from strobe.cli.options.training import DEFAULT_MODEL, MachineOptions, ModelAndTaskOptions, TrainingOptions
from strobe.cli.progress import show_online_progress
from strobe.engine.online.loop import OnlineConfig
from strobe.engine.online.result import OnlineResult
from strobe.engine.records.run_directory import last_started, read_config, refuse_other_kind
from strobe.engine.settings import ONLINE_ONLY
from strobe.errors import OptionError
from strobe.graph.follow.base import Follower
from strobe.graph.follow.resolve import follow
from strobe.graph.ingest.options import IngestOptions
from strobe.plan import Plan
from strobe.presets import DEFAULT_ONLINE

_SOURCE = (
    "A directory where files arrive, a text file that grows, an SQLite database, a saved graph, or the name of a data "
    "set. With --resume, the run's own."
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(EventOptions):
    """Columns and snapshots of a source of events. A saved graph needs none of these."""

    src: SrcOption = None
    dst: DstOption = None
    table: Annotated[str | None, option("The table of an SQLite database.", panel=COLUMNS_PANEL)] = None

    def explicit(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    def follow(self, source: str, into: Path, data_dir: str | None) -> Follower:
        """Start to follow a source, or continue where the graph at ``into`` ends."""
        return follow(
            source,
            self._options(),
            into=into,
            table=self.table,
            text=self.text,
            skip_bad_rows=self.skip_bad_rows,
            data_dir=data_dir,
        )

    def _options(self) -> IngestOptions | None:
        if self.src is not None or self.dst is not None:
            return IngestOptions(**self.to_arguments())
        if self.explicit():
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in self.explicit())
            raise OptionError(f"{flags} need the columns of events: --src and --dst")
        return None


_online = partial(option, panel="Online training")
_FIT = "Snapshots to wait for before training begins: scales are fitted to them, and they are not evaluated."
_STEPS = "Most optimizer steps on each snapshot; with windows of 1 snapshot (--plan relay --window 1)."
_SHARE = (
    "Share of each snapshot's examples that is not trained on: the weights with the lowest loss on them stay. 0: the "
    "weights after the last step stay."
)
_PATIENCE = "With --validation-share: end the steps on a snapshot after N without a lower validation loss; 0: never."
_RESET = "Start each snapshot with a new optimizer."
_REPLAY = "Earlier snapshots that each step also trains on, drawn at random; with windows of 1 snapshot."
_REPLAY_MEMORY = "How many of the latest snapshots --replay draws from; the states before each are kept in memory."
_ONCE = "No more events will arrive: the last snapshot is complete, and the run ends with it."


@dataclass(frozen=True, kw_only=True)
class OnlineTrainingOptions:
    """How long to wait for snapshots, and how to train on each."""

    fit_snapshots: Annotated[int | None, _online(_FIT, metavar="N", default="8")] = None
    passes: Annotated[int | None, _online("Passes over each sampled window.", metavar="N", default="1")] = None
    steps_per_snapshot: Annotated[int | None, _online(_STEPS, metavar="N", default="1")] = None
    validation_share: Annotated[float | None, _online(_SHARE, metavar="SHARE", default="0")] = None
    patience: Annotated[int | None, _online(_PATIENCE, metavar="N", default="20")] = None
    reset_optimizer: Annotated[bool | None, _online(_RESET, "--reset-optimizer", default=False)] = None
    replay: Annotated[int | None, _online(_REPLAY, metavar="N", default="0")] = None
    replay_memory: Annotated[int | None, _online(_REPLAY_MEMORY, metavar="N", default="32")] = None
    poll: Annotated[float, _online("Seconds between polls.", metavar="SECONDS")] = 2.0
    once: Annotated[bool, _online(_ONCE, "--once")] = False
    snapshots: Annotated[int | None, _online("Stop after N snapshots.", metavar="N", default="never")] = None

    def settings(self) -> dict[str, Any]:
        """The settings of training that were given."""
        names = ("fit_snapshots", *ONLINE_ONLY, "patience")
        return explicit_options(**{name: getattr(self, name) for name in names})


_ranks_option = partial(option, panel=RANKS_PANEL)
_PLAN = (
    "A plan whose batches are sampled, or windows of 1 snapshot: a name of `strobe plans`, or a JSON file with a plan."
)


@dataclass(frozen=True, kw_only=True)
class OnlineRankOptions:
    """The number of ranks, and the plan that divides the work among them."""

    ranks: Annotated[
        int | None, _ranks_option("Processes on this machine that train together.", metavar="N", default="1")
    ] = None
    plan: Annotated[str | None, _ranks_option(_PLAN, metavar="NAME|FILE", default=DEFAULT_ONLINE)] = None
    store: Annotated[str | None, axis_option("store", "full")] = None
    placement: Annotated[str | None, axis_option("placement", "hash or greedy")] = None
    batching: Annotated[str | None, axis_option("batching", "sampled:size=4096,fanouts=10,5,history=6")] = None
    deadline: DeadlineOption = None
    backend: BackendOption = None

    def to_arguments(self, earlier: dict[str, Any] | None, passes: int | None) -> dict[str, Any]:
        """The arguments of training; options not given are those of ``earlier``, the config of a resumed run."""

        def base() -> Plan:
            return read_plan(DEFAULT_ONLINE) if earlier is None else Plan.from_json(earlier["plan"])

        plan = choose_plan(self, base)
        if passes is not None:
            plan = base() if plan is None else plan
            if not isinstance(plan.batching, Sampled):
                raise OptionError(f"--passes is for sampled batches, not {plan.batching}: give --steps-per-snapshot")
            plan = replace(plan, batching=replace(plan.batching, passes=passes))
        ranks = self.ranks if self.ranks is not None or earlier is None else int(earlier["ranks"])
        return explicit_options(plan=plan, ranks=ranks, deadline_s=self.deadline, backend=self.backend)


@flatten_options
def online(
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help=_SOURCE, show_default=False)] = None,
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

    Models whose states step through time (roland, gconv-gru, …) train on whole snapshots, several steps on each from
    the states before it:

    `strobe online collegemsg --model roland --task link-prediction --plan relay --window 1 --steps-per-snapshot 20
    --validation-share 0.1 --patience 5 --reset-optimizer`

    After Ctrl-C or a crash, resume the run; no snapshot is lost and none is trained on twice:

    `strobe online --resume --out runs/live`

    RUN/graph is the graph so far: `strobe inspect`, `strobe train` and `strobe predict RUN` can read it.
    """
    directory, earlier = _open_directory(run_directory, source, model_and_task.model or DEFAULT_MODEL)
    arguments = {
        **model_and_task.to_arguments(None if earlier is None else directory),
        **ranks.to_arguments(earlier, online_training.passes),
        **explicit_options(training, machine),
        **online_training.settings(),
    }
    config = _make_config(source, events, online_training, earlier, data_dir)
    result = _run_online(config, directory, quiet, run_directory, arguments)
    if as_json:
        print_json(result.to_json())
    else:
        _show(result, directory, quiet)


def _open_directory(options: RunDirectoryOptions, source: str | None, model: str) -> tuple[Path, dict[str, Any] | None]:
    """The run directory, and the config of the run that it resumes."""
    if source is None and not options.resume:
        raise OptionError("give a source: a directory, a file, a database, a graph or a data set")
    if source is None and options.to is None:
        raise OptionError("give the run to resume: strobe online --resume --out RUN")
    directory = resolve_run_directory(options, source, model)
    if not options.resume:
        return directory, None
    earlier = read_config(directory)
    refuse_other_kind(directory, earlier, online=True)
    return directory, earlier


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
        if "source" not in saved:
            raise OptionError("the run was started from Python, which knows its snapshots: resume it there")
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
    config: OnlineConfig, directory: Path, quiet: bool, options: RunDirectoryOptions, arguments: dict[str, Any]
) -> OnlineResult:
    before = None if options.resume else last_started(directory)
    arguments |= {"out": directory, "resume": options.resume, "overwrite": options.overwrite}
    with (
        explain_failures("online", directory, lambda: last_started(directory) != before),
        show_online_progress(quiet) as progress,
    ):
        return train_online(config, **arguments, progress=progress)


def _show(result: OnlineResult, directory: Path, quiet: bool) -> None:
    print_result(result.summary())
    if quiet:
        return
    run = shlex.quote(str(directory))
    chart = f" (chart: {directory / 'online.svg'})" if result.evaluated else ""
    print_note(
        f"\nrun: {directory}{chart}\n"
        f"Next: strobe online --resume --out {run}\n"
        f"      strobe predict {run} -o predictions.parquet\n"
        f"      strobe inspect {run}/graph"
    )
