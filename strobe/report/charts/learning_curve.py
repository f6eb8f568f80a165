"""Learning curves of a run, as SVG and as braille characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.format import format_metric
from strobe.report.charts.svg import PALETTE, Panel, Scale, circle, document, line, text

History = Sequence[Mapping[str, Any]]
Points = list[tuple[float, float]]

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 720, 190, 70, 20, 64, 62
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then row, of a character's 2 × 4 dots


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A quantity over epochs, with horizontal lines at values to compare with."""

    title: str
    points: Points
    levels: Mapping[str, float]
    best: float | None = None

    def scale(self) -> Scale:
        """Return the axis: all points and the levels near them; logarithmic if they span many magnitudes."""
        values = [value for _, value in self.points]
        low, high = min(values), max(values)
        room = max(high - low, abs(high) * 1e-3, 1e-12)
        near = [level for level in self.levels.values() if low - 2 * room <= level <= high + 2 * room]
        low, high = min([low, *near]), max([high, *near])
        if low > 0 and high > 20 * low:
            return Scale(low, high, logarithmic=True)
        margin = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
        return Scale(low - margin if low < 0 or low - margin > 0 else 0.0, high + margin)


def build_curves(result: Mapping[str, Any], history: History) -> list[Curve]:
    """Build the curves of the training loss and of the validation metric with its baselines."""
    metric = result["metric"]
    loss = [(epoch["epoch"], epoch["loss"]) for epoch in history if _is_finite(epoch.get("loss"))]
    scores = [
        (epoch["epoch"], epoch["validation"][metric])
        for epoch in history
        if _is_finite((epoch.get("validation") or {}).get(metric))
    ]
    baselines = result["baselines"].get("validation", {})
    levels = {name: scores[metric] for name, scores in baselines.items() if _is_finite(scores.get(metric))}
    curves = [
        Curve(title="training loss", points=loss, levels={}),
        Curve(title=f"validation {metric}", points=scores, levels=levels, best=result["best_epoch"]),
    ]
    return [curve for curve in curves if curve.points]


def learning_curve_svg(result: Mapping[str, Any], history: History) -> str:
    """Draw the learning curves of a run.

    Args:
        result: the content of ``result.json``.
        history: the lines of ``record.jsonl``, one per epoch.
    """
    curves = build_curves(result, history)
    title = f"{result['model']} on {result['graph']}"
    parts: list[str] = []
    for k, curve in enumerate(curves):
        top = _TOP + k * (_PANEL + _GAP)
        parts += _draw(curve, Panel(_LEFT, top, _WIDTH - _LEFT - _RIGHT, _PANEL, curve.scale()), PALETTE[k])
    label = f"Learning curve of {title}: best at epoch {result['best_epoch']} of {result['epochs']}"
    height = _TOP + len(curves) * (_PANEL + _GAP)
    return document(title, parts, width=_WIDTH, height=height, left=_LEFT, label=label)


def _draw(curve: Curve, panel: Panel, color: str) -> Iterator[str]:
    first, last = curve.points[0][0], curve.points[-1][0]

    def x(epoch: float) -> float:
        share = (epoch - first) / (last - first) if last > first else 0.5
        return round(panel.left + share * panel.width, 1)

    yield panel.heading(curve.title, gap=10)
    yield from panel.grid()
    for epoch in sorted({first, (first + last) // 2, last}):
        side = "start" if x(epoch) == panel.left else "end" if x(epoch) == panel.right else "middle"
        yield text(x(epoch), panel.bottom + 18, f"epoch {epoch:g}", anchor=side)
    yield from _levels(curve, panel)
    yield line(((x(epoch), panel.y(value)) for epoch, value in curve.points), stroke=color)
    for epoch, value in curve.points:
        if epoch == curve.best or len(curve.points) == 1:
            yield circle(x(epoch), panel.y(value), 4.5, fill=color)
            side = "end" if x(epoch) > _WIDTH / 2 else "start"
            yield text(x(epoch), panel.y(value) - 10, f"{format_metric(value)} at epoch {epoch:g}", anchor=side)


def _levels(curve: Curve, panel: Panel) -> Iterator[str]:
    """Draw levels as dashed lines; list those out of range in the corner."""
    outside = []
    for name, level in curve.levels.items():
        label = f"{name} {format_metric(level)}"
        if panel.scale.low <= level <= panel.scale.high:
            yield panel.level(level)
            yield text(panel.right, panel.y(level) - 5, label, anchor="end")
        else:
            outside.append(label)
    if outside:
        yield text(panel.right, panel.top - 10, f"off the picture: {', '.join(outside)}", anchor="end")


def terminal_curve(curve: Curve, *, width: int = 60, height: int = 6) -> list[str]:
    """Draw a curve in braille dots: ``height`` lines of ``width`` characters and an axis, levels as dashes."""
    scale, points = curve.scale(), curve.points
    first, last = points[0][0], points[-1][0]
    dots = [[0] * width for _ in range(height)]

    def row_of(value: float) -> int:
        return round((1 - min(max(scale.position(value), 0), 1)) * (4 * height - 1))

    before: int | None = None
    for column, value in enumerate(_resample(points, 2 * width)):
        row = row_of(value)
        for between in range(min(row, before if before is not None else row), max(row, before or row) + 1):
            dots[between // 4][column // 2] |= _BRAILLE[column % 2][between % 4]
        before = row
    inside = {name: level for name, level in curve.levels.items() if scale.low <= level <= scale.high}
    rows = [[chr(0x2800 + cell) if cell else " " for cell in row] for row in dots]
    for level in inside.values():
        cells = rows[row_of(level) // 4]
        cells[:] = [cell if cell != " " else "╌" for cell in cells]
    labels = {0: format_metric(scale.high), height - 1: format_metric(scale.low)}
    labels |= {row_of(level) // 4: format_metric(level) for level in inside.values()}
    lines = [f"{labels.get(k, ''):>9} │{''.join(cells)}".rstrip() for k, cells in enumerate(rows)]
    axis = f"{'':9} └{'─' * width}"
    ends = f"{'':10}epoch {first:g}{f'epoch {last:g}':>{width - len(f'epoch {first:g}') + 1}}"
    legend = "".join(f", ╌ {name} {format_metric(level)}" for name, level in inside.items())
    return [f"{curve.title}{legend}", *lines, axis, ends]


def _resample(points: Points, columns: int) -> list[float]:
    """Interpolate the values linearly at ``columns`` equidistant positions."""
    if len(points) == 1:
        return [points[0][1]] * columns
    values = []
    for column in range(columns):
        at, share = divmod(column * (len(points) - 1) / (columns - 1), 1)
        low, high = points[int(at)][1], points[min(int(at) + 1, len(points) - 1)][1]
        values.append(low + share * (high - low))
    return values


def _is_finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)
