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

from strobe.cli.console import err, is_first_rank
from strobe.engine.ledger_table import spent
from strobe.engine.progress import Progress
from strobe.engine.summary import duration, figure
from strobe.numbers import file_size, number_of, percent

_LOG_EVERY_S = 10.0
_DRAW_EVERY_S = 0.1


class Titled(Progress):
    """Somebody who is told how a run of so many ranks goes. ``title`` says which run, where there are several."""

    def __init__(self, ranks: int = 1) -> None:
        self.title, self.ranks = "", ranks
        self._begins = True

    def is_over(self, info: dict[str, Any]) -> bool:
        """Whether no epoch is left; said if training begins like that, not if batches get another order at its end."""
        over: bool = info["epoch"] >= info["epochs"]
        if over and self._begins:
            had = number_of(info["epoch"], "epoch")
            self.note(f"nothing is left to train: the run has had {had}, more need a larger --epochs")
        self._begins = False
        return over

    def of(self, text: str) -> str:
        return f"{self.title}: {text}" if self.title else text


@contextmanager
def watched(quiet: bool, ranks: int = 1) -> Iterator[Titled]:
    """Somebody to tell how a run goes; nobody speaks but the first of the ranks that torchrun has started."""
    if quiet or not is_first_rank():
        yield Titled(ranks)
    elif not err.is_terminal:
        yield LogLines(err, ranks)
    else:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[said]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        with Bar(*columns, console=err, transient=True, refresh_per_second=4, expand=True) as bar:
            yield EpochBar(bar, ranks)


class EpochBar(Titled):
    """One bar for what comes before, then one for the epochs, of all ranks together."""

    def __init__(self, bar: Bar, ranks: int = 1) -> None:
        super().__init__(ranks)
        self._bar = bar
        self._task: TaskID = bar.add_task("", total=None, said="")
        self._what = ""
        self._epochs, self._steps, self._metric = 1, 1, ""
        self._drawn = 0.0

    def stage(self, what: str, done: int, total: int | None) -> None:
        what = self.of(what)
        if what != self._what:
            self._bar.reset(self._task, description=what, total=total, said="")
            self._what = what
        self._bar.update(self._task, completed=done, total=total, said=f"{done}/{total}" if total else "")

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._steps, self._metric = info["epochs"], info["steps"], info["metric"]
        self._what = ""
        self.is_over(info)
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
        most = max(spent(rank, 1).memory_bytes for rank in line["ranks"]) if "ranks" in line else line["memory_bytes"]
        self._bar.update(self._task, said=f"{said} {file_size(most)}")

    def note(self, text: str) -> None:
        self._bar.console.print(Text(self.of(text)), style="yellow", soft_wrap=True)

    def _at(self, epoch: int) -> str:
        return self.of(f"epoch {epoch}/{self._epochs}" + (f", {self.ranks} ranks" if self.ranks > 1 else ""))


class LogLines(Titled):
    """A line at the beginning, then one every few seconds: enough to see in a log that a run is alive."""

    def __init__(self, console: Console, ranks: int = 1) -> None:
        super().__init__(ranks)
        self._console = console
        self._said, self._begun, self._first = 0.0, 0.0, 0
        self._epochs, self._metric = 1, ""

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._metric, self._first = info["epochs"], info["metric"], info["epoch"]
        self._said = self._begun = monotonic()
        length = f"{number_of(info['epochs'], 'epoch')} of {number_of(info['steps'], 'step')}"
        went = f", of which {info['epoch']} are done" if info["epoch"] else ""
        who = f" on {self.ranks} ranks" if self.ranks > 1 else ""
        if not self.is_over(info):
            self.note(f"training {length}{who}{went}")

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
        self.note(f"epoch {line['epoch']}/{self._epochs}: loss {figure(line['loss'])}{judged}{best}{_idle(line)}{left}")

    def note(self, text: str) -> None:
        self._console.print(Text(self.of(text)), soft_wrap=True)


def _idle(line: dict[str, Any]) -> str:
    """Which part of their time ranks wait for each other."""
    ranks = [spent(rank, 1) for rank in line.get("ranks", [])]
    whole = sum(rank.seconds for rank in ranks)
    return f", ranks wait {percent(1 - sum(rank.computing_s for rank in ranks) / whole)} of the time" if whole else ""
