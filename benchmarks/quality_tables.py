"""Tables of benchmarks/quality.py from its record."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.quality import LINKS, RULE, START, beside_rules, best_baseline, best_model, deviation, gain

_SIDES = {1: "above", 0: "neither", -1: "below"}


def quality(record: dict[str, Any]) -> list[str]:
    """Every data set and model: bold where a model beats every baseline, the fitted one included."""
    figures, sets = record["figures"], record["samples"]
    models = list(next(iter(sets.values()))["models"])
    columns = ["data set", "task", "metric", "best trivial answer", "start", *models, "seeds", "s"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, found in sets.items():
        trivial = best_baseline(found, with_start=False)
        start = found["baselines"].get(START)
        said = f"{trivial}: {_short(found['baselines'][trivial])}"
        cells = [_title(name, found), found["task"], found["metric"], said]
        cells.append("–" if start is None else _short(start))
        for model in models:
            value = _short(found["models"][model])
            cells.append(f"**{value}**" if gain(found, model) > 1 else value)
        seconds = sum(run["seconds"] for runs in found["runs"].values() for run in runs)
        lines.append("| " + " | ".join([*cells, str(len(found["seeds"])), f"{seconds:.0f}"]) + " |")
    pairs = len(sets) * len(models)
    return [
        *lines,
        "",
        f"Of {pairs} pairs of data set and model {round(pairs * figures['beaten_unfitted'])} beat the best trivial "
        f"answer, {round(pairs * figures['beaten'])} also the start. All runs together took "
        f"{figures['seconds'] / 60:.0f} minutes, each on one core of an {record['hardware']['cpu']}.",
    ]


def links(record: dict[str, Any]) -> list[str]:
    """Every link set: its best model in validation beside start and most recent, and how probabilities hold."""
    found_links = {name: found for name, found in record["samples"].items() if found["task"] == LINKS}
    columns = ["data set", "best in validation", "test `ap`", "start", "most recent", "beside both", "coverage"]
    columns += ["calibration error", "edge error", "expected / actual edges"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, found in found_links.items():
        model = best_model(found)
        runs = found["runs"][model]
        cells = [
            _title(name, found),
            model,
            f"{found['models'][model]:.4f} ± {deviation(found, model):.4f}",
            *(f"{found['baselines'][each]:.4f}" for each in (START, RULE)),
            _SIDES[beside_rules(found)],
            f"{min(run['coverage'] for run in runs):.3g}",
            *(_worst(runs, each) for each in ("error", "edge_error")),
            _expected_share(runs),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    sides = [beside_rules(found) for found in found_links.values()]
    return [
        *lines,
        "",
        f"Above both on {sides.count(1)} of {len(sides)} sets, below the better one on {sides.count(-1)}.",
    ]


def _title(name: str, found: dict[str, Any]) -> str:
    """The data set, and how many snapshots of it where not all."""
    first = found.get("snapshots")
    return f"`{found.get('data_set', name)}`" + (f", first {first}" if first else "")


def _worst(runs: list[dict[str, Any]], error: str) -> str:
    """The largest error of some runs, with two digits."""
    errors = [run["calibration"][error] for run in runs if run.get("calibration")]
    return _short(max(errors), 2) if errors else "–"


def _expected_share(runs: list[dict[str, Any]]) -> str:
    """Edges that are expected over edges that there are, the mean of some runs; an edge error is at least its distance
    to 1."""
    found = [run["calibration"]["bins"] for run in runs if run.get("calibration")]
    shares = [
        sum(each["share"] * each["predicted"] for each in bins) / sum(each["share"] * each["actual"] for each in bins)
        for bins in found
    ]
    return f"{statistics.mean(shares):.2f}" if shares else "–"


def _short(value: float, digits: int = 3) -> str:
    """A number with three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.{digits}g}"
