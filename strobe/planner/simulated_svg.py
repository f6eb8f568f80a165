"""A simulation as a picture that needs nothing to be shown: efficiency and epochs over numbers of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from strobe.engine.curve import STYLE
from strobe.engine.partition_svg import OWNERS
from strobe.engine.summary import duration, figure
from strobe.numbers import count, number_of, percent, times
from strobe.planner.simulate import Simulation
from strobe.planner.simulator import Simulated

_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 960, 72, 168, 100, 92
_PANEL = 230  # its height
_FULL = _WIDTH - _LEFT - _RIGHT
_LETTER = 6.8  # the usual width of one, of 12 px
_LINE = 15  # between names
_NAME = 18  # letters of a plan's name that have room
_BELOW = 4  # how far below the fastest epoch there is room for a faster one
_STYLE = """
.point { stroke: var(--ground); stroke-width: 1.5; }
.leader { fill: none; opacity: 0.45; }
.name { font-weight: 600; }
.note { font-size: 12px; font-weight: 400; fill: var(--soft); }
"""

Rows = Mapping[str, Sequence[Simulated]]


def simulated_svg(found: Simulation) -> str:
    """A picture for a browser or a paper, in light or dark as the reader has it. There must be something to show."""
    rows = {name: each for name, each in found.found.items() if each}
    if not rows:
        raise ValueError("no plan was simulated: there is nothing to draw")
    title = f"{found.model} on {found.graph}, simulated"
    second = _TOP + _PANEL + _GAP
    height = second + _PANEL + 56
    drawn = "\n".join([*_efficiencies(rows, _TOP), *_epochs(rows, second)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}{_STYLE}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="{_LEFT}" y="30">{escape(_cut(title, (_WIDTH - _LEFT) / 9))}</text>\n'
        f'<text x="{_LEFT}" y="52">{escape(_cut(str(found.network), (_WIDTH - _LEFT) / _LETTER))}</text>\n'
        f"{drawn}\n</svg>\n"
    )


@dataclass(frozen=True)
class _Panel:
    """Where values are: ``x`` of a number of ranks, ``y`` of what is shown, which ``of`` tells."""

    top: int
    x: Callable[[int], float]
    y: Callable[[float], float]
    of: Callable[[Simulated], float]

    def place(self, each: Simulated) -> tuple[float, float]:
        return self.x(each.num_ranks), self.y(self.of(each))


def _efficiencies(rows: Rows, top: int) -> Iterator[str]:
    """From 0 to 100%, all of it where ranks neither wait nor send nor agree."""

    def y(share: float) -> float:
        return round(top + (1 - min(max(share, 0.0), 1.0)) * _PANEL, 1)

    panel = _Panel(top, _over_ranks(rows), y, lambda each: each.efficiency)
    yield _head(top, "efficiency", "what one rank would compute, of all ranks' time")
    yield from _grid({share: f"{share:.0%}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}, y)
    yield from _ranks(rows, panel)
    yield from _lines(rows, panel)


def _epochs(rows: Rows, top: int) -> Iterator[str]:
    """On a logarithmic axis, beside what it would be if nothing were lost: a straight line."""
    seconds = [each.epoch_s for simulated in rows.values() for each in simulated if each.epoch_s > 0] or [1e-3]
    ideal = _ideal(rows)
    room = [max(ideal[max(ideal)], min(seconds) / _BELOW)] if ideal else []
    low, high, ticks = _decades(min(seconds + room), max(seconds))

    def y(value: float) -> float:
        return round(top + (1 - math.log(value / low) / math.log(high / low)) * _PANEL, 1)

    panel = _Panel(top, _over_ranks(rows), y, lambda each: max(each.epoch_s, low))
    yield _head(top, "an epoch", "dashed: if no time were lost" if ideal else "")
    yield from _grid({tick: _round(tick) for tick in ticks}, y)
    if ideal:
        box = f'x="{_LEFT}" y="{top}" width="{_FULL}" height="{_PANEL}"'
        line = "L".join(f"{panel.x(number)} {y(value)}" for number, value in ideal.items())
        yield f'<clipPath id="simulated-panel"><rect {box}/></clipPath>'
        yield f'<path class="level" clip-path="url(#simulated-panel)" d="M{line}"/>'
    yield from _ranks(rows, panel)
    yield from _lines(rows, panel)


def _ideal(rows: Rows) -> dict[int, float]:
    """Seconds of an epoch on the fewest and on the most ranks if they were what one rank computes, shared out."""
    few, many = _ends(rows)
    alone = min(each.alone_s for simulated in rows.values() for each in simulated)
    return {number: alone / number for number in (few, many)} if few < many and alone > 0 else {}


def _lines(rows: Rows, panel: _Panel) -> Iterator[str]:
    """A line and its points for every plan; then their names at the right, none over another."""
    for k, (name, simulated) in enumerate(rows.items()):
        line = "L".join("{} {}".format(*panel.place(each)) for each in simulated)
        yield f'<path class="line" stroke="{_colour(k)}" d="M{line}"/>'
        for each in simulated:
            x, y = panel.place(each)
            told = f"<title>{escape(_told(name, each))}</title>"
            yield f'<circle class="point" cx="{x}" cy="{y}" r="4.5" fill="{_colour(k)}">{told}</circle>'
    ends = [panel.place(simulated[-1]) for simulated in rows.values()]
    heights = _apart([y for _, y in ends], panel.top, panel.top + _PANEL)
    for k, (name, (x, y), height) in enumerate(zip(rows, ends, heights, strict=True)):
        left = _LEFT + _FULL + 24
        leader = f"M{x + 6} {y}L{left - 4} {height}" if x + 6 < left - 4 else ""
        yield f'<path class="leader" stroke="{_colour(k)}" d="{leader}"/>'
        shown = f"{escape(_short(name))}<title>{escape(name)}</title>"
        yield f'<text class="name" style="fill:{_colour(k)}" x="{left}" y="{height + 4:.1f}">{shown}</text>'


def _apart(places: Sequence[float], low: float, high: float) -> list[float]:
    """Heights of names near where they would like to be, in the same order, a line apart."""
    order = sorted(range(len(places)), key=lambda k: (places[k], k))
    found, least = [0.0] * len(places), low
    for k in order:
        found[k] = max(places[k], least)
        least = found[k] + _LINE
    most = high
    for k in reversed(order):
        found[k] = min(found[k], most)
        most = found[k] - _LINE
    return found


def _ranks(rows: Rows, panel: _Panel) -> Iterator[str]:
    """Numbers of ranks below the panel; one that has no room is left out."""
    y, free = panel.top + _PANEL, -math.inf
    for number in sorted({each.num_ranks for simulated in rows.values() for each in simulated}):
        x, half = panel.x(number), len(count(number)) * _LETTER / 2
        yield f'<path class="grid" d="M{x} {y}v5"/>'
        if x - half > free:
            yield f'<text x="{x}" y="{y + 20}" text-anchor="middle">{count(number)}</text>'
            free = x + half + 8
    yield f'<text x="{_LEFT + _FULL + 24}" y="{y + 20}">ranks</text>'


def _over_ranks(rows: Rows) -> Callable[[int], float]:
    """Twice as many ranks are as far apart everywhere; a single number is in the middle."""
    few, many = _ends(rows)
    room = 14

    def x(number: int) -> float:
        share = math.log(number / few) / math.log(many / few) if many > few else 0.5
        return round(_LEFT + room + share * (_FULL - 2 * room), 1)

    return x


def _ends(rows: Rows) -> tuple[int, int]:
    numbers = [each.num_ranks for simulated in rows.values() for each in simulated]
    return min(numbers), max(numbers)


def _decades(least: float, most: float) -> tuple[float, float, list[float]]:
    """Ends of a logarithmic axis and round values on it: 1, 2, 5 of every power of 10, or those powers alone."""
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    fine = [k * 10.0**power for power in powers for k in (1, 2, 5)]
    low = max(value for value in fine if value <= least * 1.0001)
    high = min(value for value in [*fine, 10.0 ** (powers[-1] + 1)] if value >= most * 0.9999 and value > low)
    coarse = [10.0**power for power in powers] if high / low > 2000 else fine
    return low, high, [value for value in coarse if low * 0.9999 <= value <= high * 1.0001]


def _grid(ticks: Mapping[float, str], y: Callable[[float], float]) -> Iterator[str]:
    for value, told in ticks.items():
        yield f'<path class="grid" d="M{_LEFT} {y(value)}h{_FULL}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{told}</text>'


def _head(top: int, name: str, what: str) -> str:
    return f'<text class="head" x="{_LEFT}" y="{top - 14}">{name}<tspan dx="10" class="note">{what}</tspan></text>'


def _round(seconds: float) -> str:
    """A round value on the axis: 20 ms, 5 s, 200 s."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9999 * unit:
            return f"{count(seconds / unit)} {name}"
    return f"{figure(seconds * 1e9)} ns"


def _told(name: str, each: Simulated) -> str:
    where = f"{name} on {number_of(each.num_ranks, 'rank')}: {duration(each.epoch_s)} an epoch"
    return f"{where}, {times(each.speedup)} as fast as one rank would compute, efficiency {percent(each.efficiency)}"


def _short(name: str) -> str:
    """Both ends of a long name: plans often differ in their last option."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}…{name[-(_NAME // 2 - 1) :]}"


def _colour(plan: int) -> str:
    return OWNERS[plan % len(OWNERS)]


def _cut(text: str, most: float) -> str:
    return text if len(text) <= most else f"{text[: int(most) - 1]}…"
