"""Do models learn something on real data that trivial answers do not know?

Every data set of the list, every model, through ``strobe.train`` with early stopping; the test metric beside those of
the task's baselines. Settings were chosen on validation snapshots and are the same for all models of a set. One job is
a data set, a model and a seed on one core (``--workers``); results are kept as they come: a run that was stopped goes
on. The data sets are looked for below $STROBE_DATA, or among the graphs saved in ``--graphs``; nothing is downloaded.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.job_pool import Job, run_jobs
from benchmarks.quality_sets import CASES, QUICK, Case
from benchmarks.record import Record, option_parser, table

MODELS = ("tgcn", "evolvegcn-o", "mpnn-lstm", "gat-lstm")
START = "history"
"""The baseline that is itself fitted to training pairs: what scores of edges start from."""
RULE = "most recent"
LINKS = "link-prediction"
THREADS = 1


def run_job(job: Job, graphs: Path | None) -> dict[str, Any]:
    """One run: its metrics beside the baselines', and what it cost."""
    import strobe
    from strobe.tasks import make_task

    case = next(case for case in CASES if case.name == job["case"])
    settings = case.settings | {name: job[name] for name in ("epochs",) if name in job}
    task = make_task(case.task, **case.task_options)
    run = strobe.train(case.load(graphs), job["model"], task, seed=job["seed"], threads=THREADS, **settings)
    metric, calibration = run.problem.metric, run.calibration
    return {
        "metric": metric,
        "higher_is_better": run.problem.higher_is_better,
        "test": run.test[metric],
        "validation": run.validation[metric],
        "baselines": {name: scored[metric] for name, scored in run.baselines["test"].items()},
        "epochs": run.epochs,
        "best_epoch": run.best_epoch,
        "train_loss": run.history[max(run.best_epoch, 1) - 1]["loss"],
        **({"coverage": run.test["coverage"]} if "coverage" in run.test else {}),
        **({} if calibration is None else {"calibration": calibration.to_json()}),
        "seconds": run.seconds,
    }


def jobs(*, quick: bool, only: Collection[str]) -> list[Job]:
    """All jobs: the longest first, seed by seed, so that a run that was stopped has some of every model."""
    chosen = sorted((case for case in CASES if case.name in (QUICK if quick else only)), key=lambda case: -case.cost)
    found: list[Job] = [
        {"case": case.name, "model": model, "seed": seed}
        for seed in sorted({seed for case in chosen for seed in case.seeds})
        for case in chosen
        if seed in case.seeds
        for model in MODELS
    ]
    return [job | {"epochs": 10} for job in found if job["seed"] == 0] if quick else found


def merge(case: Case, done: list[tuple[Job, Any]]) -> dict[str, Any] | None:
    """All runs of a case by model; None if a model has none."""
    runs = {name: [result for job, result in done if job["model"] == name] for name in MODELS}
    if not all(runs.values()):
        return None
    first = done[0][1]
    return {
        "data_set": case.data_set,
        "snapshots": case.snapshots,
        "task": case.task,
        "task_options": case.task_options,
        "settings": case.settings | {name: done[0][0][name] for name in ("epochs",) if name in done[0][0]},
        "seeds": sorted({job["seed"] for job, _ in done}),
        "metric": first["metric"],
        "higher_is_better": first["higher_is_better"],
        "baselines": {
            name: statistics.mean(run["baselines"][name] for run in runs[MODELS[0]]) for name in first["baselines"]
        },
        "models": {name: statistics.mean(run["test"] for run in found) for name, found in runs.items()},
        "runs": runs,
    }


def best_baseline(found: dict[str, Any], *, with_start: bool = True) -> str:
    """The name of the baseline that scores best in the test; with or without the one that is fitted."""
    names: list[str] = [name for name in found["baselines"] if with_start or name != START]
    sign = 1 if found["higher_is_better"] else -1
    return max(names, key=lambda name: sign * found["baselines"][name])


def best_model(found: dict[str, Any]) -> str:
    """The name of the model that is best in validation, over all seeds."""
    sign = 1 if found["higher_is_better"] else -1
    means: dict[str, float] = {
        name: statistics.mean(run["validation"] for run in runs) for name, runs in found["runs"].items()
    }
    return max(means, key=lambda name: sign * means[name])


def gain(found: dict[str, Any], model: str, *, with_start: bool = True) -> float:
    """How many times as good as the best baseline a model is: above 1 it beats it."""
    said, trivial = found["models"][model], found["baselines"][best_baseline(found, with_start=with_start)]
    return float(said / trivial if found["higher_is_better"] else trivial / said)


