"""Chart of an online run: the metric of the model and of the baselines on each arriving snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from strobe.format import format_metric
from strobe.report.charts.svg import Panel, Scale, category_color, circle, document, line, text

_LEFT, _TOP, _WIDTH, _HEIGHT, _BELOW = 64, 76, 680, 240, 54


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
