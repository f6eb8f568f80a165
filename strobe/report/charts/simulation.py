"""Chart of a simulation: efficiency and seconds per epoch over the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from strobe.format import duration, format_count, format_metric, format_ratio, percent, pluralize
from strobe.planner.simulate import SimulatedEpoch, Simulation
from strobe.report.charts.svg import LETTER, Panel, Scale, category_color, circle, document, line, path, text, truncate

_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 960, 72, 168, 100, 92
_PANEL = 230  # its height
_FULL = _WIDTH - _LEFT - _RIGHT
_NAMES = _LEFT + _FULL + 24  # left edge of plan names
_LINE = 15  # between names
_MAX_NAME = 18  # characters of a plan's name
_BELOW = 4  # how far below the fastest epoch the ideal line is shown
_STYLE = """
.point { stroke: var(--ground); stroke-width: 1.5; }
.leader { fill: none; opacity: 0.45; }
.name { font-weight: 600; }
"""

EpochsByPlan = Mapping[str, Sequence[SimulatedEpoch]]


def simulation_svg(simulation: Simulation) -> str:
    """Draw a simulation.

    Raises:
        ValueError: no plan was simulated.
    """
    epochs = {name: each for name, each in simulation.results.items() if each}
    if not epochs:
        raise ValueError("no plan was simulated: there is nothing to draw")
    second = _TOP + _PANEL + _GAP
    return document(
        f"{simulation.model} on {simulation.graph}, simulated",
        [*_efficiencies(epochs, _TOP), *_seconds(epochs, second)],
        width=_WIDTH,
        height=second + _PANEL + 56,
        left=_LEFT,
        subtitle=truncate(str(simulation.network), (_WIDTH - _LEFT) / LETTER),
        style=_STYLE,
    )


@dataclass(frozen=True)
class _Plot:
    """Positions of epochs in a panel: ``value`` is the plotted quantity."""

    panel: Panel
    epochs: EpochsByPlan
    value: Callable[[SimulatedEpoch], float]

    def x(self, num_ranks: int) -> float:
        """Position on a logarithmic axis; the middle if there is only one number of ranks."""
        few, many = _rank_range(self.epochs)
        share = math.log(num_ranks / few) / math.log(many / few) if many > few else 0.5
        return round(_LEFT + 14 + share * (_FULL - 28), 1)

    def position(self, each: SimulatedEpoch) -> tuple[float, float]:
        return self.x(each.num_ranks), self.panel.y(self.value(each))


def _efficiencies(epochs: EpochsByPlan, top: int) -> Iterator[str]:
    panel = Panel(_LEFT, top, _FULL, _PANEL, Scale(0.0, 1.0))
    yield panel.heading("efficiency", "what one rank would compute, of all ranks' time", gap=14)
    yield from panel.grid({share: f"{share:.0%}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)})
    yield from _draw(_Plot(panel, epochs, lambda each: min(max(each.efficiency, 0.0), 1.0)))


def _seconds(epochs: EpochsByPlan, top: int) -> Iterator[str]:
    """Draw seconds per epoch on a logarithmic axis, and the ideal: those of one rank divided by the ranks."""
    seconds = [each.epoch_s for rows in epochs.values() for each in rows if each.epoch_s > 0] or [1e-3]
    alone = min(each.single_rank_s for rows in epochs.values() for each in rows)
    few, many = _rank_range(epochs)
    ideal = {number: alone / number for number in (few, many)} if few < many and alone > 0 else {}
    room = [max(ideal[many], min(seconds) / _BELOW)] if ideal else []
    scale, ticks = _log_scale(min(seconds + room), max(seconds))
    panel = Panel(_LEFT, top, _FULL, _PANEL, scale)
    plot = _Plot(panel, epochs, lambda each: max(each.epoch_s, scale.low))
    yield panel.heading("an epoch", "dashed: if no time were lost" if ideal else "", gap=14)
    yield from panel.grid({tick: _format_tick(tick) for tick in ticks})
    if ideal:
        box = f'x="{_LEFT}" y="{top}" width="{_FULL}" height="{_PANEL}"'
        yield f'<clipPath id="simulated-panel"><rect {box}/></clipPath><g clip-path="url(#simulated-panel)">'
        yield line(((plot.x(number), panel.y(value)) for number, value in ideal.items()), css="level") + "</g>"
    yield from _draw(plot)


def _draw(plot: _Plot) -> Iterator[str]:
    """Draw the axis of ranks, a line with points per plan, and the plans' names at the right."""
    yield from _rank_axis(plot)
    for k, (name, epochs) in enumerate(plot.epochs.items()):
        color = category_color(k)
        yield line(map(plot.position, epochs), stroke=color)
        for each in epochs:
            yield circle(*plot.position(each), 4.5, fill=color, css="point", title=_describe(name, each))
    ends = [plot.position(epochs[-1]) for epochs in plot.epochs.values()]
    heights = _spread_labels([y for _, y in ends], plot.panel.top, plot.panel.bottom)
    for k, (name, (x, y), height) in enumerate(zip(plot.epochs, ends, heights, strict=True)):
        if x + 6 < _NAMES - 4:
            yield path(f"M{x + 6} {y}L{_NAMES - 4} {height}", css="leader", stroke=category_color(k))
        yield text(_NAMES, height + 4, _shorten(name), css="name", fill=category_color(k), title=name)


