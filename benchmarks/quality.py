"""Do models learn something on real data that trivial answers do not know?

Every data set of the list, every model, through ``strobe.train`` with early stopping; the test metric beside those of
the task's baselines. Settings were chosen on validation snapshots and are the same for all models of a set. The data
sets are looked for below $STROBE_DATA; nothing is downloaded.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from benchmarks.record import Record, options, table

MODELS = ("tgcn", "evolvegcn-o", "mpnn-lstm", "gat-lstm")
START = "history"
"""The baseline that is itself fitted to training pairs: what scores of edges start from."""
THREADS = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set, what is asked of it, and how models are trained on it."""

    data_set: str
    task: str
    task_options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        return self.data_set


_LINKS: dict[str, Any] = {"task": "link-prediction", "task_options": {"negatives": 5}}
_STEPS: dict[str, Any] = {"epochs": 40, "window": 1, "lr": 0.003, "patience": 10}
"""A step per snapshot."""
_LABELS: dict[str, Any] = {"task": "regression", "task_options": {"target": "labels"}}
_SEEDS = (0, 1, 2)
CASES = (
    Case(data_set="england_covid", **_LABELS, settings={"epochs": 200}, seeds=_SEEDS),
    Case(data_set="chickenpox", **_LABELS, settings={"epochs": 100}),
    Case(data_set="twitter_tennis_uo17", **_LABELS, settings={"epochs": 60}),
    Case(data_set="mathoverflow_monthly", task="regression", settings={"epochs": 100}),
    Case(data_set="enron_full_monthly", task="regression", settings={"epochs": 60}),
    Case(data_set="enron_dysat", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="uci_dysat", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="collegemsg", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="bitcoin_otc", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="bitcoin_alpha", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="canvote", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="digg_reply", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="wikipedia_jodie", **_LINKS, settings=_STEPS, seeds=_SEEDS),
    Case(data_set="pubmed_temporal", task="classification", settings={"epochs": 60}),
    Case(data_set="dblp_coauthor", task="classification", settings={"epochs": 100}),
)
QUICK = ("england_covid", "enron_dysat", "uci_dysat")


def trained(case: Case, graph: Any, model: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """One run: its metrics beside the baselines', and what it cost."""
    import strobe
    from strobe.tasks import make_task

    settings = case.settings | ({} if epochs is None else {"epochs": epochs})
    task = make_task(case.task, **case.task_options)
    run = strobe.train(graph, model, task, seed=seed, threads=THREADS, **settings)
    metric = run.problem.metric
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
        **(
            {}
            if run.calibration is None
            else {"calibration_error": run.calibration.error, "edge_error": run.calibration.edge_error}
        ),
        "seconds": run.seconds,
    }


def measured(case: Case, *, quick: bool) -> dict[str, Any]:
    """All models on one data set."""
    from strobe.graph.datasets import load

    graph = load(case.data_set)
    seeds, epochs = ((0,), 10) if quick else (case.seeds, None)
    runs = {name: [trained(case, graph, name, seed, epochs) for seed in seeds] for name in MODELS}
    first = runs[MODELS[0]][0]
    baselines = {
        name: statistics.mean(runs[MODELS[0]][k]["baselines"][name] for k in range(len(seeds)))
        for name in first["baselines"]
    }
    return {
        "task": case.task,
        "task_options": case.task_options,
        "settings": case.settings | ({} if epochs is None else {"epochs": epochs}),
        "seeds": list(seeds),
        "metric": first["metric"],
        "higher_is_better": first["higher_is_better"],
        "baselines": baselines,
        "models": {name: statistics.mean(run["test"] for run in found) for name, found in runs.items()},
        "runs": runs,
    }


def best_baseline(found: dict[str, Any], *, with_start: bool = True) -> str:
    """The name of the baseline that scores best in the test; with or without the one that is fitted."""
    names: list[str] = [name for name in found["baselines"] if with_start or name != START]
    sign = 1 if found["higher_is_better"] else -1
    return max(names, key=lambda name: sign * found["baselines"][name])


def gain(found: dict[str, Any], model: str, *, with_start: bool = True) -> float:
    """How many times as good as the best baseline a model is: above 1 it beats it."""
    said, trivial = found["models"][model], found["baselines"][best_baseline(found, with_start=with_start)]
    return float(said / trivial if found["higher_is_better"] else trivial / said)


def is_above_rules(found: dict[str, Any]) -> bool:
    """Whether the model that is best in validation is above start and most recent by more than its deviation."""
    best = max(found["runs"].values(), key=lambda runs: statistics.mean(run["validation"] for run in runs))
    tests = [run["test"] for run in best]
    rivals = max(found["baselines"][name] for name in (START, "most recent"))
    deviation = statistics.stdev(tests) if len(tests) > 1 else 0.0
    return bool(statistics.mean(tests) > rivals + deviation)


def main() -> None:
    """Trains everything and prints the table."""
    chosen = options(__doc__ or "")
    record, began = Record("quality", chosen.quick), perf_counter()
    rows = []
    for case in CASES:
        if chosen.quick and case.name not in QUICK:
            continue
        reason = _absent(case.data_set)
        if reason is not None:
            record.missing[case.name] = reason
            continue
        found = measured(case, quick=chosen.quick)
        record.samples[case.name] = found
        name = best_baseline(found)
        values = [f"{found['models'][model]:.4g}{'*' if gain(found, model) > 1 else ''}" for model in MODELS]
        rows.append([case.name, found["metric"], f"{name}: {found['baselines'][name]:.4g}", *values])
        print(*rows[-1], sep="  ", flush=True)
    _figures(record)
    record.figures["seconds"] = perf_counter() - began
    table(["data set", "metric", "best baseline", *MODELS], rows)
    for figure, value in record.figures.items():
        print(f"{figure}: {value:.4g}")
    for name, reason in record.missing.items():
        print(f"missing {name}: {reason}")
    record.write(chosen.json)


def _figures(record: Record) -> None:
    """Shares of (set, model) that beat every baseline, and those that are not fitted; per set the best model's gain."""
    sets = {name: found for name, found in record.samples.items() if "models" in found}
    if not sets:
        record.missing["beaten"] = "no data set is there"
        return
    for figure, with_start in (("beaten", True), ("beaten_unfitted", False)):
        won = [gain(found, model, with_start=with_start) > 1 for found in sets.values() for model in found["models"]]
        record.figures[figure] = sum(won) / len(won)
    errors = [
        run["calibration_error"]
        for found in sets.values()
        for runs in found["runs"].values()
        for run in runs
        if "calibration_error" in run
    ]
    if errors:
        record.figures["calibration_error"] = max(errors)
    links = [found for found in sets.values() if found["task"] == "link-prediction"]
    record.figures["sets_above_start"] = sum(map(is_above_rules, links))
    for name, found in sets.items():
        record.figures[f"{name}_gain"] = max(gain(found, model) for model in found["models"])


def _absent(data_set: str) -> str | None:
    """Why a data set cannot be read here, if it cannot."""
    from strobe.graph.datasets import find
    from strobe.graph.datasets.folder import DATA_DIR_VARIABLE, data_dir, status

    if DATA_DIR_VARIABLE not in os.environ:
        return f"{DATA_DIR_VARIABLE} does not say where the data sets are"
    return None if status(find(data_set), data_dir()) == "local" else f"not below {DATA_DIR_VARIABLE}"


if __name__ == "__main__":
    main()
