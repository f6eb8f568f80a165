"""What came out of a run, in words: metrics next to those of trivial answers, time and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from strobe.numbers import file_size, number_of

Scores = Mapping[str, Mapping[str, float | None]]


def run_summary(result: Mapping[str, Any]) -> str:
    """A finished run, from what its ``result.json`` holds."""
    early = " (no better since: stopped early)" if result["stopped_early"] else ""
    pace = result["seconds_per_epoch"]
    speed = "" if pace is None else f", {duration(pace)} an epoch"
    lines = [
        f"{result['model']} on {result['graph']}, {result['task']}: {number_of(result['parameters'], 'parameter')}",
        f"{number_of(result['epochs'], 'epoch')} in {duration(result['seconds'])}{speed}; "
        f"best at epoch {result['best_epoch']}{early}",
        _memory(result),
        "",
        *score_table("test", result["model"], result["test"], result["baselines"].get("test", {})),
    ]
    said = verdict(result["test"], result["baselines"].get("test", {}), result["metric"], result["higher_is_better"])
    return "\n".join([*lines, *([said] if said else [])])


def score_table(part: str, model: str, metrics: Mapping[str, Any], baselines: Scores) -> list[str]:
    """A row per answerer, a column per metric; at most about 70 columns wide."""
    if not metrics:
        return [f"{part}: nothing could be asked"]
    rows = {model: metrics, **baselines}
    width = max(len(name) for name in (*rows, part))
    widths = {name: max(len(name), 9) for name in metrics}
    lines = [f"{part:{width}}  " + " ".join(f"{name:>{widths[name]}}" for name in metrics)]
    for name, scores in rows.items():
        numbers = " ".join(f"{figure(scores.get(metric)):>{widths[metric]}}" for metric in metrics)
        lines.append(f"{name:{width}}  {numbers}")
    return lines


def verdict(metrics: Mapping[str, Any], baselines: Scores, metric: str, higher_is_better: bool) -> str:
    """The model against every trivial answer by the metric that counts, in a sentence."""
    said = [
        f"{words} {name}"
        for name, scores in baselines.items()
        if (words := compared(metrics.get(metric), scores.get(metric), higher_is_better))
    ]
    return f"{metric}: {', '.join(said)}" if said else ""


def compared(ours: float | None, theirs: float | None, higher_is_better: bool) -> str:
    """38% better than, 5% worse than; empty where either is unknown."""
    if ours is None or theirs is None or not (math.isfinite(ours) and math.isfinite(theirs)):
        return ""
    if ours == theirs:
        return "no better than"
    better = (ours > theirs) == higher_is_better
    if not theirs:
        return "better than" if better else "worse than"
    share = abs(ours - theirs) / abs(theirs)
    shown = f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}" if share >= 0.001 else "<0.1%"
    if share >= 10:
        shown = f"{share + 1:,.0f} times as good as" if higher_is_better else f"{share + 1:,.0f} times"
        return shown if higher_is_better else f"{shown} as {'good' if better else 'bad'} as"
    return f"{shown} {'better' if better else 'worse'} than"


def figure(value: float | None) -> str:
    """A metric: 0.1234, 12.35, 1.2e+06; – where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """35 ms, 4.2 s, 3:25 min, 2:03 h."""
    if seconds < 1:
        return f"{max(seconds * 1000, 0):.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _memory(result: Mapping[str, Any]) -> str:
    place = f"{result['device']}, {number_of(result['threads'], 'thread')}"
    held = f"peak memory {file_size(result['memory_bytes'])}" if result.get("memory_bytes") else ""
    if result.get("device_bytes"):
        held += f", {file_size(result['device_bytes'])} on the device"
    return f"{place}; {held}" if held else place
