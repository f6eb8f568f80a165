"""When every rank ran which batch in an epoch: a picture of a schedule, as it was planned and as it went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from strobe.comm.ledger import AGREEING, Ran
from strobe.engine.curve import STYLE, Scale
from strobe.engine.summary import duration
from strobe.numbers import count, number_of, percent, times
from strobe.palette import PALETTE
from strobe.schedule.costs import Costs, Steps

MOST_RANKS = 32
MOST_BOXES = 3_000
"""Of one panel; only the first steps that stay below it are drawn."""

_EARLY_TO_LATE = (PALETTE[0], PALETTE[3], PALETTE[1])
_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 960, 70, 24, 84, 36
_FULL = _WIDTH - _LEFT - _RIGHT
_HEAD, _AXIS = 46, 22  # above and below the rows of a panel
_STYLE = """
.idle { fill: var(--grid); opacity: 0.45; }
.hatch { stroke: var(--soft); opacity: 0.35; }
.agree { fill: var(--soft); }
.border { stroke: var(--soft); opacity: 0.4; }
.small { font-size: 10px; }
"""


def planned(steps: Steps, costs: Costs) -> list[list[Ran]]:
    """What every rank would run when, if batches took what they are said to: a list per rank.

    Ranks begin every step together, and agree when the slowest has finished.
    """
    rows: list[list[Ran]] = [[] for _ in max(steps, key=len, default=[])]
    begin = 0.0
    for number, step in enumerate(steps, 1):
        ends = []
        for row, batches in zip(rows, step, strict=True):
            at = [*accumulate((float(costs.seconds[batch]) for batch in batches), initial=begin)]
            row += [(number, batch, at[k], at[k + 1]) for k, batch in enumerate(batches)]
            ends.append(at[-1])
        slowest = max(ends, default=begin)
        begin = slowest + costs.agree_s
        for row in rows:
            row.append((number, AGREEING, slowest, begin))
    return rows


def gantt_svg(
    rows: Mapping[str, list[list[Ran]]],
    *,
    names: Callable[[int], str] | None = None,
    title: str | None = None,
    colours: str = "batches, from early to late",
) -> str | None:
    """A row per rank, a box per batch, in light or dark as the reader has it; None where nothing ran.

    ``rows`` has what ran on every rank by the name of a panel, planned and measured. Each begins at its own 0, all
    have one scale. A rank of which nothing is known has an empty row and does not count. ``names`` tells what a batch
    is called, ``colours`` in which order they are numbered.
    """
    panels = [panel for name, of in rows.items() if (panel := _Panel.of(name, of)) is not None]
    if not panels:
        return None
    shown = min(panel.steps_that_fit() for panel in panels)
    longest = max(panel.end(shown) for panel in panels) or 1e-9
    last = max(panel.last_batch for panel in panels)
    parts, top = [*_legend(colours)], _TOP
    for panel in panels:
        parts += _drawn(panel, shown, top, longest, last, names or "batch {}".format)
        top += _HEAD + round(panel.height) + _AXIS + _GAP
    height = top - _GAP + 14
    title = title or "An epoch, step by step"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}{_STYLE}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="{_LEFT}" y="30">{escape(_cut(title, _FULL / 9))}</text>\n{body}\n</svg>\n'
    )


@dataclass(frozen=True)
class _Panel:
    """What ran on every rank, from 0 on."""

    name: str
    rows: list[list[Ran]]

    @classmethod
    def of(cls, name: str, rows: list[list[Ran]]) -> _Panel | None:
        """Without what has no time; None if no batch is left."""
        rows = [[ran for ran in row if math.isfinite(ran[2] + ran[3])] for row in rows]
        if not any(batch >= 0 for row in rows for _, batch, *_ in row):
            return None
        zero = min(began for row in rows for _, _, began, _ in row)
        return cls(name, [[(step, k, a - zero, max(a, b) - zero) for step, k, a, b in row] for row in rows])

    @property
    def steps(self) -> list[int]:
        return sorted({step for row in self.rows for step, *_ in row})

    @property
    def last_batch(self) -> int:
        return max(batch for row in self.rows for _, batch, *_ in row)

    @property
    def ranks(self) -> list[int]:
        """Those that are drawn: the first ones, and the last."""
        every = range(len(self.rows))
        return [*every] if len(every) <= MOST_RANKS else [*every[: MOST_RANKS - 1], every[-1]]

    @property
    def row(self) -> float:
        """The height of one."""
        return max(12.0, min(24.0, 300 / len(self.ranks)))

    @property
    def height(self) -> float:
        return self.row * (len(self.ranks) + (len(self.ranks) < len(self.rows)))

    def steps_that_fit(self) -> int:
        """How many of the first steps have no more boxes than may be drawn; one at least."""
        boxes = Counter(step for rank in self.ranks for step, *_ in self.rows[rank])
        upto = accumulate(boxes[step] for step in self.steps)
        return max(sum(total <= MOST_BOXES for total in upto), 1)

    def first(self, shown: int) -> list[list[Ran]]:
        """What ran in the first steps."""
        steps = set(self.steps[:shown])
        return [[ran for ran in row if ran[0] in steps] for row in self.rows]

    def end(self, shown: int) -> float:
        """When the first steps are over."""
        return max(ended for row in self.first(shown) for *_, ended in row)

    def caption(self, shown: int) -> str:
        """How long the epoch is, how much of it ranks compute, how uneven; which part of it is drawn."""
        length, num_steps = self.end(len(self.steps)), len(self.steps)
        known = [sum(b - a for _, k, a, b in row if k >= 0) for row in self.rows if row]
        said = [f"{number_of(num_steps, 'step')} in {duration(length)}"]
        if length > 0:
            said.append(f"ranks compute {percent(sum(known) / (len(known) * length))} of the time")
        if len(known) > 1:
            even = f"fullest rank to emptiest {times(max(known) / min(known))}" if min(known) > 0 else ""
            said.append(even or "some ranks have nothing")
        if len(known) < len(self.rows):
            said.append(f"nothing known of {number_of(len(self.rows) - len(known), 'rank')}")
        if shown < num_steps:
            said.append(f"drawn are the first {count(shown)} of {count(num_steps)} steps")
        return "; ".join(said)


def _drawn(
    panel: _Panel, shown: int, top: int, longest: float, last: int, names: Callable[[int], str]
) -> Iterator[str]:
    """A panel: what it says, steps, rows, the axis of time."""
    scale, end, rows = _FULL / longest, panel.end(shown), panel.first(shown)
    yield f'<text class="head" x="{_LEFT}" y="{top}">{escape(panel.name)}</text>'
    yield f'<text x="{_LEFT}" y="{top + 17}">{escape(panel.caption(shown))}</text>'
    top, room = top + _HEAD, 2 if panel.row >= 16 else 1
    for k, rank in enumerate(panel.ranks):
        left_out = rank > k
        y = top + (k + left_out) * panel.row
        if left_out:
            yield _label(_LEFT + 4, y - panel.row / 2, f"ranks {k} to {rank - 1} are left out", panel.row, "start")
        yield _label(_LEFT - 8, y + panel.row / 2, f"rank {rank}", panel.row, "end")
        if rows[rank]:
            yield from _idle(_LEFT, y + room, end * scale, panel.row - 2 * room)
        there = [ran for ran in rows[rank] if ran[1] >= 0 or ran[3] > ran[2]]  # agreeing may cost nothing
        yield from (_box(ran, y + room, panel.row - 2 * room, scale, last, names) for ran in there)
    yield from _borders(rows, top, panel.height, scale)
    yield from _axis(longest, end, top + panel.height)


def _box(ran: Ran, y: float, height: float, scale: float, last: int, names: Callable[[int], str]) -> str:
    """A batch in its colour; agreeing is thinner, and grey."""
    step, batch, began, ended = ran
    wide = (ended - began) * scale
    wide = max(wide - min(0.8, 0.2 * wide), 0.3)  # what lies side by side is told apart
    told = f"step {step}, {(ended - began) * 1e3:.2f} ms"
    if batch < 0:
        y, height, look, name = y + height / 3, height / 3, 'class="agree"', "agreeing"
    else:
        look, name = f'fill="{_colour(batch / max(last, 1))}"', names(batch)
    size = f'width="{wide:.2f}" height="{height:.1f}"'
    return (
        f'<rect x="{_LEFT + began * scale:.2f}" y="{y:.1f}" {size} {look}><title>{escape(name)}, {told}</title></rect>'
    )


def _idle(x: float, y: float, wide: float, height: float) -> Iterator[str]:
    """What shows where nothing runs."""
    place = f'x="{x}" y="{y:.1f}" width="{wide:.1f}" height="{height:.1f}"'
    yield f'<rect class="idle" {place}/>'
    yield f'<rect fill="url(#gantt-idle)" {place}/>'


def _borders(rows: list[list[Ran]], top: float, height: float, scale: float) -> Iterator[str]:
    """A faint line where a step begins, with its number: each, or every fifth, tenth and so on, as there is room."""
    begins: dict[int, float] = {}
    for step, _, began, _ in (ran for row in rows for ran in row):
        begins[step] = min(began, begins.get(step, began))
    mean = (max(begins.values()) * scale or _FULL) / max(len(begins) - 1, 1)
    rounded = [k * 10**power for power in range(9) for k in (1, 2, 5)]
    every = next((k for k in rounded if k * mean >= 24), rounded[-1])
    free = -math.inf  # where the next number may be
    yield f'<text x="{_LEFT - 8}" y="{top - 6}" text-anchor="end">step</text>'
    for step, began in sorted(begins.items()):
        x = _LEFT + began * scale
        if x >= free and (step % every == 0 or free < 0):
            yield f'<path class="border" d="M{x:.1f} {top - 4}V{top + height:.1f}"/>'
            yield f'<text class="small" x="{x + 2:.1f}" y="{top - 6}">{step}</text>'
            free = x + 6 * len(str(step)) + 8


def _axis(longest: float, end: float, y: float) -> Iterator[str]:
    unit, size = ("s", 1.0) if longest >= 2 else ("ms", 1e3)
    yield f'<path class="border" d="M{_LEFT} {y:.1f}H{_LEFT + end * _FULL / longest:.1f}"/>'
    for tick in Scale(0.0, longest * size, False).ticks():
        x = _LEFT + tick / size * _FULL / longest
        side = "end" if x > _WIDTH - _RIGHT - 16 else "middle"
        yield f'<path class="border" d="M{x:.1f} {y:.1f}v4"/>'
        yield f'<text x="{x:.1f}" y="{y + 17:.1f}" text-anchor="{side}">{tick:g}{f" {unit}" if tick else ""}</text>'


def _legend(colours: str) -> Iterator[str]:
    """What colours stand for, what waiting and agreeing look like."""
    stops = "".join(f'<stop offset="{k / 2}" stop-color="{colour}"/>' for k, colour in enumerate(_EARLY_TO_LATE))
    yield (
        f'<defs><linearGradient id="gantt-early">{stops}</linearGradient><pattern id="gantt-idle" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
    )
    y = 46
    yield f'<rect x="{_LEFT}" y="{y}" width="90" height="12" fill="url(#gantt-early)"/>'
    yield f'<text x="{_LEFT + 97}" y="{y + 10}">{escape(colours)}</text>'
    yield f'<rect class="agree" x="{_LEFT + 276}" y="{y + 4}" width="24" height="4"/>'
    yield f'<text x="{_LEFT + 307}" y="{y + 10}">agreeing</text>'
    yield from _idle(_LEFT + 382, y, 24, 12)
    yield f'<text x="{_LEFT + 413}" y="{y + 10}">waiting</text>'


def _label(x: float, middle: float, text: str, row: float, side: str) -> str:
    small = ' class="small"' if row < 16 else ""
    return f'<text{small} x="{x}" y="{middle + 4:.1f}" text-anchor="{side}">{text}</text>'


def _colour(place: float) -> str:
    """Between 0, early, and 1, late."""
    at = min(max(place, 0.0), 1.0) * (len(_EARLY_TO_LATE) - 1)
    low = min(int(at), len(_EARLY_TO_LATE) - 2)
    ends = ([int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in _EARLY_TO_LATE[low : low + 2])
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def _cut(text: str, most: float) -> str:
    return text if len(text) <= most else f"{text[: int(most) - 1]}…"
