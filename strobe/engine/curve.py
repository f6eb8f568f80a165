"""The learning curve of a run: a picture that needs nothing to be shown, and one made of characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from strobe.engine.summary import figure
from strobe.palette import PALETTE

History = Sequence[Mapping[str, Any]]
Points = list[tuple[float, float]]

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 720, 190, 70, 20, 64, 62
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then row, of a character's 2 × 4 dots


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A quantity over epochs, with lines at values to compare with."""

    title: str
    points: Points
    levels: Mapping[str, float]
    best: float | None = None

    def scale(self) -> Scale:
        """From the lowest to the highest value; levels far outside are left out; logarithmic over many magnitudes."""
        values = [value for _, value in self.points]
        low, high = min(values), max(values)
        room = max(high - low, abs(high) * 1e-3, 1e-12)
        near = [level for level in self.levels.values() if low - 2 * room <= level <= high + 2 * room]
        low, high = min([low, *near]), max([high, *near])
        if low > 0 and high > 20 * low:
            return Scale(low, high, True)
        margin = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
        return Scale(low - margin if low < 0 or low - margin > 0 else 0.0, high + margin, False)


@dataclass(frozen=True)
class Scale:
    """Places of values between 0 and 1."""

    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """A few round values inside."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**power for power in powers] or [self.low, self.high]
        rough = (self.high - self.low) / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= rough)
        first = math.ceil(self.low / step)
        return [round(k * step, 12) for k in range(first, math.floor(self.high / step) + 1)]


def curves(result: Mapping[str, Any], history: History) -> list[Curve]:
    """What a run's history shows: the loss, and the validation metric beside trivial answers."""
    metric = result["metric"]
    loss = [(line["epoch"], line["loss"]) for line in history if _known(line.get("loss"))]
    judged = [
        (line["epoch"], line["validation"][metric])
        for line in history
        if _known((line.get("validation") or {}).get(metric))
    ]
    trivial = result["baselines"].get("validation", {})
    levels = {name: scores[metric] for name, scores in trivial.items() if _known(scores.get(metric))}
    found = [Curve(title="training loss", points=loss, levels={})]
    found.append(Curve(title=f"validation {metric}", points=judged, levels=levels, best=result["best_epoch"]))
    return [curve for curve in found if curve.points]


def learning_curve_svg(result: Mapping[str, Any], history: History) -> str:
    """A picture for a browser or a paper, in light or dark as the reader has it."""
    panels = curves(result, history)
    height = _TOP + len(panels) * (_PANEL + _GAP)
    title = f"{result['model']} on {result['graph']}"
    drawn = "".join(_panel(curve, _TOP + k * (_PANEL + _GAP), PALETTE[k]) for k, curve in enumerate(panels))
    said = f"Learning curve of {title}: best at epoch {result['best_epoch']} of {result['epochs']}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(said)}">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>\n{drawn}</svg>\n'
    )


