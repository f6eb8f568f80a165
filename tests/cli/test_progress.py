from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

from strobe.cli.progress import EpochBar, LogLines, TitledProgress, show_progress

INFO = {"epochs": 5, "epoch": 0, "steps": 1, "metric": "mse"}


def line(epoch: int, ranks: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"epoch": epoch, "loss": 0.5, "best": 0.25, "best_epoch": 1, "memory_bytes": 1 << 20}
    ledger = {"sent": {}, "seconds": {"exposed_comm_s": 0.25, "straggler_wait_s": 0.25}, "total_s": 2.0}
    if ranks:
        found["ranks"] = [ledger | {"memory_bytes": (k + 1) << 20} for k in range(ranks)]
    return found


def log(monkeypatch: pytest.MonkeyPatch, ranks: int, title: str = "") -> list[str]:
    monkeypatch.setattr("strobe.cli.progress._LOG_EVERY_S", -1.0)
    text = StringIO()
    lines = LogLines(Console(file=text, width=200), ranks)
    lines.title = title
    lines.begin(INFO)
    lines.epoch(line(1, ranks if ranks > 1 else 0))
    return text.getvalue().splitlines()


def test_log_has_title_ranks_and_their_idle_share(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = log(monkeypatch, 2, "pss (1/2)")
    assert first == "pss (1/2): training 5 epochs of 1 step on 2 ranks"
    assert second.startswith("pss (1/2): ")
    assert "wait 25%" in second
    assert not any("rank" in line for line in log(monkeypatch, 1))


def test_finished_run_is_noted_once() -> None:
    text, shown = StringIO(), StringIO()
    lines = LogLines(Console(file=text, width=200))
    bars = EpochBar(Bar(console=Console(file=shown, width=200)))
    for progress in (lines, bars):
        progress.begin(INFO | {"epoch": 7})
        progress.begin(INFO | {"epoch": 7})
    assert len(text.getvalue().splitlines()) == 1
    assert "the run has had 7 epochs" in text.getvalue()
    assert shown.getvalue().count("the run has had 7 epochs") == 1
    lines = LogLines(Console(file=text, width=200))
    lines.begin(INFO)
    lines.begin(INFO | {"epoch": 5})  # batches are ordered once more after the last epoch
    assert len(text.getvalue().splitlines()) == 2


def bar(ranks: int, title: str = "") -> str:
    shown = Bar(TextColumn("{task.description}|{task.fields[status]}"), console=Console(file=StringIO(), width=200))
    progress = EpochBar(shown, ranks)
    progress.title = title
    progress.begin(INFO)
    progress.step(1, 1)
    progress.epoch(line(1, ranks if ranks > 1 else 0))
    (task,) = shown.tasks
    return f"{task.description}|{task.fields['status']}"


def test_bar_covers_all_ranks() -> None:
    assert bar(2) == "epoch 1/5, 2 ranks|loss 0.5000 best 0.2500 2.0 MiB"
    assert bar(1, "pts (2/2)") == "pts (2/2): epoch 1/5|loss 0.5000 best 0.2500 1.0 MiB"


def test_only_rank_0_of_torchrun_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    with show_progress(quiet=False) as progress:
        assert isinstance(progress, LogLines)
    monkeypatch.setenv("RANK", "1")
    with show_progress(quiet=False) as progress:
        assert type(progress) is TitledProgress
