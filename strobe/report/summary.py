"""Text summaries of runs: metrics with baselines, time, memory, and the work of every rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from strobe.comm.ledger_stats import (
    LedgerLine,
    RankStats,
    imbalance,
    mean_rank_stats,
    sent_by_kind,
    significant_kinds,
)
from strobe.format import (
    align_columns,
    duration,
    file_size,
    format_metric,
    format_ratio,
    format_short,
    percent,
    pluralize,
    wrap_line,
)
from strobe.registry import AXES

Scores = Mapping[str, Mapping[str, float | None]]

_MAX_RANKS = 16
_LEAST_STAGE = 0.05
"""Stages with a smaller share of the start-up are left out."""
_COVERAGE = ("coverage", "edges")


def run_summary(result: Mapping[str, Any]) -> str:
    """Summarize a finished run from the content of its ``result.json``."""
    early = " (no better since: stopped early)" if result["stopped_early"] else ""
    pace = result["seconds_per_epoch"]
    speed = "" if pace is None else f", {duration(pace)} an epoch"
    baselines = result["baselines"].get("test", {})
    lines = [
        f"{result['model']} on {result['graph']}, {result['task']}: {pluralize(result['parameters'], 'parameter')}",
        f"{pluralize(result['epochs'], 'epoch')} in {duration(result['seconds'])}{speed}; "
        f"best at epoch {result['best_epoch']}{early}",
        *wrap_line(describe_startup(result.get("startup"))),
        *_window(result),
        *_machine(result),
        "",
        *score_table("test", result["model"], result["test"], baselines),
        compare_with_baselines(result["test"], baselines, result["metric"], result["higher_is_better"]),
        *_calibration(result.get("calibration")),
    ]
    return "\n".join(lines).rstrip("\n")


def describe_startup(startup: Mapping[str, Any] | None) -> str:
    """Describe what the time before the first epoch went to; empty if it is not known."""
    if not startup:
        return ""
    seconds = startup["seconds"]
    stages = [
        f"{stage} {duration(each)}" for stage, each in startup["stages"].items() if each >= _LEAST_STAGE * seconds
    ]
    cached = startup.get("cached")
    origin = f" ({', '.join(cached)} from the cache)" if cached else ""
    return f"start-up {duration(seconds)}{origin}" + (f": {', '.join(stages)}" if stages else "")


def _calibration(found: Mapping[str, Any] | None) -> list[str]:
    """The calibration error of probabilities over all pairs of the test part."""
    if found is None or found["error"] is None:
        return []
    raw = found["uncalibrated_error"]
    return [f"probabilities of all pairs: calibration error {found['error']:.2g}, uncalibrated {raw:.2g}"]


def describe_decay(window: Mapping[str, Any]) -> str:
    """Describe the decay of a window: 2 snapshots whole and 6 decayed to 10%."""
    whole = f"{pluralize(window['full'], 'snapshot')} whole"
    return f"{whole} and {window['decayed']} decayed to {percent(window['min_keep'])}" if window["decayed"] else whole


def score_table(part: str, model: str, metrics: Mapping[str, Any], baselines: Scores) -> list[str]:
    """Format a row for the model and for each baseline, a column per metric; about 70 columns wide."""
    if not metrics:
        return [f"{part}: no examples to score"]
    rows = {model: metrics, **baselines}
    columns = [name for name in metrics if name not in _COVERAGE]
    width = max(len(name) for name in (*rows, part))
    widths = {name: max(len(name), 9) for name in columns}
    lines = [f"{part:{width}}  " + " ".join(f"{name:>{widths[name]}}" for name in columns)]
    for name, scores in rows.items():
        numbers = " ".join(f"{format_metric(scores.get(metric)):>{widths[metric]}}" for metric in columns)
        lines.append(f"{name:{width}}  {numbers}")
    return [*lines, *_coverage(metrics)]


def _coverage(metrics: Mapping[str, Any]) -> list[str]:
    """How many edges were scored, where they were counted."""
    if not all(metrics.get(name) is not None for name in _COVERAGE):
        return []
    edges, share = metrics["edges"], metrics["coverage"]
    return [f"scored {edges * share:,.0f} of {edges:,.0f} edges, coverage {percent(share)}"]


def compare_with_baselines(metrics: Mapping[str, Any], baselines: Scores, metric: str, higher_is_better: bool) -> str:
    """Compare the model with every baseline by the task's metric, in a line; empty without comparable scores."""
    comparisons = [
        f"{comparison} {name}"
        for name, scores in baselines.items()
        if (comparison := compare_scores(metrics.get(metric), scores.get(metric), higher_is_better))
    ]
    return f"{metric}: {', '.join(comparisons)}" if comparisons else ""


def compare_scores(score: float | None, baseline: float | None, higher_is_better: bool) -> str:
    """Compare two scores: 38% better than, 5% worse than; empty if one is missing."""
    if score is None or baseline is None or not (math.isfinite(score) and math.isfinite(baseline)):
        return ""
    if score == baseline:
        return "no better than"
    better = (score > baseline) == higher_is_better
    if not baseline:
        return "better than" if better else "worse than"
    share = abs(score - baseline) / abs(baseline)
    if share >= 10:
        return f"{share + 1:,.0f} times as {'good' if better or higher_is_better else 'bad'} as"
    shown = f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}" if share >= 0.001 else "<0.1%"
    return f"{shown} {'better' if better else 'worse'} than"


