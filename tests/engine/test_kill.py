"""Runs of several ranks that are killed (SIGKILL), whichever rank and whenever, and go on to the very same bits."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from torch import Tensor, nn

import strobe
from benchmarks.killing.processes import GONE_S
from strobe.comm.launch.launcher import RankError
from strobe.engine import Progress
from strobe.engine.checkpoint import store
from strobe.engine.checkpoint.store import BEST, LAST, has_checkpoint, read_checkpoint
from strobe.engine.records.run_directory import read_lines
from strobe.placement import Partition, TimeBlocks
from strobe.plan import Plan
from strobe.view import View
from tests.support.kills import forked, is_running
from tests.support.runs import Noisy, same_tensors, small_graph

pytestmark = pytest.mark.usefixtures("ranks_are_forks")
EPOCHS = 40


class Patient(TimeBlocks):
    """A placement that takes longer than ranks wait for messages."""

    def place(self, *args: Any, **options: Any) -> Partition:
        sleep(1.5)
        return super().place(*args, **options)


class Failing(Noisy):
    """A model that fails on rank 1 in the second step."""

    passes = 0

    def forward(self, view: View) -> Tensor:
        self.passes += 1
        if os.environ.get("RANK") == "1" and self.passes == 2:
            raise ValueError("no such row")
        return super().forward(view)


def test_a_placement_may_outlast_the_deadline_and_a_failing_step_is_placed() -> None:
    with pytest.raises(RankError, match="no such row") as caught:
        strobe.train(
            small_graph(),
            Failing,
            "regression",
            plan=replace(Plan(), placement=Patient()),
            ranks=2,
            deadline_s=1.0,
            threads=1,
            window=2,
            epochs=2,
        )
    assert caught.value.rank == 1
    assert caught.value.position is not None
    assert (caught.value.position.epoch, caught.value.position.step, caught.value.position.phase) == (1, 2, "forward")


def eager(inputs: int) -> nn.Module:
    """A model that draws random numbers, in a process that saves often."""
    store.SAVE_EVERY_S = 0.05
    return Noisy(inputs)


def train(folder: Path, out: Path, **changes: Any) -> None:
    chosen: dict[str, Any] = {"window": 2, "threads": 1, "patience": 0, "epochs": EPOCHS, "ranks": 2}
    strobe.train(folder / "graph", eager, "regression", out=out, **chosen | changes)


def same_end(first: Path, second: Path) -> bool:
    return all(same_tensors(read_checkpoint(first / name), read_checkpoint(second / name)) for name in (LAST, BEST))


def ranks_of(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


class Killer(Progress):
    """Kills a rank some time after an epoch, or the first it hears of that is later."""

    def __init__(self, rank: int, epoch: int, delay_s: float) -> None:
        self.rank, self.at, self.delay_s = rank, epoch, delay_s
        self.struck = False

    def epoch(self, line: dict[str, Any]) -> None:
        if line["epoch"] >= self.at and not self.struck:
            self.struck = True
            sleep(self.delay_s)
            os.kill(ranks_of(os.getpid())[-2:][self.rank], signal.SIGKILL)


def kill_parent(folder: Path, out: Path) -> None:
    """Begins a run in a process of its own, which is killed in the middle of it."""
    parent = forked(lambda: train(folder, out))
    while not has_checkpoint(out) and is_running(parent):
        sleep(0.01)
    ranks = ranks_of(parent)
    sleep(random.Random(5).uniform(0, 0.1))
    os.kill(parent, signal.SIGKILL)
    assert os.waitpid(parent, 0)[1] == signal.SIGKILL
    assert len(ranks) == 2
    until = monotonic() + GONE_S
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        assert monotonic() < until, "ranks outlive the process that started them"
        sleep(0.01)


def test_a_parent_and_ranks_killed_one_after_the_other_the_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "graph")
    before = ranks_of(os.getpid())
    train(tmp_path, tmp_path / "unstopped")
    drawn, out = random.Random(5), tmp_path / "killed"
    kill_parent(tmp_path, out)
    for rank in (1, 0):
        begun = max(line["epoch"] for line in read_lines(out) if line["event"] == "epoch")
        at = begun + 1 + drawn.randrange(4)  # later each time, and long before the end
        with pytest.raises(RankError, match=rf"rank {rank} was killed \(signal 9\)"):
            train(tmp_path, out, resume=True, progress=Killer(rank, at, drawn.uniform(0, 0.02)))
        assert ranks_of(os.getpid()) == before
        assert not (out / "result.json").exists()
    train(tmp_path, out, resume=True)
    assert [line["epoch"] for line in read_lines(out) if line["event"] == "epoch"] == list(range(1, EPOCHS + 1))
    assert same_end(out, tmp_path / "unstopped")
