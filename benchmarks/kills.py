"""Does a run that is killed and resumed end with the weights of one that was not?

One small run of two ranks, with a model that draws random numbers, again and again: killed (SIGKILL) at a random moment
(one in five while ranks start, the others in or after a random epoch), one in five times the process that started the
ranks, else any rank; then resumed. It is identical if its last checkpoint, which holds weights, optimiser, best weights
and the random numbers of every rank, has the same bytes as that of the run nobody disturbed. A process that outlives
the run it belonged to is an orphan.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

import strobe  # before torch: it tells OpenMP how to wait
from benchmarks.record import Record, options, table
from strobe.comm.launch import RankError
from strobe.engine import checkpoint
from strobe.engine.checkpoint import BEST, LAST, has_checkpoint
from strobe.engine.record import CONFIG, LINES
from strobe.graph.synthetic import Social
from strobe.models.structure import GCN
from strobe.models.time import Recurrent
from strobe.view import View

import torch  # isort: skip
from torch import nn  # isort: skip

RANKS, PARENT = 2, -1
GONE_S = 10.0
"""How long ranks may outlive the process that started them."""


class Dropping(nn.Module):
    """A model that draws random numbers in training. Its run saves often: kills should meet a writer."""

    width = 16

    def __init__(self, inputs: int) -> None:
        super().__init__()
        checkpoint.SAVE_EVERY_S = 0.05
        self.convolution, self.recurrent = GCN(inputs, self.width), Recurrent(nn.GRU(self.width, self.width))

    def forward(self, view: View) -> torch.Tensor:
        x = nn.functional.dropout(self.convolution(view, view.x), 0.2, self.training)
        return view.over_time(self.recurrent, x)


@dataclass(frozen=True)
class Case:
    """The run that is killed."""

    graph: Path
    epochs: int

    def train(self, out: Path) -> None:
        """Trains it, or goes on with what is there of it."""
        chosen: dict[str, Any] = {"window": 2, "threads": 1, "patience": 0, "epochs": self.epochs}
        resume = (out / CONFIG).exists()
        strobe.train(self.graph, Dropping, "regression", out=out, resume=resume, ranks=RANKS, **chosen)

    def child(self, out: Path) -> subprocess.Popen[bytes]:
        """The same in a process of its own."""
        command = [sys.executable, "-m", "benchmarks.kills", "--child", str(self.graph), str(self.epochs), str(out)]
        return subprocess.Popen(command, cwd=Path(__file__).parents[1])

    def bits(self, out: Path) -> tuple[str, bytes]:
        """What a run came to: the sums of all files of its last checkpoint, and its best weights."""
        last = out / LAST / f"epoch-{self.epochs:06d}" / "SHA256SUMS"
        return last.read_text(), (out / BEST).read_bytes()


@dataclass
class Kill:
    """One kill: whom, how long after which epoch (0: after its ranks were there), and what came of it."""

    victim: int
    epoch: int
    delay_s: float
    epochs_done: int = 0
    went_on_from: int | None = None
    orphans: int = 0
    identical: bool = False

    @property
    def name(self) -> str:
        return "parent" if self.victim == PARENT else f"rank {self.victim}"


def ranks_of(parent: int) -> dict[int, int]:
    """The ranks that a process has started and that still live: their process numbers by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(above) != parent or state == "Z" or b"launch_rank" not in (folder / "cmdline").read_bytes():
                continue
            told = dict(each.split(b"=", 1) for each in (folder / "environ").read_bytes().split(b"\0") if each)
            found[int(told[b"RANK"])] = int(folder.name)
        except (OSError, KeyError):  # it has just ended, or just begun
            continue
    return found


def epochs_done(out: Path) -> int:
    """How many epochs a run has told of."""
    try:
        return (out / LINES).read_bytes().count(b'{"event": "epoch"')
    except FileNotFoundError:
        return 0


def wait_for(parent: int, out: Path, epoch: int, over: Callable[[], bool]) -> dict[int, int]:
    """The ranks of a process once all are there and an epoch is done; fewer if all is over before."""
    found: dict[int, int] = {}
    while not over():
        found = found if len(found) == RANKS else ranks_of(parent)
        if len(found) == RANKS and epochs_done(out) >= epoch:
            break
        sleep(0.005)
    return found


@dataclass(frozen=True)
class Pace:
    """How long ranks take to their first epoch, and for an epoch."""

    start_s: float
    epoch_s: float


