"""How large a graph can be, how memory divides among ranks, and what the public code of the paper takes.

Each is measured in processes of its own. Steps are those of our preset; a run ends after a fixed number of them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

from benchmarks.flare_memory import weighed
from benchmarks.flare_runs import WINDOW
from benchmarks.flare_sets import JUDGED_BY, TRAIN
from benchmarks.peer_graph import edges
from benchmarks.record import memory
from benchmarks.time_to_loss import DEADLINE_S, EnoughError
from strobe.api import SERVICES
from strobe.comm import Comm, SingleRankComm, run_ranks
from strobe.engine import Progress
from strobe.engine.fit import train_step
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.train import train_on_rank
from strobe.graph import Degrees, DiskSink, from_edges, open_graph
from strobe.graph.synthetic import PublishedShape
from strobe.presets import preset
from strobe.tasks import make_task

BIG_MODEL = "tgcn"
BIG_OPTIONS = {"hidden": 16}
BIG_STRETCH, BIG_PASSES = 16, 2
"""Training snapshots, the latest there are but for those that judge and test, and how often: early ones of a graph that
grows are small and easy, so that losses of one pass say little."""

_BIG_DEADLINE_S = 1800.0

PEER = {16: {"cpu_s": 3.0, "peak_gb": 0.9}, 64: {"cpu_s": 15.4, "peak_gb": 2.1}}
"""By hidden columns: what an epoch of trapezoid batches takes in the public code of the paper, MPNN-LSTM, one rank with
one thread, 15 snapshots, measured on a machine of two cores with the same torch."""

PEER_GRAPH = (50_000, 20, 150_000)
"""Nodes, snapshots, edges of each; a tenth of the edges is replaced from one to the next."""


class Laps(Progress):
    """When each step ended; the run ends after some of them."""

    def __init__(self, steps: int) -> None:
        self.ended: list[float] = []
        self._steps = steps

    def begin(self, info: dict[str, Any]) -> None:
        self.ended.append(perf_counter())

    def step(self, epoch: int, step: int) -> None:
        self.ended.append(perf_counter())
        if len(self.ended) > self._steps:
            raise EnoughError

    @property
    def seconds(self) -> list[float]:
        return [after - before for before, after in zip(self.ended, self.ended[1:], strict=False)]


def made(shape: str, scale: float, folder: Path) -> str:
    """A published shape on disk, written with little memory."""
    path = folder / f"{shape}-{scale:g}"
    with DiskSink(path) as sink:
        PublishedShape(shape=shape, scale=scale).write(sink)
    return str(path)


def big(graph: str, ranks: int = 2, passes: int = BIG_PASSES) -> dict[str, Any]:
    """Passes over a stretch of a graph on disk: seconds and losses of their steps, the peak of each rank."""
    snapshots = round(BIG_STRETCH / TRAIN) + 1

    def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Any]:
        laps, losses = Laps(passes * BIG_STRETCH), []

        def observed(*given: Any) -> Any:
            result, carry = train_step(*given)
            losses.append(result.loss / max(result.num_examples, 1))
            return result, carry

        task = make_task("regression", train=TRAIN, validation=JUDGED_BY, from_last=False)
        how = {"epochs": passes, "evaluate_every": passes + 1, "threads": 1, "patience": 0}
        given = TrainRequest(
            open_graph(graph)[-snapshots:],
            BIG_MODEL,
            task,
            BIG_OPTIONS,
            changes=how,
            plan=preset("flare"),
            services=SERVICES,
        )
        began = perf_counter()
        with patch.object(sys.modules[train_step.__module__], "train_step", observed), suppress(EnoughError):
            train_on_rank(given, OutputConfig(), laps, comm)
        return {
            "prepare_s": laps.ended[0] - began,
            "step_s": laps.seconds,
            "losses": losses,
            "peak_bytes": memory("VmHWM"),
        }

    found = run_ranks(work, ranks, threads=1, deadline_s=_BIG_DEADLINE_S)
    first = found[0]
    losses = first["losses"]
    return {
        "model": BIG_MODEL,
        "model_options": BIG_OPTIONS,
        "ranks": ranks,
        "peak_bytes": [each["peak_bytes"] for each in found],
        "full_step_s": statistics.median(first["step_s"][WINDOW:BIG_STRETCH]),
        "pass_losses": [statistics.mean(losses[at : at + BIG_STRETCH]) for at in range(0, len(losses), BIG_STRETCH)],
        **{name: first[name] for name in ("prepare_s", "step_s", "losses")},
    }


def by_ranks(graph: str, counts: tuple[int, ...] = (1, 2, 4)) -> dict[int, dict[str, int]]:
    """What training takes of memory by number of ranks: the largest of all ranks."""
    task = make_task("regression", train=TRAIN, validation=JUDGED_BY, from_last=False)
    found = {}
    for ranks in counts:

        def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, int]:
            return weighed(graph, task, BIG_MODEL, preset("flare"), comm)

        each = run_ranks(work, ranks, threads=1, deadline_s=DEADLINE_S)
        found[ranks] = {name: max(one[name] for one in each) for name in each[0]}
    return found


def beside_peer(hidden: int, epochs: int) -> dict[str, Any]:
    """Child: CPU seconds of each epoch after the first, and the peak of the process, with everything in it."""
    nodes, snapshots, per_snapshot = PEER_GRAPH
    found = edges(nodes, snapshots, per_snapshot, churn=0.1)
    graph = from_edges(found, num_nodes=nodes, x=Degrees(log=True))
    task = make_task("regression", train=0.75, validation=0.1, from_last=False)
    clock = Clock(epochs)
    how = {"epochs": epochs, "evaluate_every": epochs + 1, "threads": 1, "patience": 0}
    given = TrainRequest(
        graph, "mpnn-lstm", task, {"hidden": hidden}, changes=how, plan=preset("flare"), services=SERVICES
    )
    with suppress(EnoughError):
        train_on_rank(given, OutputConfig(), clock, SingleRankComm())
    return {"cpu_s": clock.seconds[1:], "steps": clock.steps}


class Clock(Progress):
    """CPU seconds of each epoch; the run ends with the last, before anything is scored."""

    def __init__(self, epochs: int) -> None:
        self.seconds: list[float] = []
        self.steps = 0
        self._epochs, self._began = epochs, 0.0

    def begin(self, info: dict[str, Any]) -> None:
        self.steps, self._began = info["steps"], process_time()

    def epoch(self, line: dict[str, Any]) -> None:
        now = process_time()
        self.seconds.append(now - self._began)
        self._began = now
        if len(self.seconds) == self._epochs:
            raise EnoughError


def in_a_folder(shape: str, scale: float, measure: Callable[[str], Any]) -> Any:
    """Makes a shape for the while."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(made(shape, scale, Path(folder)))
