"""Progress of runs: a bar in a terminal, a line every few seconds in a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.status import Status
from rich.text import Text

from strobe.cli.console import err, is_first_rank
from strobe.comm.ledger_stats import mean_rank_stats
from strobe.engine.progress import Progress
from strobe.format import duration, file_size, format_metric, percent, pluralize

_LOG_EVERY_S = 10.0
_DRAW_EVERY_S = 0.1


class TitledProgress(Progress):
    """Progress of one of several runs: ``title`` names the run. Shows nothing by itself."""

    def __init__(self, ranks: int = 1) -> None:
        self.title, self.ranks = "", ranks
        self._begins = True

    def report_if_over(self, info: dict[str, Any]) -> bool:
        """Whether no epoch is left. Notes it when training begins, not when batches are reordered after the last."""
        over: bool = info["epoch"] >= info["epochs"]
        if over and self._begins:
            done = pluralize(info["epoch"], "epoch")
            self.note(f"nothing is left to train: the run has had {done}; give a larger --epochs to train more")
        self._begins = False
        return over

    def with_title(self, text: str) -> str:
        return f"{self.title}: {text}" if self.title else text


@contextmanager
def show_progress(quiet: bool, ranks: int = 1) -> Iterator[TitledProgress]:
    """Show a run's progress on stderr; under torchrun only rank 0 does."""
    if quiet or not is_first_rank():
        yield TitledProgress(ranks)
    elif not err.is_terminal:
        yield LogLines(err, ranks)
    else:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        with Bar(*columns, console=err, transient=True, refresh_per_second=4, expand=True) as bar:
            yield EpochBar(bar, ranks)


class EpochBar(TitledProgress):
    """One bar for the stages before training, then one for the epochs of all ranks."""

    def __init__(self, bar: Bar, ranks: int = 1) -> None:
        super().__init__(ranks)
        self._bar = bar
        self._task: TaskID = bar.add_task("", total=None, status="")
        self._stage = ""
        self._epochs, self._steps, self._metric = 1, 1, ""
        self._last_draw_s = 0.0

    def stage(self, what: str, done: int, total: int | None) -> None:
        what = self.with_title(what)
        if what != self._stage:
            self._bar.reset(self._task, description=what, total=total, status="")
            self._stage = what
        self._bar.update(self._task, completed=done, total=total, status=f"{done}/{total}" if total else "")

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._steps, self._metric = info["epochs"], info["steps"], info["metric"]
        self._stage = ""
        self.report_if_over(info)
        self._bar.reset(self._task, description=self._at(info["epoch"]), total=self._epochs * self._steps, status="")
        self._bar.update(self._task, completed=info["epoch"] * self._steps)

    def step(self, epoch: int, step: int) -> None:
        if monotonic() - self._last_draw_s > _DRAW_EVERY_S:  # drawing every step would slow down training
            self._last_draw_s = monotonic()
            done = (epoch - 1) * self._steps + step
            self._bar.update(self._task, completed=done, description=self._at(epoch))

    def epoch(self, line: dict[str, Any]) -> None:
        status = f"loss {format_metric(line['loss'])}"
        value = line.get("validation", {}).get(self._metric)
        if value is not None:
            status += f" {self._metric} {format_metric(value)}"
        if line["best"] is not None:
            status += f" best {format_metric(line['best'])}"
        peaks = [mean_rank_stats(rank, 1).memory_bytes for rank in line.get("ranks", [])] or [line["memory_bytes"]]
        self._bar.update(self._task, status=f"{status} {file_size(max(peaks))}")

    def note(self, text: str) -> None:
        self._bar.console.print(Text(self.with_title(text)), style="yellow", soft_wrap=True)

    def _at(self, epoch: int) -> str:
        return self.with_title(f"epoch {epoch}/{self._epochs}" + (f", {self.ranks} ranks" if self.ranks > 1 else ""))


