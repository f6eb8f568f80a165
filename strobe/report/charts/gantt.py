"""Gantt charts of an epoch: the batches of every rank, planned and measured, and the slots of a relayed time stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from strobe.comm.ledger import STEP_SYNC, BatchSpan
from strobe.comm.ledger_stats import PipelineSpans, pipeline_busy_fraction
from strobe.format import duration, format_count, format_ratio, percent, pluralize
from strobe.report.charts.svg import PALETTE, Scale, document, path, rect, text
from strobe.schedule.costs import Costs, Steps

MAX_RANKS = 32
MAX_BOXES = 3_000
"""Limit per panel; later steps are left out."""

_GRADIENT = (PALETTE[0], PALETTE[3], PALETTE[1])
_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 960, 70, 24, 84, 36
_FULL = _WIDTH - _LEFT - _RIGHT
_HEAD, _AXIS = 46, 22  # above and below the rows of a panel
_STYLE = """
.idle { fill: var(--grid); opacity: 0.45; }
.hatch { stroke: var(--soft); opacity: 0.35; }
.sync { fill: var(--soft); }
.border { stroke: var(--soft); opacity: 0.4; }
"""


def planned_spans(steps: Steps, costs: Costs) -> list[list[BatchSpan]]:
    """Return the batch spans of every rank if batches take their estimated seconds.

    Ranks start every step together and synchronize after the slowest.
    """
    rows: list[list[BatchSpan]] = [[] for _ in max(steps, key=len, default=[])]
    begin = 0.0
    for number, step in enumerate(steps, 1):
        ends = []
        for row, batches in zip(rows, step, strict=True):
            at = [*accumulate((float(costs.seconds[batch]) for batch in batches), initial=begin)]
            row += [(number, batch, at[k], at[k + 1]) for k, batch in enumerate(batches)]
            ends.append(at[-1])
        slowest = max(ends, default=begin)
        begin = slowest + costs.sync_s
        for row in rows:
            row.append((number, STEP_SYNC, slowest, begin))
    return rows


def gantt_svg(
    rows: Mapping[str, list[list[BatchSpan]]],
    *,
    names: Callable[[int], str] | None = None,
    title: str = "An epoch, step by step",
    color_legend: str = "batches, from early to late",
) -> str | None:
    """Draw a row per rank and a box per batch; None if no batch ran.

    Args:
        rows: batch spans of every rank by panel name (planned, measured). Panels start at 0 and share one scale. A
            rank without spans has an empty row and is excluded from the statistics.
        names: name of a batch, by its index.
        color_legend: meaning of the color gradient over batch indices.
    """
    panels = [panel for name, spans in rows.items() if (panel := _Panel.of(name, spans)) is not None]
    if not panels:
        return None
    shown = min(panel.steps_that_fit() for panel in panels)
    longest = max(panel.end(shown) for panel in panels) or 1e-9
    last = max(panel.last_batch for panel in panels)
    parts, top = [*_legend(color_legend)], _TOP
    for panel in panels:
        parts += _draw_panel(panel, shown, top, longest, last, names or "batch {}".format)
        top += _HEAD + round(panel.height) + _AXIS + _GAP
    return document(title, parts, width=_WIDTH, height=top - _GAP + 14, left=_LEFT, style=_STYLE)


@dataclass(frozen=True)
class _Panel:
    """Batch spans of every rank, starting at 0."""

    name: str
    rows: list[list[BatchSpan]]

    @classmethod
    def of(cls, name: str, rows: list[list[BatchSpan]]) -> _Panel | None:
        """Drop spans without finite times; None if no batch is left."""
        rows = [[span for span in row if math.isfinite(span[2] + span[3])] for row in rows]
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
        """Ranks that are drawn: the first ones and the last."""
        every = range(len(self.rows))
        return [*every] if len(every) <= MAX_RANKS else [*every[: MAX_RANKS - 1], every[-1]]

    @property
    def row_height(self) -> float:
        return max(12.0, min(24.0, 300 / len(self.ranks)))

    @property
    def height(self) -> float:
        return self.row_height * (len(self.ranks) + (len(self.ranks) < len(self.rows)))

    def steps_that_fit(self) -> int:
        """Number of first steps with at most ``MAX_BOXES`` boxes; at least 1."""
        boxes = Counter(step for rank in self.ranks for step, *_ in self.rows[rank])
        totals = accumulate(boxes[step] for step in self.steps)
        return max(sum(total <= MAX_BOXES for total in totals), 1)

    def first(self, num_steps: int) -> list[list[BatchSpan]]:
        steps = set(self.steps[:num_steps])
        return [[span for span in row if span[0] in steps] for row in self.rows]

    def end(self, num_steps: int) -> float:
        return max(ended for row in self.first(num_steps) for *_, ended in row)

    def caption(self, shown: int) -> str:
        """Length of the epoch, utilization, imbalance, and how many steps are drawn."""
        length, num_steps = self.end(len(self.steps)), len(self.steps)
        known = [sum(b - a for _, k, a, b in row if k >= 0) for row in self.rows if row]
        facts = [f"{pluralize(num_steps, 'step')} in {duration(length)}"]
        if length > 0:
            facts.append(f"ranks compute {percent(sum(known) / (len(known) * length))} of the time")
        if len(known) > 1:
            ratio = f"fullest rank to emptiest {format_ratio(max(known) / min(known))}" if min(known) > 0 else ""
            facts.append(ratio or "some ranks have nothing")
        if len(known) < len(self.rows):
            facts.append(f"nothing known of {pluralize(len(self.rows) - len(known), 'rank')}")
        if shown < num_steps:
            facts.append(f"drawn are the first {format_count(shown)} of {format_count(num_steps)} steps")
        return "; ".join(facts)


def _draw_panel(
    panel: _Panel, shown: int, top: int, longest: float, last: int, names: Callable[[int], str]
) -> Iterator[str]:
    scale, end, rows, height = _FULL / longest, panel.end(shown), panel.first(shown), panel.row_height
    yield text(_LEFT, top, panel.name, css="head")
    yield text(_LEFT, top + 17, panel.caption(shown))
    top, room, css = top + _HEAD, 2 if height >= 16 else 1, "small" if height < 16 else ""
    for k, rank in enumerate(panel.ranks):
        skipped = rank > k
        y = top + (k + skipped) * height
        if skipped:
            yield text(_LEFT + 4, y - height / 2 + 4, f"ranks {k} to {rank - 1} are left out", css=css)
        yield text(_LEFT - 8, y + height / 2 + 4, f"rank {rank}", anchor="end", css=css)
        if rows[rank]:
            yield from _idle(_LEFT, y + room, end * scale, height - 2 * room)
        boxes = [span for span in rows[rank] if span[1] >= 0 or span[3] > span[2]]  # synchronizing may cost nothing
        yield from (_box(span, y + room, height - 2 * room, scale, last, names) for span in boxes)
    yield from _borders(rows, top, panel.height, scale)
    yield from _axis(longest, end, top + panel.height)


def _box(span: BatchSpan, y: float, height: float, scale: float, last: int, names: Callable[[int], str]) -> str:
    """Draw a batch in its color; synchronization is thinner and grey."""
    step, batch, began, ended = span
    width = (ended - began) * scale
    width = max(width - min(0.8, 0.2 * width), 0.3)  # a gap between neighbors
    x, title = _LEFT + began * scale, f"step {step}, {(ended - began) * 1e3:.2f} ms"
    if batch < 0:
        return rect(x, y + height / 3, width, height / 3, css="sync", title=f"synchronizing, {title}")
    return rect(x, y, width, height, fill=_color_at(batch / max(last, 1)), title=f"{names(batch)}, {title}")


def _idle(x: float, y: float, width: float, height: float) -> Iterator[str]:
    yield rect(x, y, width, height, css="idle")
    yield rect(x, y, width, height, fill="url(#gantt-idle)")


def _borders(rows: list[list[BatchSpan]], top: float, height: float, scale: float) -> Iterator[str]:
    """Draw a line and the number of each step, or of every second, fifth, tenth …, as space permits."""
    begins: dict[int, float] = {}
    for step, _, began, _ in (span for row in rows for span in row):
        begins[step] = min(began, begins.get(step, began))
    mean = (max(begins.values()) * scale or _FULL) / max(len(begins) - 1, 1)
    rounded = [k * 10**power for power in range(9) for k in (1, 2, 5)]
    every = next((k for k in rounded if k * mean >= 24), rounded[-1])
    free = -math.inf  # where the next number may be
    yield text(_LEFT - 8, top - 6, "step", anchor="end")
    for step, began in sorted(begins.items()):
        x = _LEFT + began * scale
        if x >= free and (step % every == 0 or free < 0):
            yield path(f"M{x:.1f} {top - 4}V{top + height:.1f}", css="border")
            yield text(x + 2, top - 6, str(step), css="small")
            free = x + 6 * len(str(step)) + 8


def _axis(longest: float, end: float, y: float) -> Iterator[str]:
    unit, size = ("s", 1.0) if longest >= 2 else ("ms", 1e3)
    yield path(f"M{_LEFT} {y:.1f}H{_LEFT + end * _FULL / longest:.1f}", css="border")
    for tick in Scale(0.0, longest * size).ticks():
        x = _LEFT + tick / size * _FULL / longest
        yield path(f"M{x:.1f} {y:.1f}v4", css="border")
        side = "end" if x > _WIDTH - _RIGHT - 16 else "middle"
        yield text(x, y + 17, f"{tick:g} {unit}" if tick else "0", anchor=side)


def _legend(color_legend: str) -> Iterator[str]:
    stops = "".join(f'<stop offset="{k / 2}" stop-color="{color}"/>' for k, color in enumerate(_GRADIENT))
    yield (
        f'<defs><linearGradient id="gantt-early">{stops}</linearGradient><pattern id="gantt-idle" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
    )
    y = 46
    yield rect(_LEFT, y, 90, 12, fill="url(#gantt-early)")
    yield text(_LEFT + 97, y + 10, color_legend)
    yield rect(_LEFT + 276, y + 4, 24, 4, css="sync")
    yield text(_LEFT + 307, y + 10, "synchronizing")
    yield from _idle(_LEFT + 404, y, 24, 12)
    yield text(_LEFT + 435, y + 10, "waiting")


def _color_at(position: float) -> str:
    """Interpolate the gradient between 0 (early) and 1 (late)."""
    at = min(max(position, 0.0), 1.0) * (len(_GRADIENT) - 1)
    low = min(int(at), len(_GRADIENT) - 2)
    ends = ([int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in _GRADIENT[low : low + 2])
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def pipeline_svg(pipeline_spans: PipelineSpans) -> str | None:
    """Draw the slots of the first relayed time stage, forward and backward: a row per rank; None without a relay."""
    spans = [(rank, span) for rank, row in enumerate(pipeline_spans) for span in row]
    spans = [(rank, span) for rank, span in spans if span[0] in ("forward", "backward")]
    if not spans:
        return None
    first = min(span[1] for _, span in spans)
    spans = [(rank, span) for rank, span in spans if span[1] == first]
    begin, end = min(span[3] for _, span in spans), max(span[4] for _, span in spans)
    top, row, width = 58, 26, 640
    scale = width / max(end - begin, 1e-9)
    colors = {"forward": PALETTE[0], "backward": PALETTE[1]}
    parts = [text(_LEFT + 60 * k, 48, name, fill=color) for k, (name, color) in enumerate(colors.items())]
    for rank in range(len(pipeline_spans)):
        parts += [text(_LEFT - 8, top + rank * row + 18, f"rank {rank}", anchor="end")]
    for rank, (phase, _, slot, began, ended) in spans:
        x, y, title = _LEFT + (began - begin) * scale, top + rank * row + 3, f"{(ended - began) * 1e3:.2f} ms"
        box_width = max((ended - began) * scale - 0.6, 0.6)
        parts.append(rect(x, y, box_width, row - 6, fill=colors[phase], title=f"slot {slot}, {phase}, {title}"))
    height = top + len(pipeline_spans) * row + 24
    parts += [
        text(_LEFT, height - 6, "0"),
        text(_LEFT + width, height - 6, f"{(end - begin) * 1e3:.1f} ms", anchor="end"),
    ]
    busy = pipeline_busy_fraction(pipeline_spans) or 0.0
    title = f"A relayed time stage: ranks compute {busy:.0%} of the time"
    return document(title, parts, width=_LEFT + width + 20, height=height, left=_LEFT)
