"""Seconds of a pass of trapezoid batches beside those of full history, in processes of their own with one thread each.

A pass is an epoch of training, a step per training snapshot; nothing is scored. The first one warms up.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

from benchmarks.flare_history import LR, MODELS, opened
from benchmarks.flare_runs import FULL, OURS, WIDE, plan_of
from benchmarks.flare_sets import QUICK, Case
from benchmarks.record import Record, child, table
from benchmarks.time_to_loss import EnoughError
from strobe.api import SERVICES
from strobe.comm import SingleRankComm
from strobe.engine import Progress
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.train import train_on_rank
from strobe.graph import open_graph
from strobe.tasks import Task

MOST, ENOUGH_S = 5, 90.0
"""Passes after the first one: at most ``MOST``, as many as end within ``ENOUGH_S`` seconds, at least one."""


class Passes(Progress):
    """Seconds of each pass; the run ends when there are enough."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def epoch(self, line: dict[str, Any]) -> None:
        self.seconds.append(line["train_s"])
        timed = self.seconds[1:]
        if timed and (len(timed) >= MOST or sum(self.seconds) > ENOUGH_S):
            raise EnoughError


def timed(graph: str, task: Task, model: str, system: str) -> list[float]:
    """Seconds of the passes of a system, the first one among them."""
    how = {"epochs": MOST + 2, "evaluate_every": MOST + 2, "patience": 0, "threads": 1, "lr": LR}
    given = TrainRequest(
        open_graph(graph), model, task, {"hidden": WIDE}, changes=how, plan=plan_of(system), services=SERVICES
    )
    watch = Passes()
    with suppress(EnoughError):
        train_on_rank(given, OutputConfig(), watch, SingleRankComm())
    return watch.seconds


def passes(record: Record, cases: Sequence[Case], at_a_time: int = 1) -> None:
    """Every model on every graph, ``at_a_time`` processes in parallel; full history, which takes longest, first. What
    the record has of other graphs stays."""
    with ExitStack() as stack, ThreadPoolExecutor(at_a_time) as pool:
        found = list(filter(None, [stack.enter_context(opened(case, record)) for case in cases]))
        models = MODELS[: 1 if QUICK in cases else None]
        keys = [(given, model) for given in sorted(found, key=lambda each: -each.cells) for model in models]
        runs = [(given, model, system) for system in (FULL, OURS) for given, model in keys]
        calls = [
            pool.submit(child, "benchmarks.flare", "passes", given.path, given.case.name, model, system)
            for given, model, system in runs
        ]
        seconds = {
            (f"{given.case.name}/{model}", system): call.result()["seconds"]
            for (given, model, system), call in zip(runs, calls, strict=True)
        }
    if not seconds:
        record.missing["time_vs_full"] = "no graph was found"
        return
    names = [f"{given.case.name}/{model}" for given in found for model in models]
    kept = record.samples.get("passes", {}).get("seconds", {})
    kept |= {name: {system: seconds[name, system] for system in (OURS, FULL)} for name in names}
    medians = {name: {system: statistics.median(each[1:]) for system, each in kept[name].items()} for name in kept}
    ratios = {name: each[OURS] / each[FULL] for name, each in medians.items()}
    record.samples["passes"] = {"hidden": WIDE, "at_a_time": at_a_time, "seconds": kept, "for_1": ratios}
    record.figures["time_vs_full"] = statistics.mean(ratios.values())
    record.figures["time_vs_full_worst"] = max(ratios.values())
    rows = [[name, *(f"{each[s]:.2f}" for s in (OURS, FULL)), f"{ratios[name]:.2f}"] for name, each in medians.items()]
    table(["seconds of a pass", "ours", "full history", "for 1"], rows)
