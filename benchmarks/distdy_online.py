"""Training while snapshots arrive: how well is each predicted before it is learnt from, and what does a kill cost?

``online``: rust_git, month by month, GraphSAGE on sampled neighbours; the mean over all months that were judged.
``kills``: events are appended to a text file while two ranks watch it. Any of the three processes is killed (SIGKILL)
at a random moment, and the run resumed, again and again. It is identical if its last checkpoint, which holds weights,
optimiser and random numbers of all ranks, has the bytes of the undisturbed run, its record has every snapshot
once, and its graph is the same.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

from benchmarks.killing.processes import GONE_S, PARENT, ranks_of
from benchmarks.killing.works import RANKS, Dropping, epochs_done
from benchmarks.record import Record, table
from strobe.api import train_online
from strobe.engine.checkpoint.store import LAST
from strobe.engine.inputs.graph_source import fingerprint
from strobe.engine.online.loop import OnlineConfig
from strobe.engine.online.trainer import GRAPH
from strobe.engine.records.run_directory import CONFIG, read_lines
from strobe.graph import open_graph
from strobe.graph.follow import follow
from strobe.graph.ingest import Calendar
from strobe.graph.ingest.options import IngestOptions

FIT, PASSES, SIZE = 12, 2, 4096
MAX_PAIRS = 5000
DAYS, EVENTS = 30, 40
_PACE_S = 0.15
"""Between one day's events and the next."""


def online(record: Record, quick: bool) -> None:
    """The worked example of docs/online.md."""
    from strobe.presets import preset
    from strobe.tasks import LinkPrediction

    with tempfile.TemporaryDirectory(prefix="strobe-online-") as place:
        watching = OnlineConfig(
            open_source=lambda into: follow("rust_git", into=into),
            source_config={"name": "rust_git"},
            snapshots=20 if quick else None,
        )
        began = perf_counter()
        watched = train_online(
            watching,
            "sage",
            LinkPrediction(max_pairs=MAX_PAIRS),
            out=Path(place) / "run",
            plan=preset("distdy", size=SIZE, passes=PASSES),
            fit_snapshots=FIT,
        )
        seconds = perf_counter() - began
    record.figures["online_ap"] = watched.metrics["ap"]
    record.figures |= {f"online_ap_{name.replace(' ', '_')}": row["ap"] for name, row in watched.baselines.items()}
    record.samples["online"] = {
        "seconds": seconds,
        "learnt": len(watched.history),
        "metrics": watched.metrics,
        "baselines": watched.baselines,
        "times": [str(line["snapshot"]) for line in watched.evaluated],
        "ap": {
            watched.model: [line["validation"]["ap"] for line in watched.evaluated],
            **{name: [line["baselines"][name]["ap"] for line in watched.evaluated] for name in watched.baselines},
        },
    }
    print(watched.summary(), flush=True)


@dataclass
class Kill:
    """One kill: whom, how long after how many more snapshots (0: after its ranks were there), and what came of it."""

    victim: int
    more: int
    delay_s: float
    snapshots_done: int = 0
    orphans: int = 0
    identical: bool = False


def kills(record: Record, quick: bool) -> None:
    """Kills and resumes."""
    drawn, began = random.Random(0), perf_counter()
    num_runs, kills_each = (1, 2) if quick else (5, 4)
    done: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="strobe-watched-") as folder:
        first = Path(folder) / "undisturbed"
        with _arriving(Path(folder) / "first.csv", pace_s=0.0) as events:
            as_watcher(str(events), str(first))
        wanted = _bits(first)
        for number in range(num_runs):
            out = Path(folder) / f"run-{number}"
            with _arriving(Path(folder) / f"{number}.csv", pace_s=_PACE_S) as events:
                mine = [_struck(events, out, drawn) for _ in range(kills_each)]
                child = _child(events, out)
                assert child.wait() == 0, "a run that was killed did not go on"
            for kill in mine:
                kill.identical = _bits(out) == wanted
                print(f"killed {_name(kill)} after {kill.snapshots_done} snapshots", flush=True)
            done += mine
    record.figures |= {
        "watch_kills": len(done),
        "watch_identical": sum(kill.identical for kill in done),
        "watch_orphans": sum(kill.orphans for kill in done),
    }
    record.samples["kills"] = {"seconds": perf_counter() - began, "kills": [asdict(kill) for kill in done]}
    rows = [[_name(kill), kill.snapshots_done, kill.orphans, kill.identical] for kill in done]
    table(["killed", "snapshots done", "orphans", "identical"], rows)