def _spread_labels(positions: Sequence[float], low: float, high: float) -> list[float]:
    """Move labels apart so that they do not overlap, keeping their order."""
    order = sorted(range(len(positions)), key=lambda k: (positions[k], k))
    heights, least = [0.0] * len(positions), low
    for k in order:
        heights[k] = max(positions[k], least)
        least = heights[k] + _LINE
    most = high
    for k in reversed(order):
        heights[k] = min(heights[k], most)
        most = heights[k] - _LINE
    return heights


def _rank_axis(plot: _Plot) -> Iterator[str]:
    """Label the numbers of ranks; omit those without space."""
    y, free = plot.panel.bottom, -math.inf
    for number in sorted({each.num_ranks for epochs in plot.epochs.values() for each in epochs}):
        x, half = plot.x(number), len(format_count(number)) * LETTER / 2
        yield path(f"M{x} {y}v5", css="grid")
        if x - half > free:
            yield text(x, y + 20, format_count(number), anchor="middle")
            free = x + half + 8
    yield text(_NAMES, y + 20, "ranks")


def _rank_range(epochs: EpochsByPlan) -> tuple[int, int]:
    numbers = [each.num_ranks for rows in epochs.values() for each in rows]
    return min(numbers), max(numbers)


def _log_scale(least: float, most: float) -> tuple[Scale, list[float]]:
    """Return a logarithmic axis with round ends and its ticks: 1, 2, 5 of every power of 10, or the powers alone."""
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    fine = [k * 10.0**power for power in powers for k in (1, 2, 5)]
    low = max(value for value in fine if value <= least * 1.0001)
    high = min(value for value in [*fine, 10.0 ** (powers[-1] + 1)] if value >= most * 0.9999 and value > low)
    ticks = [10.0**power for power in powers] if high / low > 2000 else fine
    return Scale(low, high, logarithmic=True), [tick for tick in ticks if low * 0.9999 <= tick <= high * 1.0001]


def _format_tick(seconds: float) -> str:
    """Format a round value: 20 ms, 5 s, 200 s."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9999 * unit:
            return f"{format_count(seconds / unit)} {name}"
    return f"{format_metric(seconds * 1e9)} ns"


def _describe(name: str, each: SimulatedEpoch) -> str:
    epoch = f"{name} on {pluralize(each.num_ranks, 'rank')}: {duration(each.epoch_s)} an epoch"
    speed = f"{format_ratio(each.speedup)} as fast as one rank would compute"
    return f"{epoch}, {speed}, efficiency {percent(each.efficiency)}"


def _shorten(name: str) -> str:
    """Keep both ends of a long name: plans often differ in their last option."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME // 2]}…{name[-(_MAX_NAME // 2 - 1) :]}"
