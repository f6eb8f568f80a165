"""Every model on every graph: how trapezoid batches end beside full history, recent snapshots and other batches."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dynahb import WITHIN
from benchmarks.flare_runs import CUT, DBOS, DYNAHB, FULL, HIDDEN, OURS, RECENT, Contest, Outcome, plan_of
from benchmarks.flare_sets import CASES, QUICK, SHAPES, Case
from benchmarks.record import Record, table
from strobe.comm import RankError
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph

MODELS = ("tgcn", "mpnn-lstm", "evolvegcn-o")
LR = 0.01
RANKS = 1


@dataclass(frozen=True)
class Given:
    """A graph where all processes find it, and what was fitted to it."""

    case: Case
    graph: DynamicGraph
    path: str
    state: dict[str, Any]
    snapshots: int


@contextmanager
def opened(case: Case, record: Record) -> Iterator[Given | None]:
    """A case's graph, saved for the while; nothing where it is not at hand."""
    try:
        graph = case.load()
    except StrobeError as error:
        record.missing[case.name] = str(error).splitlines()[0]
        yield None
        return
    problem = case.task.bind(graph)
    train = problem.split.train
    record.samples.setdefault("graphs", {})[case.name] = {
        "said": case.said,
        "nodes": graph.num_nodes,
        "snapshots": len(graph),
        "training_snapshots": len(train),
        "cells": int(graph.cell_ptr[-1]),
        "training_cells": int(graph.cell_ptr[train.stop]),
        "training_arcs": int(graph.storage.arc_ptr[train.stop]),
        "baselines": problem.baselines("test"),
    }
    print(f"{case.name} ({case.said}): {int(graph.cell_ptr[train.stop]):,} cells train", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph")
        yield Given(case, graph, str(Path(folder) / "graph"), problem.state(), len(train))


def history(record: Record, quick: bool, at_a_time: int = 1) -> None:
    """Every model on every graph, so many contests at a time."""

    def held(contested: tuple[Given, str]) -> tuple[str, dict[str, Outcome]]:
        given, model = contested
        others = (DBOS, DYNAHB) if model == MODELS[0] and given.case not in (*SHAPES, QUICK) else ()
        return f"{given.case.name}/{model}", contest(given, model, (OURS, FULL, RECENT, CUT, *others))

    with ExitStack() as stack, ThreadPoolExecutor(at_a_time) as pool:
        givens = [stack.enter_context(opened(case, record)) for case in ((QUICK,) if quick else CASES)]
        models = MODELS[: 1 if quick else None]
        found = dict(pool.map(held, [(given, model) for given in givens if given for model in models]))
    record.samples["history"] = {key: told(outcomes) for key, outcomes in found.items()}
    record.samples["settings"] = {
        "lr": LR,
        "hidden": HIDDEN,
        "ranks": RANKS,
        "at_a_time": at_a_time,
        "plan": plan_of(OURS).to_json(),
    }
    show(found)
    figures(record, found)


def contest(given: Given, model: str, systems: tuple[str, ...]) -> dict[str, Outcome]:
    """How some systems end; those after one that ends all ranks are given none."""
    heard: dict[str, Outcome] = {}

    def on_outcome(outcome: Outcome) -> None:
        heard[outcome.system] = outcome
        said = (
            outcome.failed or f"test {outcome.test:.4f}, {outcome.pass_s:.2f} s a pass, {outcome.rows:,.0f} rows a step"
        )
        print(f"  {given.case.name}/{model}, {outcome.system}: {said}", flush=True)

    runs = Contest(
        graph=given.path,
        task=given.case.task,
        model=model,
        epochs=given.case.epochs,
        snapshots=given.snapshots,
        problem=given.state,
        settings={"lr": LR},
    )
    try:
        runs.run(systems, RANKS, on_outcome)
    except RankError as error:
        print(f"  {given.case.name}/{model}: {error}", flush=True)
        heard |= {
            name: Outcome(system=name, failed=str(error).splitlines()[0]) for name in systems if name not in heard
        }
    return heard


def sooner(ours: Outcome, other: Outcome) -> float | None:
    """How many times as soon as another system ours comes to the same validation error; None where one does not."""
    target = WITHIN * max(ours.course.best, other.course.best)
    mine, others = ours.course.time_to(target), other.course.time_to(target)
    return None if not mine or not others else others / mine


def told(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """A contest for the record, each system beside ours."""
    whole: dict[str, Any] = {name: outcome.told() for name, outcome in outcomes.items()}
    ours = outcomes[OURS]
    for name, outcome in outcomes.items():
        if not outcome.failed and not ours.failed and name != OURS:
            beside = {"mse": ours.test / outcome.test, "pass": ours.pass_s / outcome.pass_s}
            whole[name]["ours_for_1"] = beside | {
                "rows": ours.rows / max(outcome.rows, 1),
                "sooner": sooner(ours, outcome),
            }
    return whole


def show(found: dict[str, dict[str, Outcome]]) -> None:
    """Of each system: test error, seconds of a pass, rows of a step."""
    names = list(dict.fromkeys(name for outcomes in found.values() for name in outcomes))
    rows = []
    for key, outcomes in found.items():
        fine = {name: each for name, each in outcomes.items() if not each.failed}
        cells = {name: f"{each.test:.4f} {each.pass_s:.2f} {each.rows:,.0f}" for name, each in fine.items()}
        rows.append([key, *(cells.get(name, "") for name in names)])
    table(["mse, s, rows", *names], rows)


def figures(record: Record, found: dict[str, dict[str, Outcome]]) -> None:
    """The figures of contests that came to their end."""
    whole = {k: each for k, each in found.items() if not any(each[name].failed for name in (OURS, FULL, RECENT, CUT))}
    if not whole:
        record.missing["time_vs_full"] = record.missing["mse_vs_full_worst"] = "no run came to its end"
        return

    def put(name: str, ratios: dict[str, float], pick: Callable[[list[float]], float]) -> None:
        values = list(ratios.values())
        record.samples[name] = {"min": min(values), "max": max(values), "mean": statistics.mean(values), "all": ratios}
        record.figures[name] = pick(values)

    put("time_vs_full", {k: each[OURS].pass_s / each[FULL].pass_s for k, each in whole.items()}, statistics.mean)
    put("rows_vs_full", {k: each[OURS].rows / each[FULL].rows for k, each in whole.items()}, statistics.mean)
    put("mse_vs_full_worst", {k: each[OURS].test / each[FULL].test for k, each in whole.items()}, max)
    put("mse_vs_recent_only_best", {k: each[OURS].test / each[RECENT].test for k, each in whole.items()}, min)
    put("mse_vs_inherited_best", {k: each[OURS].test / each[CUT].test for k, each in whole.items()}, min)
    times = {k: sooner(each[OURS], each[FULL]) for k, each in whole.items()}
    put("sooner_than_full", {k: value for k, value in times.items() if value} or {"none": 0.0}, statistics.mean)