class LogLines(TitledProgress):
    """A line when training begins, then one every few seconds."""

    def __init__(self, console: Console, ranks: int = 1) -> None:
        super().__init__(ranks)
        self._console = console
        self._last_log_s, self._begin_s, self._first = 0.0, 0.0, 0
        self._epochs, self._metric = 1, ""

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs, self._metric, self._first = info["epochs"], info["metric"], info["epoch"]
        self._last_log_s = self._begin_s = monotonic()
        length = f"{pluralize(info['epochs'], 'epoch')} of {pluralize(info['steps'], 'step')}"
        done = f", of which {info['epoch']} are done" if info["epoch"] else ""
        ranks = f" on {self.ranks} ranks" if self.ranks > 1 else ""
        if not self.report_if_over(info):
            self.note(f"training {length}{ranks}{done}")

    def epoch(self, line: dict[str, Any]) -> None:
        now = monotonic()
        if now - self._last_log_s < _LOG_EVERY_S:
            return
        self._last_log_s = now
        value = line.get("validation", {}).get(self._metric)
        parts = [f"loss {format_metric(line['loss'])}"]
        if value is not None:
            parts.append(f"validation {self._metric} {format_metric(value)}")
        if line["best"] is not None:
            parts[-1] += f" (best {format_metric(line['best'])} at epoch {line['best_epoch']})"
        parts += _format_idle_share(line)
        remaining = self._epochs - line["epoch"]
        if remaining:
            pace = (now - self._begin_s) / max(line["epoch"] - self._first, 1)
            parts.append(f"at most {duration(pace * remaining)} left")
        self.note(f"epoch {line['epoch']}/{self._epochs}: {', '.join(parts)}")

    def note(self, text: str) -> None:
        self._console.print(Text(self.with_title(text)), soft_wrap=True)


def _format_idle_share(line: dict[str, Any]) -> list[str]:
    """The share of their time that ranks wait for one another."""
    ranks = [mean_rank_stats(rank, 1) for rank in line.get("ranks", [])]
    total_s = sum(rank.seconds for rank in ranks)
    computing_s = sum(rank.computing_s for rank in ranks)
    return [f"ranks wait {percent(1 - computing_s / total_s)} of the time"] if total_s else []


@contextmanager
def show_online_progress(quiet: bool) -> Iterator[Progress]:
    """Show the progress of online training on stderr."""
    if quiet:
        yield Progress()
    elif not err.is_terminal:
        yield SnapshotLines(err, None)
    else:
        with err.status("starting") as status:
            yield SnapshotLines(err, status)


class SnapshotLines(Progress):
    """A line for each snapshot trained on; in a terminal also the current stage."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console, self._status = console, status
        self._last_stage = ""

    def stage(self, what: str, done: int, total: int | None) -> None:
        del done, total
        if self._status is not None:
            self._status.update(what)
        elif what != self._last_stage and what.startswith("waiting"):
            self._last_stage = what
            self.note(what)

    def step(self, epoch: int, step: int) -> None:
        if self._status is not None:
            self._status.update(f"training on snapshot {epoch}: step {step}")

    def epoch(self, line: dict[str, Any]) -> None:
        seconds = duration(line["train_s"] + line["evaluate_s"])
        result = "no examples" if line["loss"] is None else f"{_format_score(line)}loss {format_metric(line['loss'])}"
        self.note(f"{line['snapshot']:<10}  {result}, {seconds}")

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def _format_score(line: dict[str, Any]) -> str:
    """The score of a snapshot before it was trained on, and that of the best baseline."""
    metric = line.get("metric")
    value = line.get("validation", {}).get(metric)
    if value is None:
        return "not evaluated, "
    scores = [(each[metric], name) for name, each in line["baselines"].items() if metric in each]
    best = (max if line["higher_is_better"] else min)(scores, default=None)
    baseline = "" if best is None else f" (baseline {format_metric(best[0])}, {best[1]})"
    return f"{metric} {format_metric(value)}{baseline}, "
