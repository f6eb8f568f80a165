"""What is killed: five commands on tiny inputs, how each goes on, and what it must come to."""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import strobe  # before torch: it tells OpenMP how to wait
from strobe.api import train_online
from strobe.cli.main import app
from strobe.engine.checkpoint import store
from strobe.engine.checkpoint.store import BEST, LAST
from strobe.engine.online.loop import OnlineConfig
from strobe.engine.online.trainer import GRAPH
from strobe.engine.records.run_directory import LINES, RESULT, read_lines
from strobe.errors import FormatError, StrobeError
from strobe.graph.follow import follow
from strobe.graph.ingest import Calendar
from strobe.graph.ingest.options import IngestOptions
from strobe.graph.synthetic import Social
from strobe.models.structure import GCN
from strobe.models.time import Recurrent
from strobe.ops import native
from strobe.view import View

import torch  # isort: skip
from torch import nn  # isort: skip

RANKS = 2
EVENTS, TRAINED = "events.csv", "trained"
_DAYS, _EPOCHS = 7, 3


class Dropping(nn.Module):
    """A model that draws random numbers in training. Its run saves often: kills should meet a writer."""

    width = 16
    save_every_s = 0.05

    def __init__(self, inputs: int) -> None:
        super().__init__()
        store.SAVE_EVERY_S = self.save_every_s
        self.convolution, self.recurrent = GCN(inputs, self.width), Recurrent(nn.GRU(self.width, self.width))

    def forward(self, view: View) -> torch.Tensor:
        x = nn.functional.dropout(self.convolution(view, view.x), 0.2, self.training)
        return view.over_time(self.recurrent, x)


class Saving(Dropping):
    """The same, saved after every epoch."""

    save_every_s = 0.0


def epochs_done(out: Path) -> int:
    """How many epochs a run has told of."""
    try:
        return (out / LINES).read_bytes().count(b'{"event": "epoch"')
    except FileNotFoundError:
        return 0


class Work(ABC):
    """A command that writes to ``out``. ``given`` holds what all works read; nothing is written there."""

    name: ClassVar[str]
    ranks: ClassVar[int] = 1

    @abstractmethod
    def begin(self, given: Path, out: Path) -> None:
        """Run it as a user would the first time."""

    @abstractmethod
    def again(self, given: Path, out: Path) -> None:
        """Run it after a kill, doing what its messages say. Raises StrobeError where nothing that they say helps."""

    @abstractmethod
    def result(self, out: Path) -> str:
        """A digest of all that must not depend on kills."""


class _Command(Work):
    """A command that begins again: it needs nothing of what a killed one left."""

    def again(self, given: Path, out: Path) -> None:
        try:
            self.begin(given, out)
        except StrobeError as error:
            if "--overwrite" not in str(error):
                raise
            app([*self.arguments(given, out), "--overwrite"], standalone_mode=False)

    def begin(self, given: Path, out: Path) -> None:
        app(self.arguments(given, out), standalone_mode=False)

    @abstractmethod
    def arguments(self, given: Path, out: Path) -> list[str]:
        """Of the command line."""

    def result(self, out: Path) -> str:
        return digest(out)


class Make(_Command):
    """``strobe data make``."""

    name = "make"

    def arguments(self, given: Path, out: Path) -> list[str]:
        del given
        return ["data", "make", "social", str(out), "--nodes", "40", "--snapshots", "6", "--edges", "80", "--labels"]


class Ingest(_Command):
    """``strobe ingest`` of a CSV file."""

    name = "ingest"

    def arguments(self, given: Path, out: Path) -> list[str]:
        columns = ["--src", "who", "--dst", "whom", "--time", "at", "--per", "day"]
        return ["ingest", str(given / EVENTS), *columns, "--out", str(out)]


class Predict(_Command):
    """``strobe predict`` into a CSV file."""

    name = "predict"

    def arguments(self, given: Path, out: Path) -> list[str]:
        return ["predict", str(given / TRAINED), "--part", "test", "--out", str(out) + ".csv"]

    def result(self, out: Path) -> str:
        return digest(Path(str(out) + ".csv"))