def as_watcher(events: str, out: str) -> None:
    """Watches the file to its end, or goes on with it; a run that saves after every snapshot."""
    options = IngestOptions(src="who", dst="whom", time="at", clock=Calendar("day"))
    told = {"name": "events"}
    watching = OnlineConfig(
        open_source=lambda into: follow(events, options, into=into), source_config=told, poll_s=0.05, snapshots=DAYS - 2
    )
    resume = (Path(out) / CONFIG).exists()
    train_online(watching, Dropping, "link-prediction", out=out, resume=resume, ranks=RANKS, threads=1, fit_snapshots=4)


def _child(events: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.distdy", "--child", "watch", str(events), str(out)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL)


def _struck(events: Path, out: Path, drawn: random.Random) -> Kill:
    """A run in which somebody is killed."""
    more = drawn.randint(0, DAYS // 6)
    kill = Kill(drawn.choice([PARENT, *range(RANKS)]), more, drawn.uniform(0.0, 0.1 if more else 2.0))
    before, child = epochs_done(out), _child(events, out)
    ranks: dict[int, int] = {}
    while child.poll() is None and (len(ranks) < RANKS or epochs_done(out) < before + more):
        ranks = ranks if len(ranks) == RANKS else ranks_of(child.pid)
        sleep(0.005)
    sleep(kill.delay_s)
    if child.poll() is None:
        victim = child.pid if kill.victim == PARENT else ranks[kill.victim]
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(victim, signal.SIGKILL)
    child.wait()
    until = monotonic() + GONE_S
    left = set(ranks.values())
    while (left := {pid for pid in left if Path(f"/proc/{pid}").exists()}) and monotonic() < until:
        sleep(0.01)
    kill.orphans, kill.snapshots_done = len(left), epochs_done(out)
    return kill


@contextmanager
def _arriving(path: Path, pace_s: float) -> Iterator[Path]:
    """A text file to which events are appended, day by day, while what is inside happens."""
    drawn, over, day = random.Random(1), Event(), datetime(2024, 1, 1)
    path.write_text("who,whom,at\n")

    def write() -> None:
        for number in range(DAYS):
            moments = sorted(drawn.uniform(0, 86_000) for _ in range(EVENTS))
            rows = []
            for moment in moments:
                who = drawn.randrange(30)
                at = day + timedelta(days=number, seconds=moment)
                rows.append(f"p{who},p{(who + drawn.choice([1, 2, 5])) % 30},{at.isoformat()}\n")
            with path.open("a") as file:
                file.write("".join(rows))
            over.wait(pace_s)  # when it is over the rest comes at once

    writer = Thread(target=write)
    writer.start()
    try:
        yield path
    finally:
        over.set()
        writer.join()


def _bits(out: Path) -> tuple[str, list[int], dict[str, Any]]:
    """What a run came to: the sum of its last checkpoint, the snapshots of its record, its graph."""
    last = sorted((out / LAST).glob("epoch-*"))[-1]
    told = [line["epoch"] for line in read_lines(out) if line["event"] == "epoch"]
    return hashlib.sha256(last.read_bytes()).hexdigest(), told, fingerprint(open_graph(out / GRAPH)[: DAYS - 1])


def _name(kill: Kill) -> str:
    return "parent" if kill.victim == PARENT else f"rank {kill.victim}"
