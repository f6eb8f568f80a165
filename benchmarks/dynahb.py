"""Hybrid batches: how soon do they come to the loss that batches of snapshots come to?

- Time to the same loss: each model on each graph, two ranks with a thread each, one system after the other. Seconds are
  of training alone; the loss is that of snapshots held out, and counts once two scores in a row are as low: single
  ones are luck. Two systems are compared by when they are within 2% of what both come to in the seconds they have,
  the higher of their lowest losses. How low they come is told for 1 of full batch. Beside it, as samples: seconds to
  within 2% of full batch's lowest, where a system comes to it.
- Sizes: fixed shares of vertices with 20% of the snapshots, random sizes, sizes that the learner chooses.
- Memory: the most bytes of tensors in steps of an epoch on rank 0, for 1 of full batch.
- One rank and two: seconds to the same loss.
- Classes: accuracies beside the paper's Table 5.
- How fast batches are cut out: benchmarks/batch_build.py.

All systems of a model have the same learning rate. The paper's figures are of other machines and graphs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.dynahb_sets import CLASSIFICATION, QUICK, REGRESSION, Case
from benchmarks.parts import run_parts
from benchmarks.record import Record, options, table
from benchmarks.time_to_loss import Course, Race, Way
from strobe.batching import Hybrid
from strobe.comm import RankError
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.plan import Plan
from strobe.presets import preset

MODELS: dict[str, dict[str, Any]] = {"tgcn": {}, "dcrnn": {"hops": 1}, "evolvegcn-o": {}}
LR = {"tgcn": 0.01, "dcrnn": 0.01, "evolvegcn-o": 0.01}
WITHIN = 1.02
"""The same loss: at most this multiple of it."""

SNAPSHOTS, VERTICES = 0.2, 0.05
"""Shares of a batch, as in the paper."""

GRID: dict[str, dict[str, Any]] = {"dcrnn": {"snapshots": (0.1, 0.2), "vertices": (0.01, 0.02, 0.05)}}
"""Sizes to choose from, where they are not the preset's: a model that goes through snapshots one by one pays for each
of them, however few vertices it has."""

STEPS = {"tgcn": 20, "dcrnn": 10, "evolvegcn-o": 20}
"""Steps of an epoch of sampled batches, by model; the model is scored after each epoch."""

HOPS = {"dcrnn": 1}
"""What a rank keeps around its vertices, and a batch around its targets, where a convolution reads states: all that it
reads would be nearly the whole graph. As many hops as layers, as in the paper; cells at the rim know less."""

FULL, DBOS, OURS, RANDOM = "full", "dbos", "dynahb", "random sizes"
PAPER: dict[str, float] = {
    "speedup_vs_dbos_mean": 8.06,
    "speedup_vs_dbos_min": 2.47,
    "loss_vs_full_worst": 1.015,
    "generation_exposed_share": 0.0,
    "learner_vs_random": 5.82 / 3.21,
    "step_memory_ratio": 0.47 / 9.95,
    "rank_speedup_2": 2.0,
    "speedup_vs_1%": 4.01,
    "speedup_vs_5%": 8.08,
    "speedup_vs_10%": 16.82,
    "speedup_vs_20%": 42.22,
}
"""Section 6 and Tables 2, 7, 8 and 10; that two machines are about twice as fast is read from Figure 9b."""


class On(NamedTuple):
    """What a plan is made for."""

    graph: DynamicGraph
    snapshots: int
    model: str

    @property
    def window(self) -> int:
        """Snapshots of a batch."""
        return max(1, round(SNAPSHOTS * self.snapshots))

    @property
    def vertices(self) -> int:
        """Vertices of a batch."""
        return max(1, round(VERTICES * self.graph.num_nodes))


def hybrid(on: On, **chosen: Any) -> Plan:
    """Hybrid batches with short epochs, and with scores for which training stops, as in every system: seconds of
    scoring are not counted."""
    plan = preset(
        "dynahb", **({"hops": HOPS.get(on.model), "async_evaluation": False} | GRID.get(on.model, {}) | chosen)
    )
    assert isinstance(plan.batching, Hybrid)
    return replace(plan, batching=replace(plan.batching, steps_per_epoch=STEPS[on.model]))


def _fixed(share: float) -> Callable[[On], Plan]:
    return lambda on: hybrid(on, snapshots=SNAPSHOTS, vertices=share)


SYSTEMS: dict[str, Callable[[On], Plan]] = {
    FULL: lambda on: preset("metis"),
    DBOS: lambda on: preset("dbos", size=on.window),
    OURS: lambda on: hybrid(on),
    "dbov": lambda on: preset("dbov", size=on.vertices),
    "bvr": lambda on: preset("bvr", size=max(1, on.vertices // 2), hops=HOPS.get(on.model)),
    **{f"{share:.0%}": _fixed(share) for share in (0.01, 0.05, 0.1, 0.2)},
    RANDOM: lambda on: hybrid(on, size_policy="random"),
}
"""Plans by name. Batches of vertices out of the reservoir are each rank's own: on two ranks half as many."""