def undisturbed(case: Case, out: Path) -> Pace:
    """Trains without a kill."""
    over = Event()
    reached: list[float] = []

    def watch() -> None:
        for epoch in (0, 1, case.epochs):
            wait_for(os.getpid(), out, epoch, over.is_set)
            reached.append(monotonic())

    watcher = Thread(target=watch)
    watcher.start()
    case.train(out)
    over.set()
    watcher.join()
    return Pace(reached[1] - reached[0], (reached[2] - reached[1]) / (case.epochs - 1))


def kill_rank(case: Case, out: Path, kill: Kill) -> bool:
    """Trains, and kills one of the ranks meanwhile; whether it was still there to be killed."""
    over = Event()

    def strike() -> None:
        ranks = wait_for(os.getpid(), out, kill.epoch, over.is_set)
        if not over.wait(kill.delay_s):
            os.kill(ranks[kill.victim], signal.SIGKILL)

    striker = Thread(target=strike)
    striker.start()
    try:
        case.train(out)
    except RankError:
        return True
    finally:
        over.set()
        striker.join()
        kill.orphans = len(ranks_of(os.getpid()))
    return False


def kill_parent(case: Case, out: Path, kill: Kill) -> bool:
    """The same with the process that started the ranks."""
    child = case.child(out)
    left = set(wait_for(child.pid, out, kill.epoch, lambda: child.poll() is not None).values())
    sleep(kill.delay_s)
    child.kill()
    was_there = child.wait() == -signal.SIGKILL
    until = monotonic() + GONE_S
    while (left := {pid for pid in left if Path(f"/proc/{pid}").exists()}) and monotonic() < until:
        sleep(0.01)
    kill.orphans = len(left)
    return was_there


def killed(case: Case, out: Path, kills: list[Kill], wanted: tuple[str, bytes]) -> bool:
    """A run that is killed and resumed, as often as it is said; whether all kills came before its end."""
    for kill in kills:
        if not (kill_parent if kill.victim == PARENT else kill_rank)(case, out, kill):
            return False
        kill.epochs_done = epochs_done(out)
        if has_checkpoint(out):
            kill.went_on_from = max(int(found.name[6:]) for found in (out / LAST).glob("epoch-*"))
        print(f"killed {kill.name} after {kill.epochs_done} epochs", flush=True)
    case.train(out)
    for kill in kills:
        kill.identical = case.bits(out) == wanted
    return True


def main() -> None:
    """Kills and resumes, and prints the table."""
    chosen = options(__doc__ or "")
    if chosen.child:
        graph, epochs, out = chosen.child
        Case(Path(graph), int(epochs)).train(Path(out))
        return
    record, began = Record("kills", chosen.quick), perf_counter()
    # Most of the time goes into starting ranks: the quick one kills a single run twice.
    kills = _kill_all(1, 2, epochs=6) if chosen.quick else _kill_all(20, 1, epochs=40)
    record.figures |= {
        "kills": len(kills),
        "resumed": len(kills),  # a run that cannot go on ends the benchmark
        "identical": sum(kill.identical for kill in kills),
        "orphans": sum(kill.orphans for kill in kills),
        "with_checkpoint": sum(kill.went_on_from is not None for kill in kills),
        "seconds": perf_counter() - began,
    }
    record.samples["kills"] = [asdict(kill) for kill in kills]
    rows = [
        [kill.name, kill.epochs_done, kill.went_on_from or "the beginning", kill.orphans, kill.identical]
        for kill in kills
    ]
    table(["killed", "epochs done", "went on from epoch", "orphans", "identical"], rows)
    for figure, value in record.figures.items():
        print(f"{figure}: {value:.4g}")
    record.write(chosen.json)


def _kill_all(num_runs: int, kills_each: int, epochs: int) -> list[Kill]:
    drawn = random.Random(0)
    done: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="strobe-kills-") as folder:
        case = Case(Path(folder) / "graph", epochs)
        Social(nodes=300, snapshots=12, edges=900, labels=True, seed=0).write().save(case.graph)
        pace = undisturbed(case, Path(folder) / "undisturbed")
        wanted = case.bits(Path(folder) / "undisturbed")
        while len(done) < num_runs * kills_each:
            out = Path(folder) / f"run-{len(done)}"
            kills = [_drawn(number, drawn, pace, epochs) for number in range(len(done), len(done) + kills_each)]
            if killed(case, out, sorted(kills, key=lambda kill: kill.epoch), wanted):
                done += kills
            rmtree(out)
    return done


def _drawn(number: int, drawn: random.Random, pace: Pace, epochs: int) -> Kill:
    victim = PARENT if number % 5 == 3 else drawn.randrange(RANKS)
    epoch = 0 if number % 5 == 0 else drawn.randint(1, epochs)
    return Kill(victim, epoch, drawn.uniform(0, pace.epoch_s if epoch else pace.start_s))


if __name__ == "__main__":
    main()