def format_choice(axis: str, choice: Mapping[str, Any]) -> str:
    """Format a choice as the command line takes it, without default options: relay:pipeline_groups=4."""
    name = str(choice["name"])
    defaults = AXES[axis][name]().to_json() if name in AXES[axis] else {}
    options = [
        f"{option}={format_option(value)}" for option, value in choice.items() if defaults.get(option, name) != value
    ]
    return f"{name}:{','.join(options)}" if options else name


def choices_by_axis(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the choices of a plan by axis; the two stages of the exchange separately."""
    choices: dict[str, Mapping[str, Any]] = {}
    for axis, choice in plan.items():
        choices |= choice if axis == "exchange" else {axis: choice}
    return choices


def format_plan(plan: Mapping[str, Any]) -> str:
    """Format all choices of a plan."""
    return ", ".join(f"{axis} {format_choice(axis, choice)}" for axis, choice in choices_by_axis(plan).items())


def format_option(value: Any) -> str:
    """Format the value of an option as the command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_option, value))
    if isinstance(value, Mapping):  # a nested choice
        options = [f"{option}={format_option(each)}" for option, each in value.items() if option != "name"]
        inner = f"{value['name']}:{','.join(options)}" if options else str(value["name"])
        return f"[{inner}]" if len(options) > 1 else inner
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def rank_table(ledgers: Sequence[LedgerLine], epochs: int) -> list[str]:
    """Format a mean epoch of every rank, then bytes sent and load balance; under 80 columns wide."""
    ranks = [mean_rank_stats(ledger, epochs) for ledger in ledgers]
    rows = [["rank", "cells", "arcs", "computing", "exposed", "waiting", "overlap", "sent", "memory"]]
    rows += [[str(rank), *_format_rank(each)] for rank, each in enumerate(ranks)]
    if len(ranks) > _MAX_RANKS:
        rows[_MAX_RANKS:-1] = [["…"] * len(rows[0])]
    caption = "each rank in a mean epoch, evaluation included; memory is the peak"
    lines = [caption, *align_columns(rows), *wrap_line(_bytes_line(ledgers, epochs)), _balance_line(ranks)]
    return [*lines, *wrap_line(_sampling_line(ledgers, epochs))]


def _format_rank(rank: RankStats) -> list[str]:
    seconds = (rank.computing_s, rank.exposed_comm_s, rank.straggler_wait_s, rank.overlapped_comm_s)
    memory = file_size(rank.peak_bytes) if rank.peak_bytes else "–"
    cells, arcs = format_short(rank.cells), format_short(rank.arcs)
    return [cells, arcs, *map(duration, seconds), file_size(rank.sent_bytes), memory]


def _bytes_line(ledgers: Sequence[LedgerLine], epochs: int) -> str:
    kinds = sent_by_kind(ledgers, epochs)
    shown = {kind: kinds[kind] for kind in significant_kinds(kinds)}
    shown["the rest"] = sum(kinds.values()) - sum(shown.values())
    evaluation = sum(sent_by_kind(ledgers, epochs, "evaluate").values())
    suppressed = sum(sum(ledger.get("suppressed_bytes", {}).values()) for ledger in ledgers) / max(epochs, 1)
    line = "sent in an epoch: " + ", ".join(f"{kind} {file_size(num_bytes)}" for kind, num_bytes in shown.items())
    line += f"; {file_size(evaluation)} of it to evaluate" if evaluation else ""
    return line + (f"; {file_size(suppressed)} more without suppressed rows" if suppressed else "")


def _sampling_line(ledgers: Sequence[LedgerLine], epochs: int) -> str:
    """Seconds of sampling batches; empty if none are sampled."""
    if not any("draw" in ledger["seconds"] for ledger in ledgers):
        return ""
    waited, overlapped = (
        sum(ledger["seconds"].get(name, 0.0) for ledger in ledgers) / max(epochs, 1) / len(ledgers)
        for name in ("draw", "prefetch_overlapped_s")
    )
    return f"sampling batches: steps waited {duration(waited)}, {duration(overlapped)} overlapped with training"


def _balance_line(ranks: Sequence[RankStats]) -> str:
    work, seconds = imbalance([rank.work for rank in ranks]), imbalance([rank.computing_s for rank in ranks])
    if work is None or seconds is None:
        return "load: some ranks have nothing to compute"
    return f"fullest rank to emptiest: cells and arcs {format_ratio(work)}, computing {format_ratio(seconds)}"


def _window(result: Mapping[str, Any]) -> list[str]:
    """Share of a window that a step computes; empty if windows do not decay."""
    window = result.get("window")
    if not window:
        return []
    share = window["computed"]["cells"] / max(window["without_decay"]["cells"], 1)
    tuned = ", as tuned" if window.get("tuned") else ""
    return wrap_line(f"a step computes {describe_decay(window)}{tuned}: {percent(share)} of the rows of whole windows")


def _machine(result: Mapping[str, Any]) -> list[str]:
    ranks = result.get("ranks") or []
    if len(ranks) < 2:
        return [_memory(result)]
    over = f" over {result['backend']}" if result.get("backend") else ""
    head = f"{len(ranks)} ranks on {result['device'].partition(':')[0]}{over}: {format_plan(result['plan'])}"
    return [*wrap_line(head), "", *rank_table(ranks, ranks[0].get("epochs", result["epochs"]))]


def _memory(result: Mapping[str, Any]) -> str:
    machine = f"{result['device']}, {pluralize(result['threads'], 'thread')}"
    peak = f"peak memory {file_size(result['memory_bytes'])}" if result.get("memory_bytes") else ""
    if result.get("device_bytes"):
        peak += f", {file_size(result['device_bytes'])} on the device"
    return f"{machine}; {peak}" if peak else machine
