"""The charts of a run directory, by file name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strobe.comm.ledger import BatchSpan
from strobe.engine.records.run_directory import CURVE, PIPELINE, SCHEDULE, TRAPEZOID
from strobe.engine.records.timing import EpochTrace
from strobe.engine.run import Run
from strobe.engine.sources.batch_order import BatchOrder
from strobe.report.charts.gantt import gantt_svg, pipeline_svg, planned_spans
from strobe.report.charts.learning_curve import learning_curve_svg
from strobe.report.charts.window_cost import window_cost_svg


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
