"""``strobe watch``: a model learns while snapshots arrive."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from strobe.cli.console import err, out
from strobe.cli.data import DataDirOption
from strobe.cli.option_groups import grouped, said
from strobe.cli.run_options import AsJsonOption, QuietOption
from strobe.cli.run_place import PlaceOptions, run_place
from strobe.cli.train import RunFailedError, RunInterruptedError
from strobe.cli.training_options import USUAL_MODEL, MachineOptions, TrainingOptions, WhatOptions
from strobe.cli.watch_options import SourceOptions, WatchingOptions, WatchRankOptions
from strobe.errors import InputError, OptionError

if TYPE_CHECKING:
    from strobe.engine.watch import Watching
    from strobe.engine.watched import Watched


@grouped
def watch(
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
    watching: WatchingOptions,
    what: WhatOptions,
    training: TrainingOptions,
    ranks: WatchRankOptions,
    where: PlaceOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model while snapshots arrive.

    The source is followed: as soon as an event of a later period is there, the snapshot before is complete. It is added
    to the graph and placed on the ranks; what the model had said about it is judged, learnt from, and saved. Each line
    names the snapshot that was asked, at whose time the model would have had to say it.

    `strobe watch payments/ --src payer --dst payee --time at --per day --task link-prediction --out runs/live`

    `strobe watch events.csv --src 0 --dst 1 --time 2 --every 1h --ranks 2 --out runs/live`

    `strobe watch events.db --table transfers --src a --dst b --time at --per week --out runs/live`

    A saved graph or a data set arrives snapshot by snapshot, as if it had not been known before:

    `strobe watch collegemsg --model sage --task link-prediction`

    Ctrl-C stops it, a crash may: no snapshot is lost and none is learnt from twice when it goes on with

    `strobe watch --resume --out runs/live`

    The graph that has arrived is in RUN/graph: `strobe inspect`, `strobe train` and `strobe predict RUN` use it.
    """
    if source is None and not where.resume:
        raise OptionError("say what to watch: a directory, a file, a database, a graph or a data set")
    if source is None and where.to is None:
        raise OptionError("say which run to go on with: strobe watch --resume --out RUN")
    place = run_place(where, source, what.model or USUAL_MODEL)
    earlier = _earlier(place) if where.resume else None
    chosen = {
        **what.chosen(None if earlier is None else place),
        **ranks.chosen(earlier, watching.passes),
        **said(training),
        **said(machine),
        **({} if watching.fit is None else {"fit": watching.fit}),
    }
    watched = _watched(
        _watching(source, events, watching, earlier, data_dir), place, quiet, where.resume, where.overwrite, chosen
    )
    if as_json:
        from strobe.io.atomic import without_nan

        typer.echo(json.dumps(without_nan(watched.to_json()), allow_nan=False))
    else:
        _show(watched, place, quiet)


def _earlier(place: Path) -> dict[str, Any]:
    from strobe.engine.record import read_config, refuse_other_kind

    config = read_config(place)
    refuse_other_kind(place, config, watches=True)
    return config


def _watching(
    source: str | None,
    events: SourceOptions,
    watching: WatchingOptions,
    earlier: dict[str, Any] | None,
    data_dir: Path | None,
) -> Watching:
    from strobe.engine.watch import Watching

    where, given, folder = source, events, None if data_dir is None else str(data_dir)
    if earlier is not None:
        before = earlier["watch"]
        where, folder = where or before["source"], folder or before["data_dir"]
        given = SourceOptions(**(before["events"] | events.said()))
    assert where is not None
    known = Path(where)
    where = str(known.resolve()) if known.exists() else where
    return Watching(
        follow=lambda into: given.follow(where, into, folder),
        told={"source": where, "events": given.said(), "data_dir": folder, "name": Path(where).name},
        poll_s=watching.poll,
        once=watching.once,
        snapshots=watching.snapshots,
    )


def _watched(
    watching: Watching, place: Path, quiet: bool, resume: bool, overwrite: bool, chosen: dict[str, Any]
) -> Watched:
    from strobe.cli.watch_progress import shown
    from strobe.comm.base import CommError
    from strobe.comm.launch import RankError
    from strobe.engine.record import last_begun
    from strobe.engine.watch import watch as watch_source

    before = None if resume else last_begun(place)
    how = f"go on with: strobe watch --resume --out {shlex.quote(str(place))}"
    try:
        with shown(quiet) as progress:
            return watch_source(watching, **chosen, out=place, resume=resume, overwrite=overwrite, progress=progress)
    except KeyboardInterrupt:
        if last_begun(place) == before:
            raise RunInterruptedError("stopped before anything had begun") from None
        raise RunInterruptedError(f"stopped; all up to the last snapshot is in {place}\n{how}") from None
    except InputError as error:
        if last_begun(place) == before:
            raise
        raise InputError(f"{error}\n{how}") from error
    except RankError as error:
        if not str(error).startswith(f"rank {error.rank} "):
            raise
        raise RunFailedError(f"{error}\n{how}") from error
    except CommError as error:
        raise RunFailedError(f"{error}\n{how}") from error


def _show(watched: Watched, place: Path, quiet: bool) -> None:
    out.print(Text(watched.summary()), soft_wrap=True)
    if quiet:
        return
    where = shlex.quote(str(place))
    picture = f" (picture: {place / 'online.svg'})" if watched.judged else ""
    lines = (
        f"\nrun: {place}{picture}",
        f"Next: strobe watch --resume --out {where}",
        f"      strobe predict {where} -o predictions.parquet",
        f"      strobe inspect {where}/graph",
    )
    err.print(Text("\n".join(lines)), soft_wrap=True)
