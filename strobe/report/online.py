"""An online run as text and as a chart."""

from __future__ import annotations

from strobe.engine.online.result import OnlineResult
from strobe.format import duration, pluralize
from strobe.report.charts.online import online_svg
from strobe.report.summary import compare_with_baselines, score_table


def online_summary(result: OnlineResult) -> str:
    """Summarize an online run: mean metrics over all snapshots, of the model and of the baselines."""
    seconds = sum(line["train_s"] + line["evaluate_s"] for line in result.history)
    lines = [
        f"{result.model} on {result.graph}, {result.task}: trained on {pluralize(len(result.history), 'snapshot')}, "
        f"evaluated on {len(result.evaluated)} before training on each, in {duration(seconds)}"
    ]
    late, bad = result.rows.get("late_rows", 0), result.rows.get("bad_rows", 0)
    lines += [f"skipped {pluralize(late, 'row')} that arrived too late"] if late else []
    lines += [f"skipped {pluralize(bad, 'bad row')}"] if bad else []
    if not result.evaluated:
        return "\n".join(lines)
    lines += ["", *score_table("mean over snapshots", result.model, result.metrics, result.baselines)]
    comparison = compare_with_baselines(result.metrics, result.baselines, result.metric, result.higher_is_better)
    return "\n".join([*lines, *([comparison] if comparison else [])])


def online_result_svg(result: OnlineResult) -> str | None:
    """Draw the metric of each snapshot, of the model and of the baselines; None if no snapshot was evaluated."""
    if not result.evaluated:
        return None
    series = {result.model: [line["validation"].get(result.metric) for line in result.evaluated]}
    for name in result.baselines:
        series[name] = [line["baselines"].get(name, {}).get(result.metric) for line in result.evaluated]
    times = [str(line["snapshot"]) for line in result.evaluated]
    better = "higher" if result.higher_is_better else "lower"
    title = f"{result.model} on {result.graph}: {result.metric} of each snapshot, before training on it"
    return online_svg(times, series, title, f"{result.metric} ({better} is better)")