def _panel(curve: Curve, top: int, colour: str) -> str:
    scale, first, last = curve.scale(), curve.points[0][0], curve.points[-1][0]

    def x(epoch: float) -> float:
        share = (epoch - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(top + (1 - min(max(scale.place(value), 0), 1)) * _PANEL, 1)

    parts = [f'<text class="head" x="{_LEFT}" y="{top - 10}">{escape(curve.title)}</text>']
    for tick in scale.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick)}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    parts += [_epoch_label(x(epoch), top + _PANEL + 18, epoch) for epoch in sorted({first, (first + last) // 2, last})]
    parts += _levels(curve, scale, y)
    line = "L".join(f"{x(epoch)} {y(value)}" for epoch, value in curve.points)
    parts.append(f'<path class="line" stroke="{colour}" d="M{line}"/>')
    for epoch, value in curve.points:
        if epoch == curve.best or len(curve.points) == 1:
            parts.append(f'<circle cx="{x(epoch)}" cy="{y(value)}" r="4.5" fill="{colour}"/>')
            side = "end" if x(epoch) > _WIDTH / 2 else "start"
            text = f"{figure(value)} at epoch {epoch:g}"
            parts.append(f'<text x="{x(epoch)}" y="{y(value) - 10}" text-anchor="{side}">{text}</text>')
    return "\n".join(parts) + "\n"


def _levels(curve: Curve, scale: Scale, y: Any) -> list[str]:
    """Dashed lines of trivial answers; one that is off the picture is told in the corner."""
    parts, outside = [], []
    for name, level in curve.levels.items():
        if scale.low <= level <= scale.high:
            end = _WIDTH - _RIGHT
            parts.append(f'<path class="level" d="M{_LEFT} {y(level)}H{end}"/>')
            text = f"{escape(name)} {figure(level)}"
            parts.append(f'<text class="soft" x="{end}" y="{y(level) - 5}" text-anchor="end">{text}</text>')
        else:
            outside.append(f"{escape(name)} {figure(level)}")
    if outside:
        text = f"off the picture: {', '.join(outside)}"
        parts.append(
            f'<text class="soft" x="{_WIDTH - _RIGHT}" y="{y(scale.high) - 10}" text-anchor="end">{text}</text>'
        )
    return parts


def _epoch_label(x: float, y: float, epoch: float) -> str:
    side = "start" if x == _LEFT else "end" if x == _WIDTH - _RIGHT else "middle"  # nothing beyond the picture's edge
    return f'<text x="{x}" y="{y}" text-anchor="{side}">epoch {epoch:g}</text>'


def terminal_curve(curve: Curve, *, width: int = 60, height: int = 6) -> list[str]:
    """The curve in braille dots, ``height`` lines of ``width`` characters and a scale; levels as dashes."""
    scale, points = curve.scale(), curve.points
    first, last = points[0][0], points[-1][0]
    dots = [[0] * width for _ in range(height)]

    def row_of(value: float) -> int:
        return round((1 - min(max(scale.place(value), 0), 1)) * (4 * height - 1))

    def dot(column: int, row: int) -> None:
        dots[row // 4][column // 2] |= _BRAILLE[column % 2][row % 4]

    before: int | None = None
    for column, value in enumerate(_sampled(points, 2 * width)):
        row = row_of(value)
        for between in range(min(row, before if before is not None else row), max(row, before or row) + 1):
            dot(column, between)
        before = row
    inside = {name: level for name, level in curve.levels.items() if scale.low <= level <= scale.high}
    drawn = [[chr(0x2800 + cell) if cell else " " for cell in line] for line in dots]
    for level in inside.values():
        line = drawn[row_of(level) // 4]
        line[:] = [cell if cell != " " else "╌" for cell in line]
    labels = {0: figure(scale.high), height - 1: figure(scale.low)}
    labels |= {row_of(level) // 4: figure(level) for level in inside.values()}
    rows = [f"{labels.get(k, ''):>9} │{''.join(line)}".rstrip() for k, line in enumerate(drawn)]
    axis = f"{'':9} └{'─' * width}"
    ends = f"{'':10}epoch {first:g}{f'epoch {last:g}':>{width - len(f'epoch {first:g}') + 1}}"
    named = "".join(f", ╌ {name} {figure(level)}" for name, level in inside.items())
    return [f"{curve.title}{named}", *rows, axis, ends]


def _sampled(points: Points, columns: int) -> list[float]:
    """A value for every column, on straight lines from epoch to epoch; more epochs than columns are passed over."""
    if len(points) == 1:
        return [points[0][1]] * columns
    values = []
    for column in range(columns):
        at, share = divmod(column * (len(points) - 1) / (columns - 1), 1)
        here, after = points[int(at)][1], points[min(int(at) + 1, len(points) - 1)][1]
        values.append(here + share * (after - here))
    return values


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)


STYLE = """
svg { --ground: #fff; --ink: #1d2733; --soft: #5c6875; --grid: #e2e6ea; }
@media (prefers-color-scheme: dark) { svg { --ground: #1c2229; --ink: #e4e8ec; --soft: #9aa6b2; --grid: #2c343d; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); }
.head { font-size: 13px; font-weight: 600; fill: var(--ink); }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.level { stroke: var(--soft); stroke-dasharray: 5 4; fill: none; }
"""
