"""A metric over the snapshots that arrived, of a model and of trivial answers, as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from strobe.engine.summary import figure
from strobe.palette import MANY

_LEFT, _TOP, _WIDTH, _HEIGHT, _BELOW = 64, 58, 680, 240, 54


def online_svg(times: Sequence[str], named: Mapping[str, Sequence[float | None]], title: str, axis: str) -> str:
    """A line for each name, the first one thick; a value that is missing breaks it."""
    known = [value for values in named.values() for value in values if value is not None]
    low, high = min(known), max(known)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)

    def at(k: int, value: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH * k / (len(times) - 1) if len(times) > 1 else _WIDTH / 2)
        return x, _TOP + _HEIGHT * (high - value) / (high - low)

    lines, keys, right = [], [], float(_LEFT)
    for number, (name, values) in enumerate(named.items()):
        colour = MANY[number % len(MANY)]
        keys.append(f'<text x="{right:.0f}" y="42" fill="{colour}">{escape(name)}</text>')
        right += 7.2 * len(name) + 18
        lines += [_drawn([at(k, value) for k, value in part], colour, first=number == 0) for part in _parts(values)]
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    grid = [
        f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{at(0, tick)[1]:.1f}" y2="{at(0, tick)[1]:.1f}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{at(0, tick)[1] + 4:.1f}" text-anchor="end">{figure(tick)}</text>'
        for tick in ticks
    ]
    fit = min(6, int(_WIDTH / (7 * max(map(len, times)) + 12)))  # so many beside each other
    shown = range(0, len(times), max(1, math.ceil((len(times) - 1) / fit)))
    below = [
        f'<text x="{at(k, low)[0]:.1f}" y="{_TOP + _HEIGHT + 20}" text-anchor="middle">{escape(times[k])}</text>'
        for k in shown
    ]
    width, height = _LEFT + _WIDTH + 40, _TOP + _HEIGHT + _BELOW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
            *keys,
            *grid,
            *reversed(lines),
            *below,
            f'<text x="{_LEFT}" y="{height - 8}" fill="#555">{escape(axis)}</text>',
            "</svg>",
        ]
    )


def _parts(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Stretches without a missing value."""
    parts: list[list[tuple[int, float]]] = [[]]
    for k, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append((k, value))
    return [part for part in parts if part]


def _drawn(points: Sequence[tuple[float, float]], colour: str, *, first: bool) -> str:
    if len(points) == 1:
        return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.5" fill="{colour}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    width = 2.4 if first else 1.2
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