def deviation(found: dict[str, Any], model: str) -> float:
    """The standard deviation of a model's test metric over seeds."""
    tests = [run["test"] for run in found["runs"][model]]
    return statistics.stdev(tests) if len(tests) > 1 else 0.0


def beside_rules(found: dict[str, Any]) -> int:
    """Whether the model that is best in validation is above (1) or below (-1) the better one of start and most recent
    by more than its deviation, or neither (0)."""
    best = best_model(found)
    distance = found["models"][best] - max(found["baselines"][name] for name in (START, RULE))
    return 0 if abs(distance) <= deviation(found, best) else 1 if distance > 0 else -1


def fill_figures(record: Record) -> None:
    """Shares of (set, model) that beat every baseline, and those that are not fitted; what holds of the link sets."""
    sets = record.samples
    if not sets:
        record.missing["beaten"] = "no data set is there"
        return
    for figure, with_start in (("beaten", True), ("beaten_unfitted", False)):
        won = [gain(found, model, with_start=with_start) > 1 for found in sets.values() for model in found["models"]]
        record.figures[figure] = sum(won) / len(won)
    links = [found for found in sets.values() if found["task"] == LINKS]
    runs = [run for found in links for runs in found["runs"].values() for run in runs]
    for figure, of_test in (("calibration_error", "error"), ("edge_error", "edge_error")):
        errors = [run["calibration"][of_test] for run in runs if "calibration" in run]
        record.figures |= {figure: max(errors)} if errors else {}
    if links:
        record.figures["coverage_min"] = min(run["coverage"] for run in runs)
        record.figures["link_sets"] = len(links)
        for figure, side in (("sets_above_start", 1), ("sets_below_start", -1)):
            record.figures[figure] = sum(beside_rules(found) == side for found in links)
    for name, found in sets.items():
        record.figures[f"{name}_gain"] = max(gain(found, model) for model in found["models"])
    all_runs = (run for found in sets.values() for runs in found["runs"].values() for run in runs)
    record.figures["seconds"] = sum(run["seconds"] for run in all_runs)


def main() -> None:
    """Trains everything and prints the table."""
    parser = option_parser(__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, of one thread each")
    parser.add_argument("--partial", type=Path, default=Path("quality.partial.jsonl"), help="results so far")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="some of the cases")
    parser.add_argument("--graphs", type=Path, help="a directory of saved graphs by data set, instead of $STROBE_DATA")
    chosen = parser.parse_args()
    record = Record("quality", chosen.quick)
    absent = {case.name: reason for case in CASES if (reason := _absent(case.data_set, chosen.graphs)) is not None}
    wanted = jobs(quick=chosen.quick, only=chosen.only)
    record.missing |= {name: reason for name, reason in absent.items() if name in {job["case"] for job in wanted}}
    kept = chosen.partial.with_suffix(".quick.jsonl") if chosen.quick else chosen.partial
    todo = [job for job in wanted if job["case"] not in absent]
    done = run_jobs(partial(run_job, graphs=chosen.graphs), todo, chosen.workers, kept, record.missing)
    for case in CASES:
        of_case = [(job, result) for job, result in done if job["case"] == case.name]
        if of_case and (found := merge(case, of_case)) is not None:
            record.samples[case.name] = found
    fill_figures(record)
    _print(record)
    record.write(chosen.json)


def _print(record: Record) -> None:
    rows = []
    for name, found in record.samples.items():
        best = best_baseline(found)
        values = [f"{found['models'][model]:.4g}{'*' if gain(found, model) > 1 else ''}" for model in MODELS]
        rows.append([name, found["metric"], f"{best}: {found['baselines'][best]:.4g}", *values])
    table(["data set", "metric", "best baseline", *MODELS], rows)
    for figure, value in record.figures.items():
        print(f"{figure}: {value:.4g}")
    for name, reason in record.missing.items():
        print(f"missing {name}: {reason}")


def _absent(data_set: str, graphs: Path | None) -> str | None:
    """Why a data set cannot be read here, if it cannot."""
    if graphs is not None:
        return None if (graphs / data_set).exists() else "not among the saved graphs"
    from strobe.graph.datasets import find
    from strobe.graph.datasets.folder import DATA_DIR_VARIABLE, data_dir, status

    if DATA_DIR_VARIABLE not in os.environ:
        return f"{DATA_DIR_VARIABLE} does not say where the data sets are"
    return None if status(find(data_set), data_dir()) == "local" else f"not below {DATA_DIR_VARIABLE}"


if __name__ == "__main__":
    main()
