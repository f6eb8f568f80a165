"""SVG building blocks of all charts: document, shapes, scales, axes, legends and colors.

Coordinates are pixels. Charts follow the light or dark color scheme of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape

PALETTE = ("#3b7dd8", "#e08214", "#2a9d8f", "#b5527c")
"""Distinguishable with most kinds of color blindness, readable on white and on near-black."""

CATEGORICAL_COLORS = (*PALETTE, "#8a6fd1", "#a3a329", "#d9534a", "#5aa9c9", "#7a8a99", "#5d9c3a", "#c98fb8", "#8c6239")

LETTER = 6.6
"""Typical width of a character of 12 px."""

_STYLE = """
svg { --ground: #fff; --ink: #1d2733; --soft: #5c6875; --grid: #e2e6ea; }
@media (prefers-color-scheme: dark) { svg { --ground: #1c2229; --ink: #e4e8ec; --soft: #9aa6b2; --grid: #2c343d; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); }
.head { font-size: 13px; font-weight: 600; fill: var(--ink); }
.note { font-size: 12px; font-weight: 400; fill: var(--soft); }
.ink { fill: var(--ink); }
.small { font-size: 10px; }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.level { stroke: var(--soft); stroke-dasharray: 5 4; fill: none; }
"""


def document(
    title: str,
    body: Iterable[str],
    *,
    width: int,
    height: int,
    left: int,
    subtitle: str = "",
    style: str = "",
    label: str = "",
) -> str:
    """Return an SVG document with a title, a subtitle, and a ``label`` for screen readers (default: the title)."""
    most = (width - left) / 9
    heads = [text(left, 30, truncate(title, most), css="title"), text(left, 52, subtitle) if subtitle else ""]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label or title)}">\n<style>{_STYLE}{style}</style>\n'
        f'<rect class="ground" width="{width}" height="{height}"/>\n' + "\n".join([*heads, *body]) + "\n</svg>\n"
    )


def text(x: float, y: float, content: str, *, anchor: str = "", css: str = "", fill: str = "", title: str = "") -> str:
    """Return a line of text; ``anchor`` is start (default), middle or end."""
    style = f' style="fill:{fill}"' if fill else ""
    side = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{_css(css)}{style} x="{_number(x)}" y="{_number(y)}"{side}>{escape(content)}{_title(title)}</text>'


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = "",
    css: str = "",
    opacity: float | None = None,
    title: str = "",
) -> str:
    """Return a rectangle, with ``title`` as tooltip."""
    look = (f' fill="{fill}"' if fill else "") + ("" if opacity is None else f' opacity="{opacity}"')
    size = f'width="{_number(width)}" height="{_number(height)}"'
    return f'<rect{_css(css)} x="{_number(x)}" y="{_number(y)}" {size}{look}>{_title(title)}</rect>'


def circle(x: float, y: float, radius: float, *, fill: str, css: str = "", title: str = "") -> str:
    """Return a circle, with ``title`` as tooltip."""
    place = f'cx="{_number(x)}" cy="{_number(y)}" r="{radius}" fill="{fill}"'
    return f"<circle{_css(css)} {place}>{_title(title)}</circle>"


def path(d: str, *, css: str = "", stroke: str = "", fill: str = "", width: float = 0, title: str = "") -> str:
    """Return a path; ``width`` is that of its stroke."""
    look = (f' stroke="{stroke}"' if stroke else "") + (f' fill="{fill}"' if fill else "")
    look += f' style="stroke-width:{width}"' if width else ""
    return f'<path{_css(css)}{look} d="{d}">{_title(title)}</path>'


def line(points: Iterable[tuple[float, float]], *, css: str = "line", stroke: str = "", width: float = 0) -> str:
    """Return a polyline through points."""
    return path("M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points), css=css, stroke=stroke, width=width)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis: values from ``low`` to ``high`` map to 0 to 1."""

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def from_zero(cls, highest: float) -> Scale:
        return cls(0.0, highest * 1.05 if highest > 0 else 1.0)

    def position(self, value: float) -> float:
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return a few round values in range."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**power for power in powers] or [self.low, self.high]
        rough = (self.high - self.low) / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= rough)
        first = math.ceil(self.low / step)
        return [round(k * step, 12) for k in range(first, math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Panel:
    """A plotting area with a vertical axis."""

    left: float
    top: float
    width: float
    height: float
    scale: Scale

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def y(self, value: float) -> float:
        return round(self.top + (1 - self.scale.position(value)) * self.height, 1)

    def heading(self, name: str, note: str = "", *, gap: int = 12) -> str:
        """Return the heading ``gap`` pixels above the panel."""
        remark = f'<tspan dx="10" class="note">{escape(note)}</tspan>' if note else ""
        return text(self.left, self.top - gap, name, css="head").replace("</text>", f"{remark}</text>")

    def grid(
        self, ticks: Mapping[float, str] | None = None, *, format_tick: Callable[[float], str] = "{:g}".format
    ) -> Iterator[str]:
        """Yield horizontal grid lines with labels, by default at the ticks of the scale."""
        for value, label in (ticks or {tick: format_tick(tick) for tick in self.scale.ticks()}).items():
            yield path(f"M{self.left} {self.y(value)}H{self.right}", css="grid")
            yield text(self.left - 8, self.y(value) + 4, label, anchor="end")

    def level(self, value: float) -> str:
        """Return a dashed line across the panel."""
        return path(f"M{self.left} {self.y(value)}H{self.right}", css="level")

    def bar(
        self, x: float, width: float, low: float, high: float, *, fill: str, title: str, opacity: float | None = None
    ) -> str:
        """Return a bar from one value to another."""
        y = self.y(high)
        return rect(x, y, width, self.y(low) - y, fill=fill, title=title, opacity=opacity)


def legend(x: float, y: float, entries: Mapping[str, str], *, width: int, columns: int) -> Iterator[str]:
    """Yield a square of each color with its label, ``columns`` in a row; ``entries`` map labels to colors."""
    for k, (label, color) in enumerate(entries.items()):
        left, top = x + k % columns * width, y + k // columns * 20
        yield rect(left, top, 12, 12, fill=color)
        yield text(left + 17, top + 10, label)


def category_color(index: int) -> str:
    """Return a color of ``CATEGORICAL_COLORS``, repeated cyclically."""
    return CATEGORICAL_COLORS[index % len(CATEGORICAL_COLORS)]


def truncate(content: str, max_characters: float) -> str:
    """Shorten a text to a number of characters."""
    return content if len(content) <= max_characters else f"{content[: int(max_characters) - 1]}…"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _css(name: str) -> str:
    return f' class="{name}"' if name else ""


def _title(content: str) -> str:
    return f"<title>{escape(content)}</title>" if content else ""
