"""Every model on every graph: how trapezoid batches end beside full history, recent snapshots and other batches."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.dynahb import WITHIN
from benchmarks.flare_runs import CUT, DBOS, DYNAHB, FULL, HIDDEN, OURS, RECENT, Contest, Outcome, plan_of
from benchmarks.flare_sets import CASES, QUICK, SHAPES, Case
from benchmarks.record import Record, table
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
    cells: int


@contextmanager
def opened(case: Case, record: Record) -> Iterator[Given | None]:
    """A case's graph, saved for the while; ``None`` where it was not found."""
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
        yield Given(
            case, graph, str(Path(folder) / "graph"), problem.state(), len(train), int(graph.cell_ptr[train.stop])
        )


def history(record: Record, cases: Sequence[Case], at_a_time: int = 1) -> None:
    """Every model on every graph, ``at_a_time`` runs in parallel; those that take longest first. What the record has of
    other graphs stays."""
    runs: list[tuple[Given, str, str, int]] = []
    quick = QUICK in cases
    with ExitStack() as stack, ThreadPoolExecutor(at_a_time) as pool:
        for given in filter(None, [stack.enter_context(opened(case, record)) for case in cases]):
            for model in MODELS[: 1 if quick else None]:
                others = (DBOS, DYNAHB) if given.case not in SHAPES or model == MODELS[0] else ()
                systems = (OURS, FULL, RECENT, CUT, *(() if quick else others))
                runs += [(given, model, name, seed) for name in systems for seed in range(given.case.seeds)]
        runs.sort(key=lambda run: (-run[0].cells * run[0].case.epochs, run[2] != FULL))
        calls = [pool.submit(trained, *run) for run in runs]
        outcomes = [call.result() for call in calls]
    found: dict[str, dict[str, Outcome]] = {}
    for case in cases:  # in their order
        for model in MODELS:
            mine = [k for k, run in enumerate(runs) if run[0].case is case and run[1] == model]
            for name in dict.fromkeys(runs[k][2] for k in mine):
                each = [outcomes[k] for k in mine if runs[k][2] == name]
                found.setdefault(f"{case.name}/{model}", {})[name] = together(each)
    record.samples["history"] = record.samples.get("history", {}) | {
        key: contest_record(each) for key, each in found.items()
    }
    record.samples["settings"] = {
        "lr": LR,
        "hidden": HIDDEN,
        "ranks": RANKS,
        "at_a_time": at_a_time,
        "epochs": {case.name: case.epochs for case in CASES},
        "seeds": {case.name: case.seeds for case in CASES},
        "plan": plan_of(OURS).to_json(),
    }
    show(found)
    figures(record)


def trained(given: Given, model: str, system: str, seed: int) -> Outcome:
    """How a run of a system ends."""
    outcome = Contest(
        graph=given.path,
        task=given.case.task,
        model=model,
        epochs=given.case.epochs,
        snapshots=given.snapshots,
        problem=given.state,
        settings={"lr": LR, "seed": seed},
    ).run(system)
    said = outcome.failed or f"test {outcome.test:.4f}, {outcome.pass_s:.2f} s a pass, {outcome.rows:,.0f} rows a step"
    print(f"  {given.case.name}/{model}, {outcome.system}, seed {seed}: {said}", flush=True)
    return outcome


def together(outcomes: list[Outcome]) -> Outcome:
    """The same run with several seeds: the mean of errors, and the first one's course."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    tests = tuple(outcome.test for outcome in outcomes)
    return failed[0] if failed else replace(outcomes[0], test=statistics.mean(tests), tests=tests)


def sooner(ours: Outcome, other: Outcome) -> float | None:
    """How many times as soon as another system ours comes to the same validation error; None where one does not."""
    target = WITHIN * max(ours.course.best, other.course.best)
    mine, others = ours.course.time_to(target), other.course.time_to(target)
    return None if not mine or not others else others / mine


def contest_record(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """A contest for the record, each system beside ours."""
    whole: dict[str, Any] = {name: outcome.to_record() for name, outcome in outcomes.items()}
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


def figures(record: Record) -> None:
    """The figures of all runs in the record that came to their end."""
    found = {
        key: {name: each[name]["ours_for_1"] for name in (FULL, RECENT, CUT)}
        for key, each in record.samples["history"].items()
        if all("ours_for_1" in each.get(name, {}) for name in (FULL, RECENT, CUT))
    }
    if not found:
        record.missing["mse_vs_full_worst"] = "no run came to its end"
        return

    def put(figure: str, name: str, kind: str, pick: Callable[[list[float]], float]) -> None:
        ratios = {key: each[name][kind] for key, each in found.items() if each[name][kind]}
        values = list(ratios.values()) or [0.0]
        record.samples[figure] = {"min": min(values), "max": max(values), "mean": statistics.mean(values)}
        record.figures[figure] = pick(values)

    put("rows_vs_full", FULL, "rows", statistics.mean)
    put("mse_vs_full_worst", FULL, "mse", max)
    put("mse_vs_full_mean", FULL, "mse", statistics.mean)
    put("mse_vs_recent_only_best", RECENT, "mse", min)
    put("mse_vs_inherited_best", CUT, "mse", min)
    put("sooner_than_full", FULL, "sooner", statistics.mean)
