from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

from strobe.cli.run_progress import EpochBar, LogLines, Titled, watched

INFO = {"epochs": 5, "epoch": 0, "steps": 1, "metric": "mse"}


def line(epoch: int, ranks: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"epoch": epoch, "loss": 0.5, "best": 0.25, "best_epoch": 1, "memory_bytes": 1 << 20}
    ledger = {"sent": {}, "seconds": {"exposed": 0.25, "waiting": 0.25}, "total_s": 2.0}
    if ranks:
        found["ranks"] = [ledger | {"memory_bytes": (k + 1) << 20} for k in range(ranks)]
    return found


def log(monkeypatch: pytest.MonkeyPatch, ranks: int, title: str = "") -> list[str]:
    monkeypatch.setattr("strobe.cli.run_progress._LOG_EVERY_S", -1.0)
    text = StringIO()
    lines = LogLines(Console(file=text, width=200), ranks)
    lines.title = title
    lines.begin(INFO)
    lines.epoch(line(1, ranks if ranks > 1 else 0))
    return text.getvalue().splitlines()


def test_a_log_says_how_many_ranks_train_and_how_much_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, went = log(monkeypatch, 2)
    assert begun == "training 5 epochs of 1 step on 2 ranks"
    assert "ranks wait 25% of the time" in went


def test_a_log_of_one_rank_says_nothing_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, went = log(monkeypatch, 1)
    assert begun == "training 5 epochs of 1 step"
    assert "rank" not in went


def test_lines_name_the_run_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(told.startswith("pss (1/2): ") for told in log(monkeypatch, 2, "pss (1/2)"))


def test_a_run_that_has_all_its_epochs_is_said_to_have_them() -> None:
    text, shown = StringIO(), StringIO()
    lines = LogLines(Console(file=text, width=200))
    bars = EpochBar(Bar(console=Console(file=shown, width=200)))
    for watch in (lines, bars):
        watch.begin(INFO | {"epoch": 7})
        watch.begin(INFO | {"epoch": 7})
    wanted = "nothing is left to train: the run has had 7 epochs, more need a larger --epochs"
    assert text.getvalue().splitlines() == [wanted]
    assert shown.getvalue().count(wanted) == 1


def test_a_new_order_after_the_last_epoch_is_not_said_to_train() -> None:
    text = StringIO()
    lines = LogLines(Console(file=text, width=200))
    lines.begin(INFO)
    lines.begin(INFO | {"epoch": 5})
    assert text.getvalue().splitlines() == ["training 5 epochs of 1 step"]


def bar(ranks: int, title: str = "") -> str:
    shown = Bar(TextColumn("{task.description}|{task.fields[said]}"), console=Console(file=StringIO(), width=200))
    watch = EpochBar(shown, ranks)
    watch.title = title
    watch.begin(INFO)
    watch.step(1, 1)
    watch.epoch(line(1, ranks if ranks > 1 else 0))
    (task,) = shown.tasks
    return f"{task.description}|{task.fields['said']}"


def test_one_bar_stands_for_all_ranks() -> None:
    assert bar(2) == "epoch 1/5, 2 ranks|loss 0.5000 best 0.2500 2.0 MiB"
    assert bar(1, "pts (2/2)") == "pts (2/2): epoch 1/5|loss 0.5000 best 0.2500 1.0 MiB"


def test_only_the_first_rank_of_torchrun_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(quiet=False) as progress:
        assert isinstance(progress, LogLines)
    monkeypatch.setenv("RANK", "1")
    with watched(quiet=False) as progress:
        assert type(progress) is Titled