ALWAYS = (FULL, DBOS, OURS)
"""Other systems run with the first model only."""


@dataclass(frozen=True)
class Seconds:
    """How long a system may train."""

    full: float = 10.0
    long: float = 7.0
    """Batches of snapshots, and ours, which must not seem fast because they were stopped."""
    others: float = 3.5

    def of(self, system: str) -> float:
        return {FULL: self.full, DBOS: self.long, OURS: self.long}.get(system, self.others)


def main() -> None:
    """Measures and prints everything."""
    chosen = options(__doc__ or "")
    record = Record("dynahb", chosen.quick)
    parts = (races, classes, building)
    run_parts(record, {part.__name__: partial(part, record, chosen.quick) for part in parts}, chosen, PAPER)


def races(record: Record, quick: bool) -> None:
    """Every model on every graph."""
    seconds = Seconds(full=3.0, long=2.0, others=1.0) if quick else Seconds()
    found: dict[str, dict[str, Course]] = {}
    alone: dict[str, Course] = {}
    for case in (QUICK,) if quick else REGRESSION:
        with opened(case, record) as given:
            if given is None:
                continue
            for model in list(MODELS)[: 1 if quick else None]:
                first = model == next(iter(MODELS))
                names = [name for name in SYSTEMS if name in ALWAYS or (first and not quick)]
                key = f"{case.name}/{model}"
                found[key] = raced(key, case, given, model, names, seconds, ranks=2, weigh=first)
                if first:
                    alone[key] = raced(key, case, given, model, [OURS], seconds, ranks=1, weigh=False)[OURS]
    record.samples["races"] = {key: race_record(courses) for key, courses in found.items()}
    record.samples["one rank"] = {key: course_record(course) for key, course in alone.items()}
    record.samples["settings"] = {"lr": LR, "models": MODELS, "seconds": vars(seconds), "steps": STEPS, "hops": HOPS}
    show(found)
    figures(record, found, alone)