class Train(Work):
    """Training on one rank, with checkpoints after every epoch."""

    name = "train"

    def begin(self, given: Path, out: Path) -> None:
        self._train(given, out)

    def again(self, given: Path, out: Path) -> None:
        _resume_or_begin(lambda **how: self._train(given, out, **how))

    def _train(self, given: Path, out: Path, **how: Any) -> None:
        chosen: dict[str, Any] = {"window": 2, "threads": 1, "patience": 0, "epochs": _EPOCHS, "device": "cpu"}
        strobe.train(given / GRAPH, Saving, "regression", out=out, ranks=self.ranks, **chosen, **how)

    def result(self, out: Path) -> str:
        last = sorted((out / LAST).glob("epoch-*"))[-1]
        scores = json.loads((out / RESULT).read_text())
        told = [digest(last), digest(out / BEST), scores["validation"], scores["test"]]
        return hashlib.sha256(json.dumps([last.name, *told]).encode()).hexdigest()


class TrainOnRanks(Train):
    """The same on several ranks."""

    name = "ranks"
    ranks = RANKS


class Watch(Work):
    """Training while snapshots arrive from a CSV file."""

    name = "watch"

    def begin(self, given: Path, out: Path) -> None:
        self._watch(given, out)

    def again(self, given: Path, out: Path) -> None:
        _resume_or_begin(lambda **how: self._watch(given, out, **how))

    def _watch(self, given: Path, out: Path, **how: Any) -> None:
        options = IngestOptions(src="who", dst="whom", time="at", clock=Calendar("day"))
        watching = OnlineConfig(
            open_source=lambda into: follow(given / EVENTS, options, into=into),
            source_config={"name": "events"},
            once=True,
        )
        chosen: dict[str, Any] = {"threads": 1, "fit_snapshots": 4, "device": "cpu"}
        train_online(watching, Saving, "link-prediction", out=out, **chosen, **how)

    def result(self, out: Path) -> str:
        last = sorted((out / LAST).glob("epoch-*"))[-1]
        epochs = [line["epoch"] for line in read_lines(out) if line["event"] == "epoch"]
        journal = json.loads((out / GRAPH / ".follow" / "journal.json").read_text())
        read = [journal["position"], journal["counts"]]  # names of snapshots that are built may be there or gone
        told = [last.name, digest(last), epochs, digest(out / GRAPH, leave_out=".follow"), read]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


WORKS: dict[str, Work] = {work.name: work for work in (Make(), Ingest(), Predict(), Train(), TrainOnRanks(), Watch())}


def load_modules() -> None:
    """Import what works import when they run: processes that are forked from this one have it already."""
    for name in _MODULES:
        with suppress(ImportError):
            import_module(name)
    native.library()


_MODULES = (
    "duckdb",
    "numba",
    "numba.core.runtime.nrt",
    "pandas",
    "pyarrow.csv",
    "pyarrow.parquet",
    "rich.progress",
    "pydantic",
    "rich._emoji_codes",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "strobe.planner",
    "strobe.planner.memory",
    "strobe.planner.time.passes",
    "safetensors.torch",
    "typer._adapters",
)


def prepare(given: Path) -> None:
    """Write what works read: events, a graph, and a run to predict from."""
    given.mkdir()
    drawn, day = random.Random(1), datetime(2024, 1, 1)
    rows = ["who,whom,at\n"]
    for number in range(_DAYS):
        for moment in sorted(drawn.uniform(0, 86_000) for _ in range(30)):
            who, at = drawn.randrange(20), day + timedelta(days=number, seconds=moment)
            rows.append(f"p{who},p{(who + drawn.choice([1, 2, 5])) % 20},{at.isoformat()}\n")
    (given / EVENTS).write_text("".join(rows))
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True, seed=0).write().save(given / GRAPH)
    chosen: dict[str, Any] = {"threads": 1, "epochs": 1, "device": "cpu", "model_options": {"hidden": 8}}
    strobe.train(given / GRAPH, "tgcn", "regression", out=given / TRAINED, **chosen)


def digest(path: Path, leave_out: str | None = None) -> str:
    """Of a file's bytes, or of all files of a folder with their names, but for one folder in it."""
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if leave_out in file.relative_to(path).parts:
            continue
        total.update(str(file.relative_to(path)).encode())
        if file.is_file():
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _resume_or_begin(run: Callable[..., None]) -> None:
    """Go on with a run; begin where it was killed before there was one. Nothing is overwritten: work would be lost."""
    try:
        run(resume=True)
    except FormatError as error:
        if "no run at" not in str(error):
            raise
        run()
