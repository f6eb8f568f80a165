"""A run as text and as charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from strobe.comm.ledger import BatchSpan
from strobe.engine.evaluation.calibrate import CalibratedLinks
from strobe.engine.online.result import OnlineResult
from strobe.engine.records.run_directory import CURVE, PIPELINE, RELIABILITY, SCHEDULE, TRAPEZOID
from strobe.engine.records.timing import EpochTrace
from strobe.engine.run import Run
from strobe.engine.sources.batch_order import BatchOrder
from strobe.format import duration, format_metric, pluralize
from strobe.report.charts.gantt import gantt_svg, pipeline_svg, planned_spans
from strobe.report.charts.learning_curve import learning_curve_svg
from strobe.report.charts.svg import PALETTE, Panel, Scale, category_color, circle, document, line, path, text
from strobe.report.charts.window_cost import window_cost_svg
from strobe.report.summary import compare_with_baselines, score_table

_LEFT, _TOP, _WIDTH, _HEIGHT, _BELOW = 64, 76, 680, 240, 54


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


def online_svg(times: Sequence[str], series: Mapping[str, Sequence[float | None]], title: str, axis: str) -> str:
    """Draw a line per series, the first one thick; missing values interrupt a line."""
    known = [value for values in series.values() for value in values if value is not None]
    low, high = min(known), max(known)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    panel = Panel(_LEFT, _TOP, _WIDTH, _HEIGHT, Scale(low, high))

    def x(k: int) -> float:
        return _LEFT + (_WIDTH * k / (len(times) - 1) if len(times) > 1 else _WIDTH / 2)

    lines: list[str] = []
    names: list[str] = []
    right = float(_LEFT)
    for number, (name, values) in enumerate(series.items()):
        color = category_color(number)
        names.append(text(right, 54, name, fill=color))
        right += 7.2 * len(name) + 18
        for missing, group in groupby(enumerate(values), key=lambda item: item[1] is None):
            points = [(x(k), panel.y(value)) for k, value in group if value is not None]
            if len(points) == 1:
                lines.append(circle(*points[0], 2.5, fill=color))
            elif not missing:
                lines.append(line(points, stroke=color, width=1.2 if number else 2.4))
    ticks = {low + (high - low) * k / 4: format_metric(low + (high - low) * k / 4) for k in range(5)}
    max_labels = min(6, max(1, int(_WIDTH / (7 * max(map(len, times)) + 12))))
    shown = range(0, len(times), max(1, math.ceil((len(times) - 1) / max_labels)))
    labels = [text(x(k), panel.bottom + 20, times[k], anchor="middle") for k in shown]
    height = _TOP + _HEIGHT + _BELOW
    body = [*names, *panel.grid(ticks), *reversed(lines), *labels, text(_LEFT, height - 8, axis)]
    return document(title, body, width=_LEFT + _WIDTH + 40, height=height, left=_LEFT)


def run_charts(run: Run, artifacts: Mapping[str, Any], trace: EpochTrace) -> dict[str, str | None]:
    """Draw the charts of a training run.

    Args:
        run: the finished run.
        artifacts: of the run's step source.
        trace: timeline of the last epoch.

    Returns:
        SVG text by file name; None for a chart that does not apply to the run.
    """
    return {
        CURVE: learning_curve_svg(run.to_json(), run.history),
        PIPELINE: pipeline_svg(trace.pipeline_spans),
        SCHEDULE: _schedule_svg(run, artifacts, trace.batch_spans),
        TRAPEZOID: window_cost_svg(artifacts.get("window_cost")),
        RELIABILITY: None if run.calibration is None else reliability_svg(run.calibration),
    }


def _schedule_svg(run: Run, artifacts: Mapping[str, Any], spans: list[list[BatchSpan]]) -> str | None:
    """Draw the batches of the last epoch, planned and measured; None if all ranks compute the same batches."""
    sizes: Sequence[str] | None = artifacts.get("batch_sizes")
    if sizes is not None:
        return gantt_svg({"measured": spans}, names=sizes.__getitem__, color_legend="sizes of batches")
    order: BatchOrder | None = artifacts.get("schedule")
    if order is None:
        return None
    rows = {} if order.costs is None or order.counts else {"planned": planned_spans(order.steps, order.costs)}

    def name(batch: int) -> str:
        times, graph = run.job.batches[batch].times, run.job.problem.graph
        return f"snapshots {graph.times[times.start]} to {graph.times[times.stop - 1]}"

    return gantt_svg(rows | {"measured": spans}, names=name)


def reliability_svg(calibrated: CalibratedLinks) -> str | None:
    """Draw the bins of a calibration, on logarithmic axes because most probabilities are small.

    A bin holds the same number of expected edges. A bin without an edge is on the lower border.

    Returns:
        SVG text; None without bins.
    """
    shares = [value for each in calibrated.bins for value in (each.predicted, each.actual) if value > 0]
    if not shares:
        return None
    left, top, size = 70, 76, 380
    scale = Scale(min(min(shares) / 1.5, 0.1), 1.0, logarithmic=True)
    panel = Panel(left, top, size, size, scale)

    def x(value: float) -> float:
        return round(left + size * scale.position(max(value, scale.low)), 1)

    def y(value: float) -> float:
        return panel.y(max(value, scale.low))

    points = [(x(each.predicted), y(each.actual)) for each in calibrated.bins]
    dots = [
        circle(*point, 4, fill=PALETTE[0], title=f"predicted {each.predicted:.3g}, actual {each.actual:.3g}")
        for point, each in zip(points, calibrated.bins, strict=True)
    ]
    columns = []
    for tick in scale.ticks():
        columns.append(path(f"M{x(tick)} {top}V{panel.bottom}", css="grid"))
        columns.append(text(x(tick), panel.bottom + 18, f"{tick:g}", anchor="middle"))
    diagonal = path(f"M{x(scale.low)} {y(scale.low)}L{x(1)} {y(1)}", css="level")
    error = "" if calibrated.error is None else f"calibration error {calibrated.error:.2g}"
    height = top + size + 56
    body = [
        *panel.grid(),
        *columns,
        diagonal,
        line(points, stroke=PALETTE[0]),
        *dots,
        text(left, height - 8, "predicted probability; dots hold equally many expected edges"),
        text(left - 40, top - 8, "share of pairs with an edge"),
    ]
    return document("Reliability, test part", body, width=left + size + 90, height=height, left=left, subtitle=error)
