"""A run that watches begins where another may have been: that one goes when nothing speaks against the new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from strobe.engine.choice import choose_model
from strobe.engine.job import Given
from strobe.engine.online import GRAPH
from strobe.engine.record import CONFIG, Record
from strobe.engine.rehearsal import rehearse
from strobe.errors import OptionError
from strobe.graph.description import beside
from strobe.graph.growing import Growing
from strobe.plan import Plan
from strobe.tasks.base import Task

if TYPE_CHECKING:
    from strobe.engine.watch import Followed

_REJECTS = f"{GRAPH}.rejects.csv"


def begin_anew(
    path: Path,
    record: Record,
    given: Given,
    ranks: int,
    *,
    follow: Callable[[Path], Followed],
    told: Mapping[str, Any],
) -> None:
    """Says what a run is, before its first snapshot, and removes what an earlier one left: once nothing can be refused
    any more of what was said and of what the source has by now."""
    config = _config(path, given, ranks, told)
    if not (path / CONFIG).exists():
        record.announce(config)
        return
    _refuse_own_graph(path, told.get("source"))
    with _first_read(path, given, follow) as arrived:
        rmtree(path / GRAPH, ignore_errors=True)
        (path / _REJECTS).unlink(missing_ok=True)
        record.announce(config)
        for each in arrived:
            each.rename(path / each.name)


@contextmanager
def _first_read(path: Path, given: Given, follow: Callable[[Path], Followed]) -> Iterator[list[Path]]:
    """What has arrived by now, read beside a run; following goes on with it wherever it is moved to."""
    aside = beside(path.resolve(), "arriving")
    rmtree(aside, ignore_errors=True)  # of one that was killed
    try:
        aside.mkdir()
        with closing(follow(aside / GRAPH)) as source:
            rehearse(given, Growing(aside / GRAPH).open(0))
            source.poll()
        yield [aside / name for name in (GRAPH, _REJECTS) if (aside / name).exists()]
    finally:
        rmtree(aside, ignore_errors=True)


def _config(path: Path, given: Given, ranks: int, told: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(given.plan, Plan)
    assert given.settings is not None
    if given.model is None:
        raise OptionError("say which model to train")
    return {
        "graph": {"path": str((path / GRAPH).resolve())},
        "fingerprint": None,
        "model": choose_model(given.model, given.model_options).to_json(),
        "task": _task_json(given.task),
        "problem": None,
        "settings": given.settings.to_json(),
        "plan": given.plan.to_json(),
        "ranks": ranks,
        "watch": dict(told),
    }


def _refuse_own_graph(path: Path, source: str | None) -> None:
    if source is not None and Path(source).resolve().is_relative_to((path / GRAPH).resolve()):
        raise OptionError(f"{source} is what the run at {path} has kept: choose another place (--out)")


def _task_json(task: str | Task | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {"name": task} if isinstance(task, str) else task.to_json()
