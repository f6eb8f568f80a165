"""How a run that watches is watched itself: a line for each snapshot, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from strobe.cli.console import err
from strobe.engine.progress import Progress
from strobe.engine.summary import duration, figure


@contextmanager
def shown(quiet: bool) -> Iterator[Progress]:
    """Somebody to tell how a run goes."""
    if quiet:
        yield Progress()
    elif not err.is_terminal:
        yield SnapshotLines(err, None)
    else:
        with err.status("beginning") as status:
            yield SnapshotLines(err, status)


class SnapshotLines(Progress):
    """A line for each snapshot that was learnt from; in a terminal also what happens at the moment."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console, self._status = console, status
        self._said = ""

    def stage(self, what: str, done: int, total: int | None) -> None:
        del done, total
        if self._status is not None:
            self._status.update(what)
        elif what != self._said and what.startswith("waiting"):
            self._said = what
            self.note(what)

    def step(self, epoch: int, step: int) -> None:
        if self._status is not None:
            self._status.update(f"learning from snapshot {epoch}: step {step}")

    def epoch(self, line: dict[str, Any]) -> None:
        seconds = duration(line["train_s"] + line["evaluate_s"])
        learnt = "nothing was asked" if line["loss"] is None else f"{_judged(line)}loss {figure(line['loss'])}"
        self.note(f"{line['snapshot']:<10}  {learnt}, {seconds}")

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def _judged(line: dict[str, Any]) -> str:
    """What a snapshot scored before it was learnt from, beside the best answer that needs no learning."""
    metric = line.get("metric")
    value = line.get("validation", {}).get(metric)
    if value is None:
        return "not judged, "
    known = [(each[metric], name) for name, each in line["baselines"].items() if metric in each]
    best = (max if line["higher_is_better"] else min)(known, default=None)
    beside = "" if best is None else f" (without learning {figure(best[0])}, {best[1]})"
    return f"{metric} {figure(value)}{beside}, "
