"""How a run is watched: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from strobe.cli.console import err
from strobe.engine.progress import Progress
from strobe.engine.summary import duration, figure
from strobe.numbers import file_size

_LOG_EVERY_S = 10.0
_DRAW_EVERY_S = 0.1


@contextmanager
def watched(quiet: bool) -> Iterator[Progress]:
    """Somebody to tell how a run goes."""
    if quiet:
        yield Progress()
    elif not err.is_terminal:
        yield LogLines(err)
    else:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[said]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        with Bar(*columns, console=err, transient=True, refresh_per_second=4, expand=True) as bar:
            yield EpochBar(bar)


class EpochBar(Progress):
    """One bar for what comes before, then one for the epochs."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task("", total=None, said="")
        self._what = ""
        self._epochs, self._steps, self._metric = 1, 1, ""
        self._drawn = 0.0

    def stage(self, what: str, done: int, total: int | None) -> None:
        if what != self._what:
            self._bar.reset(self._task, description=what, total=total, said="")
            self._what = what
        self._bar.update(self._task, completed=done, total=total, said=f"{done}/{total}" if total else "")

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._steps, self._metric = info["epochs"], info["steps"], info["metric"]
        self._what = ""
        self._bar.reset(self._task, description=self._at(info["epoch"]), total=self._epochs * self._steps, said="")
        self._bar.update(self._task, completed=info["epoch"] * self._steps)

    def step(self, epoch: int, step: int) -> None:
        if monotonic() - self._drawn > _DRAW_EVERY_S:  # drawing must cost nothing next to training
            self._drawn = monotonic()
            done = (epoch - 1) * self._steps + step
            self._bar.update(self._task, completed=done, description=self._at(epoch))

    def epoch(self, line: dict[str, Any]) -> None:
        said = f"loss {figure(line['loss'])}"
        value = line.get("validation", {}).get(self._metric)
        if value is not None:
            said += f" {self._metric} {figure(value)}"
        if line["best"] is not None:
            said += f" best {figure(line['best'])}"
        self._bar.update(self._task, said=f"{said} {file_size(line['memory_bytes'])}")

    def note(self, text: str) -> None:
        self._bar.console.print(Text(text), style="yellow", soft_wrap=True)

    def _at(self, epoch: int) -> str:
        return f"epoch {epoch}/{self._epochs}"


class LogLines(Progress):
    """A line at the beginning, then one every few seconds: enough to see in a log that a run is alive."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said, self._begun, self._first = 0.0, 0.0, 0
        self._epochs, self._metric = 1, ""

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._metric, self._first = info["epochs"], info["metric"], info["epoch"]
        self._said = self._begun = monotonic()
        steps = "1 step" if info["steps"] == 1 else f"{info['steps']} steps"
        went = f", of which {info['epoch']} are done" if info["epoch"] else ""
        self.note(f"training {info['epochs']} epochs of {steps}{went}")

    def epoch(self, line: dict[str, Any]) -> None:
        now = monotonic()
        if now - self._said < _LOG_EVERY_S:
            return
        self._said = now
        value = line.get("validation", {}).get(self._metric)
        judged = "" if value is None else f", validation {self._metric} {figure(value)}"
        best = "" if line["best"] is None else f" (best {figure(line['best'])} at epoch {line['best_epoch']})"
        pace = (now - self._begun) / max(line["epoch"] - self._first, 1)
        more = self._epochs - line["epoch"]
        left = f", at most {duration(pace * more)} left" if more else ""
        self.note(f"epoch {line['epoch']}/{self._epochs}: loss {figure(line['loss'])}{judged}{best}{left}")

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)