@dataclass(frozen=True)
class Given:
    """A graph where all ranks find it, and what was fitted to it."""

    graph: DynamicGraph
    path: str
    state: dict[str, Any]
    metric: str
    train: int


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
    train, judged = problem.split.train, problem.split.validation
    size = {
        "said": case.said,
        "nodes": graph.num_nodes,
        "snapshots": len(graph),
        "training_snapshots": len(train),
        "judged_by_snapshots": len(judged),
        "cells": int(graph.cell_ptr[-1]),
        "training_cells": int(graph.cell_ptr[train.stop]),
        "training_arcs": int(graph.storage.arc_ptr[train.stop]),
        "baselines": problem.baselines("validation"),
    }
    record.samples.setdefault("graphs", {})[case.name] = size
    print(f"{case.name} ({case.said}): {size['training_cells']:,} cells train", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph")
        yield Given(graph, str(Path(folder) / "graph"), problem.state(), problem.metric, len(train))


def raced(
    key: str,
    case: Case,
    given: Given,
    model: str,
    names: Sequence[str],
    seconds: Seconds,
    *,
    ranks: int,
    weigh: bool,
) -> dict[str, Course]:
    """The courses of some systems; those after one that ends all ranks are given none."""
    heard: dict[str, Course] = {}

    def on_course(name: str, course: Course) -> None:
        heard[name] = course
        print(f"  {key}, {ranks} ranks, {name}: {line(course)}", flush=True)

    race = Race(
        graph=given.path,
        task=case.task,
        model=model,
        model_options=MODELS[model],
        settings={"lr": LR[model]},
        problem=given.state,
        metric=given.metric,
    )
    ways = [
        Way(
            name=name,
            plan=SYSTEMS[name](On(given.graph, given.train, model)),
            seconds=case.longer * seconds.of(name),
            every=2 if name == FULL else 1,
            weigh=weigh and name in ALWAYS,
        )
        for name in names
    ]
    try:
        race.run(ways, ranks, on_course)
    except RankError as error:
        print(f"  {key}: {error}", flush=True)
        heard |= {name: Course(failed=str(error).splitlines()[0]) for name in names if name not in heard}
    return heard


def line(course: Course) -> str:
    """A course in a line."""
    if course.failed:
        return f"failed: {course.failed}"
    return (
        f"{course.steps} steps of {1e3 * course.step_s:.1f} ms in {course.seconds:.1f} s, "
        f"lowest {course.best:.4f} of {len(course.points)} scores{', converged' if course.converged else ''}; "
        f"prepared in {course.prepare_s:.1f} s, {course.step_bytes / 2**20:.1f} MiB"
    )


def same_loss(one: Course, other: Course) -> float:
    """What both come to: within 2% of the higher of their lowest losses."""
    return WITHIN * max(one.best, other.best)


def compared(courses: Mapping[str, Course], name: str) -> float:
    """How many times as soon as another system ours comes to the same loss."""
    return faster(courses[OURS], courses[name])


def faster(ours: Course, other: Course) -> float:
    """How many times as soon as the other one of them comes to the same loss."""
    target = same_loss(ours, other)
    mine, others = ours.time_to(target), other.time_to(target)
    assert mine is not None, "it comes to its lowest loss"
    assert others is not None, "so does the other"
    return others / mine


def exposed(course: Course) -> tuple[float, float]:
    """Seconds in which ranks waited for batches, and in which batches were made beside training."""
    ledgers = [rank["seconds"] for each in course.lines for rank in each.get("ranks", [])]
    waited, beside = (sum(ledger.get(name, 0.0) for ledger in ledgers) for name in ("draw", "prefetch_overlapped_s"))
    return waited, beside


def course_record(course: Course) -> dict[str, Any]:
    """A course for the record."""
    if course.failed:
        return {"failed": course.failed}
    waited, beside = exposed(course)
    return {
        "seconds": course.seconds,
        "steps": course.steps,
        "step_ms": 1e3 * course.step_s,
        "epochs": len(course.lines),
        "converged": course.converged,
        "lowest": course.best,
        "prepare_s": course.prepare_s,
        "step_bytes": course.step_bytes,
        "drawing_s": waited,
        "drawn_beside_s": beside,
        "curve": [[round(at, 4), step, loss] for at, step, loss in course.points],
    }


def race_record(courses: Mapping[str, Course]) -> dict[str, Any]:
    """A race for the record; ``faster``: how many times as soon as each system ours was at the same loss."""
    whole: dict[str, Any] = {name: course_record(course) for name, course in courses.items()}
    for name, course in courses.items() if is_whole(courses) else ():
        if course.points:
            whole[name]["faster"] = compared(courses, name)
            whole[name]["loss_vs_full"] = course.best / courses[FULL].best
            whole[name]["to_full_s"] = course.time_to(WITHIN * courses[FULL].best)
    return whole


def is_whole(courses: Mapping[str, Course]) -> bool:
    """Whether all that figures are about was scored."""
    return all(name in courses and courses[name].points for name in ALWAYS)


def show(found: Mapping[str, Mapping[str, Course]]) -> None:
    """Of each system: how many times as long it took to the same loss as ours, its lowest loss for 1 of full batch's,
    milliseconds of a step."""
    names = [name for name in SYSTEMS if any(name in courses for courses in found.values())]
    rows = []
    for key, courses in found.items():
        ran = {name: course for name, course in courses.items() if course.points}
        if not is_whole(courses):
            continue
        cells = {
            name: f"{compared(courses, name):.1f}x {course.best / courses[FULL].best:.3f} {1e3 * course.step_s:.1f}"
            for name, course in ran.items()
        }
        rows.append([key, f"{courses[FULL].best:.4f}", *(cells.get(name, "") for name in names)])
    table(["as long, loss, ms", "full's loss", *names], rows)


def figures(record: Record, found: Mapping[str, Mapping[str, Course]], alone: Mapping[str, Course]) -> None:
    """The figures of races that were run to their end."""
    whole = {key: courses for key, courses in found.items() if is_whole(courses)}
    if not whole:
        record.missing["speedup_vs_dbos_mean"] = "no race came to its end"
        return
    times = {key: compared(courses, DBOS) for key, courses in whole.items()}
    record.samples["speedup_vs_dbos"] = times
    record.figures["speedup_vs_dbos_mean"] = statistics.mean(times.values())
    record.figures["speedup_vs_dbos_geometric_mean"] = statistics.geometric_mean(times.values())
    record.figures["speedup_vs_dbos_min"] = min(times.values())
    record.figures["loss_vs_full_worst"] = max(each[OURS].best / each[FULL].best for each in whole.values())
    waited = sum(exposed(each[OURS])[0] for each in whole.values())
    trained = sum(2 * each[OURS].seconds for each in whole.values())  # of both ranks
    record.figures["generation_exposed_share"] = waited / trained
    for name in (FULL, "dbov", "bvr", "1%", "5%", "10%", "20%", RANDOM):
        ratios = [compared(each, name) for each in whole.values() if name in each and each[name].points]
        if ratios:
            figure = "learner_vs_random" if name == RANDOM else f"speedup_vs_{name}"
            record.figures[figure] = statistics.mean(ratios)
    weighed = [each for each in whole.values() if each[FULL].step_bytes]
    if weighed:
        shares = [each[OURS].step_bytes / each[FULL].step_bytes for each in weighed]
        record.figures["step_memory_ratio"] = statistics.mean(shares)
    twice = [faster(whole[key][OURS], course) for key, course in alone.items() if key in whole and course.points]
    if twice:
        record.figures["rank_speedup_2"] = statistics.mean(twice)


def classes(record: Record, quick: bool) -> None:
    """Accuracies, and seconds until a run had converged or had no more."""
    if quick:
        record.missing["accuracies"] = "not in a quick run"
        return
    seconds, rows = Seconds(full=8.0, long=8.0, others=8.0), []
    for case in CLASSIFICATION:
        with opened(case, record) as given:
            if given is None:
                continue
            found = raced(case.name, case, given, "tgcn", ALWAYS, seconds, ranks=2, weigh=False)
        for name, course in found.items():
            if not course.points:
                continue
            best = min(course.settled, key=lambda point: point.loss)
            sample = {"accuracy": 1 - best.loss, "seconds": best.seconds, "paper": (case.paper or {}).get(name)}
            record.samples.setdefault("classes", {}).setdefault(case.name, {})[name] = course_record(course) | sample
            said = "" if sample["paper"] is None else f"{sample['paper']:.2%}"
            rows.append([case.name, name, f"{1 - best.loss:.2%}", f"{best.seconds:.1f}", said])
        if OURS in found and found[OURS].points and found[FULL].points:
            record.figures[f"accuracy_vs_full_{case.name}"] = (1 - found[OURS].best) / (1 - found[FULL].best)
    table(["set", "system", "accuracy", "after s", "paper"], rows)


def building(record: Record, quick: bool) -> None:
    """How fast batches are cut out, in a process of its own: it has one thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        command = [sys.executable, "-m", "benchmarks.batch_build", "--json", str(path), *(["--quick"] if quick else [])]
        if subprocess.run(command).returncode:
            record.missing["batch_build_speedup"] = "benchmarks.batch_build failed"
            return
        found = json.loads(path.read_text())
    record.samples["batch_build"] = found["samples"]
    for name in ("batch_build_speedup", "batch_build_edges_per_s"):
        record.figures[name] = found["figures"][name]


if __name__ == "__main__":
    main()
